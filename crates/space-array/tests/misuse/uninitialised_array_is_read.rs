use space_array::AllocArray;

fn main() {
    let x = AllocArray::from([1, 2, 3]);
    let y = x.similar();
    println!("{}", y.view().sum());
}
