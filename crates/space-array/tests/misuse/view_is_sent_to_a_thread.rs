use space_array::CheckedAllocArray;

fn main() {
    let x = CheckedAllocArray::filled([3], 1.0);
    let pinned = x.view();
    std::thread::scope(|threads| {
        threads.spawn(move || pinned.view().sum());
    });
}
