use cuda_buffer::{BufferResult, CudaBuffer, DeviceData, Launch};
use cuda_driver::LaunchConfig;
use cuda_runtime::{Kernel, Stream};

fn step(kernel: &Kernel, x: &mut CudaBuffer<u32>, stream: &Stream) -> BufferResult<()> {
    let mut access = x.write_synchronized_with(stream)?;
    let config = LaunchConfig::for_elements(1).unwrap();
    kernel.launch(stream, config, (&mut access, &mut access))
}

fn main() {}
