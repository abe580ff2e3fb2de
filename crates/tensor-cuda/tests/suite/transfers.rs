//! Copies between host and devices, from and into any layout, in any order of the device.

use crate::common::{Cut, cut, numbered, pair, setup};
use cuda_buffer::{CaptureStep, DeviceData, PinnedBuffer};
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use ndarray::{Array2, array};
use num_complex::Complex;
use proptest::prelude::*;
use tensor_cuda::{
    CudaTensor, Layout, TensorError, TensorView, TensorViewMut, copy, copy_from_ndarray,
    copy_from_pinned, copy_to_pinned, to_ndarray,
};

fn exchange<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(
    extents: [usize; 3],
    [cut_device, cut_host]: [&Cut; 2],
    seed: u64,
    value: impl Fn(usize) -> T,
) {
    let setup = setup(seed);
    let device = setup.device();
    let mut tensor = pair(device, numbered(&cut_device.of(&extents), &value));
    let layout = Layout::<3>::try_from(&cut_device.layout(tensor.tensor.layout())).unwrap();
    // A host array of any layout.
    let numbers = numbered(&cut_host.of(&extents), |i| i);
    let hosts = [60, 130].map(|offset| numbers.mapv(|i| value(i + offset)));
    let [first, second] = hosts.each_ref().map(|host| {
        let view = cut_host.view(host.view());
        view.into_dimensionality::<ndarray::Ix3>().unwrap()
    });
    let mut expected = tensor.host.clone();
    let positions = numbered(expected.shape(), |i| i);
    let mut write = |host: &ndarray::ArrayView3<'_, T>| {
        let flat = expected.as_slice_mut().unwrap();
        for (&at, &value) in cut_device.view(positions.view()).iter().zip(host) {
            flat[at] = value;
        }
        flat.to_vec()
    };
    copy_from_ndarray(
        TensorViewMut::over(tensor.tensor.write(), layout).unwrap(),
        &first,
    )
    .unwrap();
    assert_eq!(tensor.tensor.to_vec().unwrap(), write(&first));
    let view = TensorView::over(tensor.tensor.read(), layout).unwrap();
    assert_eq!(to_ndarray(view).unwrap(), first);

    let mut pinned = PinnedBuffer::<T>::new(device, second.len()).unwrap();
    for (to, from) in pinned.host_write().unwrap().iter_mut().zip(&second) {
        *to = *from;
    }
    let out = TensorViewMut::over(tensor.tensor.write(), layout).unwrap();
    copy_from_pinned(&setup.stream, out, &pinned).unwrap();
    assert_eq!(tensor.tensor.to_vec().unwrap(), write(&second));
    let mut back = PinnedBuffer::<T>::new(device, second.len()).unwrap();
    let view = TensorView::over(tensor.tensor.read(), layout).unwrap();
    copy_to_pinned(&setup.stream, &mut back, view).unwrap();
    assert_eq!(
        back.host_read().unwrap().to_vec(),
        second.iter().copied().collect::<Vec<_>>()
    );
    drop((tensor, pinned, back));
    setup.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(96)))]

    /// Into a part of a tensor and out of it, through ordinary and page-locked memory, with elements of every size.
    #[test]
    fn host_and_device_exchange_parts(
        extents in prop::array::uniform3(0_usize..4),
        cut_device in cut(3),
        cut_host in cut(3),
        seed in any::<u64>(),
    ) {
        let cuts = [&cut_device, &cut_host];
        exchange(extents, cuts, seed, |i| i as u8);
        exchange(extents, cuts, seed, |i| i as i16);
        exchange(extents, cuts, seed, |i| i as u32);
        exchange(extents, cuts, seed, |i| i as f64);
        exchange(extents, cuts, seed, |i| Complex::new(i as f64, -1.5));
    }

    /// Between devices, with a stream of either.
    #[test]
    fn devices_exchange_parts(
        extents in prop::array::uniform2(0_usize..5),
        cuts in [cut(2), cut(2)],
        at_source in any::<bool>(),
        conjugated in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let simulation = SimDriver::builder().devices(2).seed(seed);
        let runtime = Runtime::builder().simulation(simulation).build().unwrap();
        let [here, there] = runtime.devices() else { panic!() };
        let stream = if at_source { here } else { there }.streams().acquire().unwrap();
        let value = |i: usize| Complex::new(i as f32, -(i as f32));
        let from = pair(here, numbered(&cuts[0].of(&extents), value));
        let mut to = pair(there, numbered(&cuts[1].of(&extents), |i| value(i + 500)));
        let of_from = Layout::<2>::try_from(&cuts[0].layout(from.tensor.layout())).unwrap();
        let of_to = Layout::<2>::try_from(&cuts[1].layout(to.tensor.layout())).unwrap();
        let view = TensorView::over(from.tensor.read(), of_from).unwrap();
        let view = if conjugated { view.conjugated() } else { view };
        copy(&stream, TensorViewMut::over(to.tensor.write(), of_to).unwrap(), view).unwrap();
        let mut expected = to.host.clone();
        let positions = numbered(expected.shape(), |i| i);
        let flat = expected.as_slice_mut().unwrap();
        for (&at, &value) in cuts[1].view(positions.view()).iter().zip(&cuts[0].view(from.host.view())) {
            flat[at] = if conjugated { value.conj() } else { value };
        }
        prop_assert_eq!(to.tensor.to_vec().unwrap(), expected.as_slice().unwrap());
        drop((from, to, stream));
        crate::common::assert_nothing_is_left(runtime);
    }
}

#[test]
fn what_lies_alike_is_one_copy() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let a = CudaTensor::full(stream, [4, 4], 1.0_f32).unwrap();
    let mut b = CudaTensor::<f32, 2>::uninitialized_on(stream, [4, 4]).unwrap();
    let counted = |f: &mut dyn FnMut()| {
        let before = device.call_counts();
        f();
        device.call_counts() - before
    };
    use cuda_driver::Call;
    let made =
        counted(&mut || copy(stream, b.view_mut().transposed(), a.view().transposed()).unwrap());
    assert_eq!(
        (made.of(Call::MemcpyDtoDAsync), made.of(Call::LaunchKernel)),
        (1, 0)
    );
    let rows = |view: TensorView<'_, f32, 2>| view.slice(0, 1..3).unwrap().layout().span();
    assert_eq!(rows(a.view()), 4..12);
    let made = counted(&mut || {
        let part = b.view_mut().slice(0, 1..3).unwrap();
        copy(stream, part, a.view().slice(0, 0..2).unwrap()).unwrap();
    });
    assert_eq!(
        (made.of(Call::MemcpyDtoDAsync), made.of(Call::LaunchKernel)),
        (1, 0)
    );
    let made = counted(&mut || copy(stream, &mut b, a.view().transposed()).unwrap());
    assert_eq!(
        (made.of(Call::MemcpyDtoDAsync), made.of(Call::LaunchKernel)),
        (0, 1)
    );
    assert_eq!(b.to_ndarray().unwrap(), Array2::ones((4, 4)));
    drop((a, b));
    setup.finish();
}

/// What a conjugated view stands for arrives on the host: of a run, of rows, and of what lies in another way.
#[test]
fn conjugates_arrive_as_what_they_stand_for() {
    let setup = setup(1);
    let stream = &setup.stream;
    let host = Array2::from_shape_fn((3, 4), |(i, j)| Complex::new(i as f64, j as f64 + 1.0));
    let tensor = CudaTensor::from_ndarray(setup.device(), &host.view()).unwrap();
    let run = tensor.view().conjugated();
    let views = [
        run.slice(0, 0..2),
        run.slice(1, 1..3),
        run.slice_step(1, 0..4, -2),
    ];
    let rows = host.mapv(|x| x.conj());
    let expected = [
        rows.slice(ndarray::s![..2, ..]),
        rows.slice(ndarray::s![.., 1..3]),
        rows.slice(ndarray::s![.., ..;-2]),
    ];
    for (view, expected) in views.into_iter().zip(expected) {
        let view = view.unwrap();
        assert_eq!(to_ndarray(view).unwrap(), expected);
        let mut pinned = PinnedBuffer::new(setup.device(), view.len()).unwrap();
        copy_to_pinned(stream, &mut pinned, view).unwrap();
        let arrived = pinned.host_read().unwrap().to_vec();
        assert_eq!(arrived, expected.iter().copied().collect::<Vec<_>>());
        // Twice conjugated is what was there.
        assert_eq!(
            to_ndarray(view.conjugated()).unwrap(),
            expected.mapv(|x| x.conj())
        );
    }
    drop(tensor);
    setup.finish();
}

/// Rows of a larger matrix go in one two-dimensional copy, without scratch memory or a kernel; in a capture, too.
#[test]
fn rows_are_one_copy_without_scratch_memory() {
    use cuda_driver::Call;
    let setup = setup(2);
    let (device, stream) = (setup.device(), &setup.stream);
    let host = Array2::from_shape_fn((4, 6), |(i, j)| (i * 6 + j) as f32);
    let mut tensor = CudaTensor::from_ndarray(device, &host.view()).unwrap();
    let part = array![[70.0_f32, 71.0, 72.0], [80.0, 81.0, 82.0]];
    let mut pinned = PinnedBuffer::<f32>::new(device, 6).unwrap();
    pinned
        .host_write()
        .unwrap()
        .copy_from_slice(part.as_slice().unwrap());
    macro_rules! part {
        ($view:expr) => {
            $view
                .slice_step(0, 0..4, 3)
                .unwrap()
                .slice(1, 2..5)
                .unwrap()
        };
    }
    let counted = |f: &mut dyn FnMut()| {
        let before = device.call_counts();
        f();
        let made = device.call_counts() - before;
        let allocated = made.of(Call::MemAllocFromPoolAsync) + made.of(Call::MemAlloc);
        assert_eq!((made.of(Call::LaunchKernel), allocated), (0, 0), "{made}");
        made.of(Call::Memcpy2DAsync)
    };
    assert_eq!(
        counted(&mut || copy_from_pinned(stream, part!(tensor.view_mut()), &pinned).unwrap()),
        1
    );
    assert_eq!(
        counted(&mut || copy_to_pinned(stream, &mut pinned, part!(tensor.view())).unwrap()),
        1
    );
    assert_eq!(*pinned.host_read().unwrap(), *part.as_slice().unwrap());
    assert_eq!(
        counted(
            &mut || copy_from_ndarray(part!(tensor.view_mut()), &(&part + 1.0).view()).unwrap()
        ),
        1
    );
    let mut back = Array2::zeros((0, 0));
    assert_eq!(
        counted(&mut || back = to_ndarray(part!(tensor.view())).unwrap()),
        1
    );
    assert_eq!(back, &part + 1.0);
    let mut expected = host.clone();
    for ((i, j), x) in part.indexed_iter() {
        expected[[3 * i, 2 + j]] = x + 1.0;
    }
    assert_eq!(tensor.to_ndarray().unwrap(), expected);
    let graph = stream
        .capture(|_| copy_from_pinned(stream, part!(tensor.view_mut()), &pinned))
        .unwrap();
    graph.launch(stream).unwrap();
    assert_eq!(to_ndarray(part!(tensor.view())).unwrap(), part);
    // Columns backwards, and a transpose, need a kernel and room.
    let before = device.call_counts();
    copy_to_pinned(
        stream,
        &mut pinned,
        part!(tensor.view()).reversed(1).unwrap(),
    )
    .unwrap();
    let made = device.call_counts() - before;
    assert_eq!(
        (made.of(Call::LaunchKernel), made.of(Call::Memcpy2DAsync)),
        (1, 0)
    );
    assert_eq!(pinned.host_read().unwrap()[..3], [72.0, 71.0, 70.0]);
    drop((tensor, pinned, graph));
    setup.finish();
}

#[test]
fn host_copies_are_checked_and_refused_in_a_capture() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let mut tensor = CudaTensor::<i16, 2>::zeros(stream, [2, 3]).unwrap();
    let wrong = array![[1_i16, 2], [3, 4]];
    let error = copy_from_ndarray(&mut tensor, &wrong.view()).unwrap_err();
    assert!(
        matches!(
            error,
            TensorError::ShapeMismatch {
                operand: "array",
                ..
            }
        ),
        "{error}"
    );
    let row = tensor
        .view_mut()
        .slice(0, 0..1)
        .unwrap()
        .broadcast([2, 3])
        .unwrap();
    let error = copy_from_ndarray(row, &array![[1, 2, 3], [4, 5, 6]].view()).unwrap_err();
    assert!(
        matches!(error, TensorError::OverlappingWrite { .. }),
        "{error}"
    );
    let short = PinnedBuffer::<i16>::new(device, 5).unwrap();
    for view in [tensor.layout().transposed(), *tensor.layout()] {
        let out = TensorViewMut::over(tensor.write(), view).unwrap();
        let error = copy_from_pinned(stream, out, &short).unwrap_err();
        assert!(
            error.to_string().contains('5') && error.to_string().contains('6'),
            "{error}"
        );
    }
    let refused = stream
        .capture(|_| to_ndarray(&tensor).map(drop))
        .unwrap_err();
    assert!(refused.to_string().contains("captur"), "{refused}");
    assert_eq!(tensor.to_ndarray().unwrap(), Array2::<i16>::zeros((2, 3)));
    drop((tensor, short));
    setup.finish();
}

// chelsea0x3b/cudarc#340: page-locked memory stays as it is until a copy that changes the layout has read it.
#[test]
fn page_locked_memory_waits_for_copies_that_change_the_layout() {
    for seed in 0..20 {
        let setup = setup(seed);
        let mut pinned = PinnedBuffer::<f32>::new(setup.device(), 10_000).unwrap();
        pinned.host_write().unwrap().fill(1.0);
        let mut tensor = CudaTensor::<f32, 2>::uninitialized(setup.device(), [100, 100]).unwrap();
        copy_from_pinned(&setup.stream, tensor.view_mut().transposed(), &pinned).unwrap();
        // Waits for the copy.
        pinned.host_write().unwrap().fill(2.0);
        assert_eq!(tensor.to_ndarray().unwrap(), Array2::ones((100, 100)));
        drop((tensor, pinned));
        setup.finish();
    }
}

/// Work on the other device's own stream would run once, at the capture, and be missing from every replay.
#[test]
fn a_capture_refuses_to_change_the_layout_on_another_device() {
    let simulation = SimDriver::builder().devices(2);
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    let [here, there] = runtime.devices() else {
        panic!()
    };
    let stream = here.streams().acquire().unwrap();
    let a = CudaTensor::<f32, 2>::zeros(&stream, [3, 3]).unwrap();
    let mut b = CudaTensor::<f32, 2>::uninitialized(there, [3, 3]).unwrap();
    let refused = stream.capture(|_| copy(&stream, b.view_mut().transposed(), &a));
    assert!(refused.unwrap_err().to_string().contains("captur"));
    let graph = stream.capture(|_| copy(&stream, &mut b, &a)).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(b.to_ndarray().unwrap(), Array2::<f32>::zeros((3, 3)));
    copy(&stream, b.view_mut().transposed(), &a).unwrap();
    crate::common::assert_no_reports(&runtime);
}

/// The copy is queued at once, and the host awaits its end.
#[test]
fn a_copy_to_page_locked_memory_can_be_awaited() {
    let setup = setup(11);
    let stream = &setup.stream;
    let host = array![[1_i32, 2], [3, 4]];
    let tensor = CudaTensor::from_ndarray(setup.device(), &host.view()).unwrap();
    let mut pinned = PinnedBuffer::<i32>::new(setup.device(), 4).unwrap();
    copy_to_pinned(stream, &mut pinned, tensor.view().transposed()).unwrap();
    let read = block_on(async { pinned.host_read_async().await.map(|read| read.to_vec()) });
    assert_eq!(read.unwrap(), [1, 3, 2, 4]);
    let values = block_on(tensor.to_vec_async()).unwrap();
    assert_eq!(values, [1, 2, 3, 4]);
    drop((tensor, pinned));
    setup.finish();
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}
