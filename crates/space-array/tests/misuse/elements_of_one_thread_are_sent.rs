use space_array::AllocArray;

#[derive(Clone, Copy)]
struct Local(*const u8);

fn main() {
    let x = AllocArray::filled([3], Local(std::ptr::null()));
    std::thread::spawn(move || drop(x));
}
