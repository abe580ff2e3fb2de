//! Host transfer: pooled page-locked memory, and copies that are awaited.

use crate::cases::raw;
use crate::kit::{N, Rig, block_on};
use cuda_buffer::{
    BufferError, CudaBuffer, DeviceData, OperandName, PinnedBuffer, PinnedPool, Rows,
};
use cuda_driver::{Call, Driver};
use cuda_runtime::RuntimeError;
use cuda_sim::SimDriver;
use proptest::prelude::*;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Blocks are used again while copies from them go on; order is kept, and nothing is allocated twice.
#[test]
fn pooled_memory_is_used_again_and_ordered() {
    for seed in 0..30 {
        let rig = Rig::seeded(seed, 3);
        let streams = rig.streams::<3>();
        let pool = PinnedPool::new(&rig.device());
        let mut devices: Vec<_> = (0..3)
            .map(|_| CudaBuffer::<u32>::new(&rig.device(), N).unwrap())
            .collect();
        let mut back = Vec::new();
        for round in 0..9_u32 {
            let at = round as usize % 3;
            {
                let mut batch = pool.buffer::<u32>(N).unwrap();
                batch.host_write().unwrap().fill(round);
                devices[at].copy_from_pinned(&batch, &streams[at]).unwrap();
            }
            let mut result = pool.buffer::<u32>(N).unwrap();
            devices[at]
                .copy_to_pinned(&mut result, &streams[at])
                .unwrap();
            if round < 6 {
                continue; // dropped while it is written
            }
            back.push((round, result));
        }
        for (round, result) in &back {
            assert_eq!(result.host_read().unwrap()[..], [*round; N]);
        }
        let counts = pool.counts();
        assert_eq!(counts.allocated + counts.reused, 18);
        assert!(counts.allocated <= 5, "{counts:?}");
        drop((back, devices, streams));
        assert_eq!(pool.counts().idle, counts.allocated);
        let bytes = pool.counts().idle_bytes;
        assert_eq!(bytes, counts.allocated * (4 * N).next_power_of_two());
        pool.trim();
        assert_eq!(pool.counts().idle, 0);
        drop(pool);
        rig.finish();
    }
}

#[test]
fn a_pool_keeps_what_it_was_told_to_and_outlives_nothing() {
    let rig = Rig::seeded(1, 1);
    let device = rig.device();
    let pool = PinnedPool::keeping(&device, 128);
    let buffers: Vec<_> = (0..4).map(|_| pool.buffer::<u8>(64).unwrap()).collect();
    let freed = |rig: &Rig| rig.sim.counters().snapshot().of(Call::MemFreeHost);
    assert_eq!(freed(&rig), 0);
    drop(buffers);
    assert_eq!((pool.counts().idle, freed(&rig)), (2, 2));
    // Not a block of another size.
    let other = pool.buffer::<u8>(65).unwrap();
    assert_eq!((pool.counts().allocated, pool.counts().reused), (5, 0));
    assert_eq!(pool.buffer::<u32>(0).unwrap().len(), 0);
    let error = pool.buffer::<u64>(usize::MAX / 8).unwrap_err();
    assert!(matches!(error, BufferError::SizeOverflow { .. }), "{error}");
    drop(pool);
    assert_eq!(freed(&rig), 4);
    drop(other);
    assert_eq!(freed(&rig), 5);
    drop(device);
    rig.finish();
}

/// Transfers that are awaited are ordered like any other, and a future that is dropped leaves nothing behind.
#[test]
fn copies_can_be_awaited() {
    for seed in 0..30 {
        let rig = Rig::new(SimDriver::builder().seed(seed), 2);
        let [s, t] = rig.streams();
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        let mut y = CudaBuffer::<u32>::new_on(&t, N).unwrap();
        let mut pinned = PinnedBuffer::<u32>::new(&rig.device(), N).unwrap();
        block_on(async {
            x.copy_from_slice_async(&[7; N]).await.unwrap();
            y.copy_from(&x, &t).unwrap();
            assert_eq!(y.to_vec_async().await.unwrap(), [7; N]);
            y.copy_to_pinned(&mut pinned, &t).unwrap();
            assert_eq!(pinned.host_read_async().await.unwrap()[..], [7; N]);
            pinned.host_write_async().await.unwrap().fill(8);
            x.copy_from_pinned(&pinned, &s).unwrap();
            x.synchronize_async().await.unwrap();
            let mut values = [0; N];
            x.copy_to_slice_async(&mut values).await.unwrap();
            assert_eq!(values, [8; N]);
            let wrong = x.copy_to_slice_async(&mut values[1..]).await;
            let (src, dst) = (N, N - 1);
            assert_eq!(wrong, Err(BufferError::LengthMismatch { src, dst }));
        });
        // Polled once and dropped: the access is back, and the copy is over before its memory is used again.
        let mut context = Context::from_waker(Waker::noop());
        x.fill(&s, 9).unwrap();
        x.copy_to_pinned(&mut pinned, &s).unwrap();
        {
            let first = pin!(pinned.host_write_async()).poll(&mut context);
            assert!(!matches!(first, Poll::Ready(Err(_))));
        }
        {
            let future = pin!(x.copy_from_slice_async(&[1; N]));
            let _ = future.poll(&mut context);
        }
        {
            let _ = pin!(y.to_vec_async()).poll(&mut context);
        }
        assert_eq!(pinned.host_read().unwrap()[..], [9; N]);
        assert_eq!(x.to_vec().unwrap(), [1; N]);
        drop((x, y, pinned, s, t));
        rig.finish();
    }
}

/// What a capture can't hold is refused when it is polled, and changes nothing.
#[test]
fn an_awaited_copy_is_refused_in_a_capture() {
    use cuda_buffer::CaptureStep;
    let rig = Rig::seeded(0, 1);
    let [stream] = rig.streams();
    let x = CudaBuffer::<u32>::from_slice(&rig.device(), &[1; N]).unwrap();
    let error = stream
        .capture(|_| block_on(x.to_vec_async()).map(drop))
        .unwrap_err();
    assert!(matches!(
        error,
        BufferError::Runtime(RuntimeError::CaptureActive { .. })
    ));
    assert_eq!(block_on(x.to_vec_async()).unwrap(), [1; N]);
    drop((x, stream));
    rig.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::kit::cases(60)))]

    /// Rows there, between, and back equal what the host does with them; what doesn't fit is refused with nothing changed.
    #[test]
    fn rows_are_copied_as_on_the_host(
        seed in any::<u64>(),
        (width, rows) in (0_usize..6, 0_usize..6),
        pitches in any::<[u8; 4]>(),
        len in 1_usize..40,
    ) {
        let rig = Rig::seeded(seed, 2);
        let [s, t] = rig.streams();
        let device = rig.device();
        let pitches = pitches.map(|pitch| usize::from(pitch % 8));
        let mut from = PinnedBuffer::<u32>::new(&device, len).unwrap();
        let mut host = from.host_write().unwrap();
        host.iter_mut().zip(1..).for_each(|(x, i)| *x = i);
        drop(host);
        let mut model: [Vec<u32>; 4] = [from.host_read().unwrap().to_vec(), vec![0; len], vec![0; len], vec![0; len]];
        let (mut x, mut y) = (CudaBuffer::from_slice(&device, &model[1]).unwrap(), CudaBuffer::from_slice(&device, &model[2]).unwrap());
        let mut to = PinnedBuffer::<u32>::new(&device, len).unwrap();
        for leg in 0..3 {
            let shape = Rows { width, rows, dst_pitch: pitches[leg + 1], src_pitch: pitches[leg] };
            let copied = match leg {
                0 => x.copy_rows_from_pinned(&from, shape, &s),
                1 => y.copy_rows_from(&x, shape, &t),
                _ => y.copy_rows_to_pinned(&mut to, shape, &s),
            };
            let empty = width == 0 || rows == 0;
            let fits = |pitch: usize| pitch >= width && (rows.max(1) - 1) * pitch + width <= len;
            prop_assert_eq!(copied.is_ok(), empty || (fits(shape.dst_pitch) && fits(shape.src_pitch)));
            if copied.is_ok() && !empty {
                for row in 0..rows {
                    let source = model[leg][row * shape.src_pitch..][..width].to_vec();
                    model[leg + 1][row * shape.dst_pitch..][..width].copy_from_slice(&source);
                }
            }
        }
        prop_assert_eq!(&x.to_vec().unwrap(), &model[1]);
        prop_assert_eq!(&y.to_vec().unwrap(), &model[2]);
        prop_assert_eq!(&to.host_read().unwrap()[..], &model[3][..]);
        drop((s, t, x, y, from, to, device));
        rig.finish();
    }
}

/// Rows nearer to each other than they are long, or farther apart than drivers count, don't reach the driver.
#[test]
fn pitches_that_cannot_be_are_told() {
    let rig = Rig::seeded(0, 1);
    let [s] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    x.fill(&s, 1).unwrap();
    let mut y = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    let before = rig.device().call_counts();
    // The farthest is 2^31 - 1 bytes.
    let far = (i32::MAX as usize) / 4 + 1;
    for (dst_pitch, src_pitch, pitch) in [
        (3, 4, 3),
        (4, 0, 0),
        (far, 4, far),
        (4, far, far),
        (usize::MAX / 4 + 2, 4, usize::MAX / 4 + 2),
    ] {
        let shape = Rows {
            width: 4,
            rows: 1,
            dst_pitch,
            src_pitch,
        };
        let refused = y.copy_rows_from(&x, shape, &s).unwrap_err();
        assert_eq!(refused, BufferError::BadPitch { pitch, width: 4 });
    }
    let shape = Rows {
        width: 4,
        rows: usize::MAX,
        dst_pitch: 4,
        src_pitch: 4,
    };
    let refused = y.copy_rows_from(&x, shape, &s).unwrap_err();
    assert!(
        matches!(refused, BufferError::OutOfBounds { len: N, .. }),
        "{refused}"
    );
    let calls = rig.device().call_counts() - before;
    assert_eq!(calls.of(Call::Memcpy2DAsync), 0);
    let shape = Rows {
        rows: 1,
        dst_pitch: far - 1,
        ..shape
    };
    y.copy_rows_from(&x, shape, &s).unwrap();
    drop((x, y, s));
    rig.finish();
}

/// Rows go to another device on a stream of either, and on no third one's.
#[test]
fn rows_go_to_another_device() {
    let rig = Rig::new(SimDriver::builder().devices(3).seed(5), 2);
    let [near, far, third] = rig.runtime.devices() else {
        panic!("three devices")
    };
    let values: Vec<u32> = (0..12).collect();
    let x = CudaBuffer::from_slice(near, &values).unwrap();
    let mut y = CudaBuffer::from_slice(far, &[99_u32; 12]).unwrap();
    let shape = Rows {
        width: 2,
        rows: 3,
        dst_pitch: 4,
        src_pitch: 3,
    };
    let there = far.streams().acquire().unwrap();
    for device in [near, far] {
        let stream = device.streams().acquire().unwrap();
        y.fill(&there, 99).unwrap();
        y.copy_rows_from(&x, shape, &stream).unwrap();
        let expected = [0, 1, 99, 99, 3, 4, 99, 99, 6, 7, 99, 99];
        assert_eq!(y.to_vec().unwrap(), expected);
    }
    let stream = third.streams().acquire().unwrap();
    let refused = y.copy_rows_from(&x, shape, &stream).unwrap_err();
    let wrong = RuntimeError::WrongDevice {
        expected: third.id(),
        given: far.id(),
    };
    let operand = OperandName::Destination;
    assert_eq!(
        refused,
        BufferError::OperandDevice {
            operand,
            error: wrong
        }
    );
    drop((x, y, stream, there));
    rig.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::kit::cases(40)))]

    /// Ordinary memory goes to rows and comes back from them; what does not fill rows, or passes the end, is refused unchanged.
    #[test]
    fn rows_and_ordinary_memory(
        seed in any::<u64>(),
        (width, pitch) in (0_usize..5, 0_usize..7),
        (len, count) in (0_usize..30, 0_usize..24),
    ) {
        let rig = Rig::seeded(seed, 1);
        let device = rig.device();
        let mut model: Vec<u32> = (0..len as u32).collect();
        let mut x = CudaBuffer::from_slice(&device, &model).unwrap();
        let host: Vec<u32> = (100..).take(count).collect();
        let rows = count.checked_div(width).unwrap_or(0);
        let whole = rows * width == count;
        let fits = count == 0 || (whole && pitch >= width && (rows - 1) * pitch + width <= len);
        let sent = x.write().copy_rows_from_slice(&host, width, pitch);
        prop_assert_eq!(sent.is_ok(), fits, "{:?}", sent);
        if fits {
            for (row, values) in host.chunks(width.max(1)).enumerate() {
                model[row * pitch..][..width].copy_from_slice(values);
            }
        }
        prop_assert_eq!(&x.to_vec().unwrap(), &model);
        let mut back = vec![7; count];
        prop_assert_eq!(x.read().copy_rows_to_slice(&mut back, width, pitch).is_ok(), fits);
        prop_assert_eq!(back, if fits { host } else { vec![7; count] });
        drop((x, device));
        rig.finish();
    }
}

/// A copy that must wait long, for a kernel that is not over, holds up none of another thread, nor any that is awaited.
#[test]
fn a_copy_that_waits_holds_up_no_other() {
    let rig = Rig::seeded(0, 1);
    let device = rig.device();
    let [s] = rig.streams();
    let mut slow = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    slow.fill(&s, 0).unwrap();
    s.synchronize().unwrap();
    let quick = CudaBuffer::<u32>::from_slice(&device, &[7; N]).unwrap();
    let name = raw(&s);
    rig.sim.hold_stream(name);
    slow.fill(&s, 1).unwrap();
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        // Should they be held up, or the test fail, they are not for ever.
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        let sim = rig.sim.clone();
        scope.spawn(move || {
            let _ = is_over.recv_timeout(Duration::from_secs(5));
            sim.release_stream(name);
        });
        let waits = scope.spawn({
            let (slow, device) = (&slow, &device);
            move || {
                tell.send(device.transfer_stream()).unwrap();
                slow.to_vec().unwrap()
            }
        });
        let busy = told.recv().unwrap();
        // With enough threads two have one stream: here another one.
        let (device, quick, busy) = (&device, &quick, busy.id());
        let copy = move || {
            let free = device.transfer_stream().id() != busy;
            free.then(|| quick.to_vec().unwrap())
        };
        let others = (0..20).map(|_| scope.spawn(copy).join().unwrap());
        assert_eq!(others.flatten().next(), Some(vec![7; N]));
        // Awaited: two on this thread, of which the first has to wait.
        let mut first = pin!(slow.to_vec_async());
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert_eq!(block_on(quick.to_vec_async()).unwrap(), [7; N]);
        assert!(!waits.is_finished());
        drop(over);
        assert_eq!(waits.join().unwrap(), [1; N]);
        assert_eq!(block_on(first).unwrap(), [1; N]);
    });
    drop((slow, quick, s, device));
    rig.finish();
}
