use cuda_buffer::{BufferResult, PinnedBuffer};

fn step(memory: &mut PinnedBuffer<u32>) -> BufferResult<()> {
    let written = memory.host_write()?;
    let read = memory.host_read()?;
    drop((written, read));
    Ok(())
}

fn main() {}
