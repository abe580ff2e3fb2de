use cuda_buffer::{BufferResult, CudaBuffer, DeviceData, acquire_all};
use cuda_runtime::Stream;

fn step(x: &mut CudaBuffer<u32>, stream: &Stream) -> BufferResult<()> {
    let both = acquire_all(stream, (x.write(), x.read()))?;
    drop(both);
    Ok(())
}

fn main() {}
