//! A runtime over a simulated device, and tensors with all kinds of layouts.

use cuda_buffer::DeviceData;
use cuda_runtime::{Device, Runtime, Stream};
use cuda_sim::SimDriver;
use ndarray::{ArrayD, ArrayViewD, Axis, IxDyn, Slice};
use proptest::prelude::*;
use tensor_cuda::{DynLayout, DynTensor};

pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) stream: Stream,
}

/// How many cases a test runs: `CARVE_CASES` times what it runs by default.
pub(crate) fn cases(default: u32) -> u32 {
    let times = std::env::var("CARVE_CASES").ok();
    default * times.and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// A runtime whose simulated device runs in the order of `seed`. Where the loader finds a driver, that is used: with the emulated one the
/// tests go the way of hardware, and products that of cuBLAS.
pub(crate) fn setup(seed: u64) -> Setup {
    let simulation = SimDriver::builder().seed(seed);
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    small_workspaces(&runtime);
    let stream = runtime.default_device().streams().acquire().unwrap();
    Setup { runtime, stream }
}

/// Whether the loader finds a driver with a GPU, and not the emulated one.
pub(crate) fn on_gpu() -> bool {
    #[cfg(feature = "cuda")]
    return !cuda_contract::emulated::is_there() && cuda_driver::hardware::open().is_ok();
    #[cfg(not(feature = "cuda"))]
    false
}

/// Makes workspaces of cuBLAS small, where products go through the emulated one: its driver fills whatever is allocated.
#[cfg(feature = "cuda")]
pub(crate) fn small_workspaces(runtime: &Runtime) {
    if runtime.simulation().is_some() || !cuda_contract::emulated::is_there() {
        return;
    }
    for device in runtime.devices() {
        if let Ok(small) = tensor_cuda::Cublas::builder()
            .workspace_bytes(4096)
            .open(device)
        {
            tensor_cuda::Blas::of(device).set_provider(std::sync::Arc::new(small));
        }
    }
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn small_workspaces(_: &Runtime) {}

/// Nothing was reported. All runtimes on a driver share one simulation, if it is simulated at all.
pub(crate) fn assert_no_reports(runtime: &Runtime) {
    match runtime.simulation() {
        Some(simulated) => simulated.assert_no_reports(),
        #[cfg(feature = "cuda")]
        None => assert_eq!(cuda_contract::emulated::take_reports(), 0),
        #[cfg(not(feature = "cuda"))]
        None => unreachable!("there is no other driver"),
    }
}

impl Setup {
    pub(crate) fn device(&self) -> &Device {
        self.runtime.default_device()
    }

    /// Nothing was reported and nothing is left.
    pub(crate) fn finish(self) {
        drop(self.stream);
        assert_nothing_is_left(self.runtime);
    }
}

/// Nothing was reported and, on a simulated device, nothing is left.
pub(crate) fn assert_nothing_is_left(runtime: Runtime) {
    assert_no_reports(&runtime);
    let Some(simulated) = runtime.simulation().cloned() else {
        return;
    };
    drop(runtime);
    simulated.assert_no_reports();
    let left = simulated.shutdown();
    assert!(left.is_empty(), "{left:?}");
}

/// How a view is cut from a tensor: permuted, and each dimension cut and stepped.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    order: Vec<usize>,
    /// Elements left out before and after, and the step.
    cuts: Vec<(usize, usize, isize)>,
}

/// Ways to cut a view of `rank` dimensions.
pub(crate) fn cut(rank: usize) -> impl Strategy<Value = Cut> {
    let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
    let step = prop::sample::select(vec![1_isize, 1, 1, -1, 2, -2, 3]);
    let cuts = prop::collection::vec((0_usize..2, 0_usize..2, step), rank);
    (order, cuts).prop_map(|(order, cuts)| Cut { order, cuts })
}

impl Cut {
    /// The extents of a tensor of which the cut view has `extents`.
    pub(crate) fn of(&self, extents: &[usize]) -> Vec<usize> {
        let mut whole = vec![0; extents.len()];
        for (i, (&axis, (before, after, step))) in self.order.iter().zip(&self.cuts).enumerate() {
            let used = match extents[i] {
                0 => 0,
                extent => (extent - 1) * step.unsigned_abs() + 1,
            };
            whole[axis] = before + used + after;
        }
        whole
    }

    pub(crate) fn layout(&self, layout: &DynLayout) -> DynLayout {
        let mut layout = layout.permuted(&self.order).unwrap();
        for (axis, &(before, after, step)) in self.cuts.iter().enumerate() {
            let end = layout.extents()[axis] - after;
            layout = layout.slice_step(axis, before..end, step).unwrap();
        }
        layout
    }

    pub(crate) fn view<'a, T>(&self, array: ArrayViewD<'a, T>) -> ArrayViewD<'a, T> {
        let mut view = array.permuted_axes(IxDyn(&self.order));
        for (axis, &(before, after, step)) in self.cuts.iter().enumerate() {
            let end = view.shape()[axis] - after;
            let slice = Slice::new(before as isize, Some(end as isize), step);
            view.slice_axis_inplace(Axis(axis), slice);
        }
        view
    }
}

/// An array of `extents` with elements from their positions.
pub(crate) fn numbered<T>(extents: &[usize], f: impl Fn(usize) -> T) -> ArrayD<T> {
    let mut i = 0;
    ArrayD::from_shape_simple_fn(extents, || {
        i += 1;
        f(i - 1)
    })
}

/// A host array, and a tensor that holds it.
pub(crate) struct Pair<T> {
    pub(crate) host: ArrayD<T>,
    pub(crate) tensor: DynTensor<T>,
}

/// A host array as a tensor.
pub(crate) fn pair<T: bytemuck::Pod>(device: &Device, host: ArrayD<T>) -> Pair<T> {
    let mut tensor = DynTensor::uninitialized(device, host.shape()).unwrap();
    tensor.copy_from_slice(host.as_slice().unwrap()).unwrap();
    Pair { host, tensor }
}
