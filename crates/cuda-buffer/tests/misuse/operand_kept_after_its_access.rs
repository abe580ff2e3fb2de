use cuda_buffer::{CudaBuffer, DeviceData, LaunchArg, Operand};
use cuda_runtime::Stream;

struct Smuggled<'g>(Operand<'g>);

impl LaunchArg for Smuggled<'_> {
    fn operand<'g>(self) -> Operand<'g>
    where
        Self: 'g,
    {
        self.0
    }
}

fn step(x: &mut CudaBuffer<u32>, stream: &Stream) {
    let mut access = x.write_synchronized_with(stream).unwrap();
    let operand = Smuggled((&mut access).operand());
    drop(access);
    operand.operand();
}

fn main() {}
