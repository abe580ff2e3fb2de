use cuda_buffer::{BufferResult, CudaBuffer, DeviceData};
use cuda_runtime::Stream;

fn step(x: &mut CudaBuffer<u32>, stream: &Stream) -> BufferResult<()> {
    let access = x.write_synchronized_with(stream)?;
    let slice = access.as_slice();
    drop(access);
    println!("{}", slice.len());
    Ok(())
}

fn main() {}
