//! Values that end with their thread, before or after what the crate keeps for the thread.

use crate::kit::{N, Rig};
use cuda_buffer::{CudaBuffer, DeviceData, PinnedBuffer, SharedCudaBuffer};
use cuda_runtime::{Device, Stream};
use std::cell::RefCell;

/// All that a thread may have when it ends. What is used in `drop` is used after most of the thread's own memory has ended.
struct Left {
    device: Device,
    stream: Stream,
    own: CudaBuffer<u32>,
    shared: SharedCudaBuffer<u32>,
    pinned: PinnedBuffer<u32>,
}

impl Drop for Left {
    fn drop(&mut self) {
        let Self {
            device,
            stream,
            own,
            shared,
            pinned,
        } = self;
        own.fill(stream, 3).unwrap();
        let mut made = CudaBuffer::<u32>::new_on(stream, N).unwrap();
        made.copy_from(&*own, stream).unwrap();
        made.copy_to_pinned(&mut *pinned, stream).unwrap();
        assert_eq!(pinned.host_read().unwrap()[..], [3; N]);
        assert_eq!(made.to_vec().unwrap(), [3; N]);
        let read = shared.read().synchronized_with(stream).unwrap();
        let other = device.streams().acquire().unwrap();
        let also = shared.read().synchronized_with(&other).unwrap();
        drop((read, also, other, made));
    }
}

thread_local! {
    static FIRST: RefCell<Option<Left>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<Left>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_may_end_with_all_it_has() {
    let rig = Rig::seeded(5, 8);
    let device = rig.device();
    let [stream] = rig.streams();
    let mut shared = CudaBuffer::<u32>::new_on(&stream, N).unwrap();
    shared.fill(&stream, 1).unwrap();
    let shared = SharedCudaBuffer::from(shared);
    let left = || {
        let stream = device.streams().acquire().unwrap();
        Left {
            own: CudaBuffer::new_on(&stream, N).unwrap(),
            pinned: PinnedBuffer::new(&device, N).unwrap(),
            device: device.clone(),
            shared: shared.clone(),
            stream,
        }
    };
    std::thread::scope(|scope| {
        let run = || {
            // Those that are touched first end last.
            FIRST.with(|first| assert!(first.borrow().is_none()));
            let value = left();
            drop(CudaBuffer::<u32>::new(&device, N).unwrap());
            FIRST.set(Some(value));
            LAST.set(Some(left()));
        };
        // Joined by themselves: what a thread had ends after its function.
        let threads = [(); 2].map(|()| scope.spawn(run));
        for thread in threads {
            thread.join().unwrap();
        }
    });
    drop((shared, stream, device));
    rig.finish();
}
