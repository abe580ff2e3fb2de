use space_array::AllocArray;

fn main() {
    let view = {
        let x = AllocArray::from([1, 2, 3]);
        x.view()
    };
    println!("{}", view.sum());
}
