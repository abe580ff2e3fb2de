use cuda_buffer::{DeviceArena, DeviceData};
use cuda_runtime::Stream;
use space_core::{Space, Undef};

fn step(arena: &mut DeviceArena, stream: &Stream) {
    let access = arena.frame().scratch(|frame| {
        let carve = frame.alloc(Undef::<u32, _>::new([8])).unwrap();
        carve.read_synchronized_with(stream).unwrap()
    });
    drop(access);
}

fn main() {}
