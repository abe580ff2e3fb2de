use space_array::CheckedAllocArray;

fn main() {
    let fresh = CheckedAllocArray::<f64, _>::uninit([3]);
    std::thread::scope(|threads| {
        threads.spawn(move || fresh.filled(1.0));
    });
}
