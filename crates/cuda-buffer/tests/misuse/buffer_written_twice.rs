use cuda_buffer::{BufferResult, CudaBuffer, DeviceData};
use cuda_runtime::Stream;

fn step(x: &mut CudaBuffer<u32>, stream: &Stream) -> BufferResult<()> {
    let first = x.write_synchronized_with(stream)?;
    let second = x.write_synchronized_with(stream)?;
    drop((first, second));
    Ok(())
}

fn main() {}
