use cuda_runtime::Capture;

fn step(capture: Capture) {
    std::thread::spawn(move || drop(capture));
}

fn main() {}
