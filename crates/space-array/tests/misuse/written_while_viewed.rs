use space_array::AllocArray;

fn main() {
    let mut x = AllocArray::from([1, 2, 3]);
    let view = x.view();
    x.fill(0);
    println!("{}", view.sum());
}
