use space_array::AllocArray;

fn main() {
    let x = AllocArray::from([1, 2, 3]);
    let on_the_heap = x.mapv(|element| element + 1);
    println!("{on_the_heap}");
}
