use space_array::{AllocBuffer, UncheckedBumperAllocator};

fn main() {
    let _ = UncheckedBumperAllocator::new(AllocBuffer::new(64).unwrap());
}
