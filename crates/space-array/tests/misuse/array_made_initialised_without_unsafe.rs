use space_array::AllocArray;

fn main() {
    let _ = AllocArray::<u8, _>::uninit([3]).assume_init();
}
