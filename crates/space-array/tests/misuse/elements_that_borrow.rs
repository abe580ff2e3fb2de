use space_array::AllocArray;

fn main() {
    let text = String::from("short-lived");
    let _ = AllocArray::filled([3], text.as_str());
}
