use space_array::AllocArray;

fn main() {
    let mut x = AllocArray::from([1, 2, 3]);
    let first = x.view_mut();
    let second = x.view_mut();
    println!("{} {}", first.sum(), second.sum());
}
