use space_array::AllocArray;

fn main() {
    let _ = AllocArray::filled([3], String::new());
}
