use cuda_buffer::{BufferResult, CudaBuffer, DeviceData};
use cuda_runtime::Stream;

fn step(x: &mut CudaBuffer<f32>, one: &Stream, two: &Stream) -> BufferResult<()> {
    let mut view = x.view_mut();
    let mut first = view.write().slice(0..5)?;
    let second = view.write().slice(0..5)?;
    first.reborrow().copy_from_slice(&[0.0; 5])?;
    drop((first.synchronized_with(one)?, second.synchronized_with(two)?));
    Ok(())
}

fn main() {}
