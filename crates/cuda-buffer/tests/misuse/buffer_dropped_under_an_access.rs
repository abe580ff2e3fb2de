use cuda_buffer::{BufferResult, CudaBuffer, DeviceData};
use cuda_runtime::Stream;

fn step(x: CudaBuffer<u32>, stream: &Stream) -> BufferResult<()> {
    let access = x.read_synchronized_with(stream)?;
    drop(x);
    access.release()?;
    Ok(())
}

fn main() {}
