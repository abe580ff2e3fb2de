//! New tensors, packed tensors, tensors of a rank known at run time, and tensors as arrays of spaces.

use crate::common::setup;
use cuda_buffer::{DeviceArena, DeviceData, DeviceMemory, DeviceSlab, DeviceSpace};
use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use ndarray::{Array1, Array2, Array3, array};
use num_complex::Complex;
use proptest::prelude::*;
use space_arena::{Allocating, Made, MadeInFrame, Mutate, Verb};
use space_core::{Alignment, Block, Similar, Space, Undef};
use tensor_cuda::{
    CudaTensor, DynTensor, IntoView, Layout, TensorError, TensorViewMut, assign_product, copy,
    fill, matmul, sum, to_ndarray,
};

#[test]
fn new_tensors_hold_what_they_say() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let before = device.call_counts();
    let zeros = CudaTensor::<Complex<f64>, 2>::new(device, [2, 3]).unwrap();
    // Filled on a leased stream: nobody waited.
    let made = device.call_counts() - before;
    assert_eq!(
        made.of(Call::StreamSynchronize)
            + made.of(Call::CtxSynchronize)
            + made.of(Call::EventSynchronize),
        0
    );
    assert_eq!(
        zeros.to_ndarray().unwrap(),
        Array2::from_elem((2, 3), Complex::new(0.0, 0.0))
    );
    let padded = Layout::row_major_padded([2, 2], 4).unwrap();
    let padded = CudaTensor::<u8, 2>::zeros_with(stream, padded).unwrap();
    assert_eq!(padded.to_vec().unwrap(), [0; 6]);
    let full = CudaTensor::full(stream, [3], Complex::new(1.5_f64, -2.5)).unwrap();
    assert_eq!(
        full.to_ndarray().unwrap().to_vec(),
        [Complex::new(1.5, -2.5); 3]
    );
    let bytes = CudaTensor::full(stream, [5], 7_u8).unwrap();
    assert_eq!(bytes.to_ndarray().unwrap().to_vec(), [7; 5]);
    let none = CudaTensor::<f32, 3>::new(device, [2, 0, 3]).unwrap();
    assert_eq!(none.to_ndarray().unwrap(), Array3::<f32>::zeros((2, 0, 3)));
    let scalar = CudaTensor::full(stream, [], 4_i64).unwrap();
    assert_eq!(scalar.to_ndarray().unwrap()[()], 4);
    let twin = full.duplicate(stream).unwrap();
    assert_ne!(twin.buffer().domain_id(), full.buffer().domain_id());
    assert_eq!(twin.to_ndarray().unwrap(), full.to_ndarray().unwrap());
    drop((zeros, padded, full, bytes, none, scalar, twin));
    setup.finish();
}

/// Case 7 (NVlabs/cuda-oxide#252): sizes that wrap are refused before anything is asked of the driver, whatever makes the
/// tensor; sizes that are merely too large for the device are refused by it.
#[test]
fn case_07_sizes_that_wrap_are_refused() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let before = device.call_counts();
    for extents in [
        [(1 << 61) + 1, 1],
        [1 << 33, 1 << 33],
        [1 << 62, 4],
        [1 << 60, 1],
    ] {
        for error in [
            CudaTensor::<f64, 2>::new(device, extents).map(drop),
            CudaTensor::<f64, 2>::zeros(stream, extents).map(drop),
            CudaTensor::<f64, 2>::uninitialized(device, extents).map(drop),
            CudaTensor::full(stream, extents, 1.0_f64).map(drop),
        ] {
            let error = error.unwrap_err();
            let counted = matches!(error, TensorError::TooLarge { .. });
            assert!(counted || error.to_string().contains("8 bytes"), "{error}");
        }
    }
    assert_eq!((device.call_counts() - before).total(), 0);
    let merely_large = CudaTensor::<f64, 2>::uninitialized(device, [1 << 20, 1 << 20]).unwrap_err();
    let told = merely_large.to_string();
    assert!(told.contains(&(1_u64 << 43).to_string()), "{told}");
    setup.finish();
}

#[cfg(not(feature = "snan-fill"))]
#[test]
fn reading_what_was_never_written_is_reported() {
    let runtime = Runtime::builder().build().unwrap();
    let Some(simulated) = runtime.simulation() else {
        return; // Hardware reports nothing.
    };
    let tensor = CudaTensor::<f32, 2>::uninitialized(runtime.default_device(), [2, 2]).unwrap();
    let _ = tensor.to_ndarray();
    assert!(!simulated.reports().is_empty());
}

#[cfg(feature = "snan-fill")]
#[test]
fn uninitialised_numbers_are_signalling_nans_to_the_bit() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    const SINGLE: u32 = 0x7fa0_0000;
    const DOUBLE: u64 = 0x7ff4_0000_0000_0000;
    fn bits<T: bytemuck::Pod, U: bytemuck::Pod>(tensor: &CudaTensor<T, 2>) -> Vec<U> {
        bytemuck::cast_slice(&tensor.to_vec().unwrap()).to_vec()
    }
    assert_eq!(
        bits::<f32, u32>(&CudaTensor::uninitialized(device, [2, 3]).unwrap()),
        [SINGLE; 6]
    );
    assert_eq!(
        bits::<f64, u64>(&CudaTensor::uninitialized_on(stream, [2, 3]).unwrap()),
        [DOUBLE; 6]
    );
    assert_eq!(
        bits::<Complex<f32>, u32>(&CudaTensor::uninitialized(device, [1, 2]).unwrap()),
        [SINGLE; 4]
    );
    assert_eq!(
        bits::<Complex<f64>, u64>(&CudaTensor::uninitialized(device, [1, 2]).unwrap()),
        [DOUBLE; 4]
    );
    setup.finish();
    // Other types get none: a read of theirs is still found.
    let runtime = Runtime::builder().build().unwrap();
    let tensor = CudaTensor::<u32, 1>::uninitialized(runtime.default_device(), [2]).unwrap();
    let _ = tensor.to_ndarray();
    assert!(!runtime.simulation().unwrap().reports().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::cases(48)))]

    /// New tensors of any layout, over their whole memory, and copies of them in row-major order.
    #[test]
    fn new_tensors_of_any_layout(
        extents in prop::array::uniform3(0_usize..4),
        cut in crate::common::cut(3),
        seed in any::<u64>(),
    ) {
        let setup = setup(seed);
        let (device, stream) = (setup.device(), &setup.stream);
        let whole = tensor_cuda::DynLayout::row_major(&cut.of(&extents)).unwrap();
        let layout = Layout::<3>::try_from(&cut.layout(&whole)).unwrap();
        let zeros = CudaTensor::<f32, 3>::zeros_with(stream, layout).unwrap();
        prop_assert_eq!(zeros.to_ndarray().unwrap(), Array3::<f32>::zeros(extents));
        prop_assert!(zeros.to_vec().unwrap().iter().all(|&x| x == 0.0));
        let host = Array3::from_shape_fn(extents, |(i, j, k)| (i * 20 + j * 5 + k) as f32);
        let mut tensor = CudaTensor::<f32, 3>::uninitialized_with(device, layout).unwrap();
        tensor_cuda::copy_from_ndarray(&mut tensor, &host.view()).unwrap();
        prop_assert_eq!(&tensor.to_ndarray().unwrap(), &host);
        let twin = tensor.duplicate(stream).unwrap();
        prop_assert!(twin.layout().is_row_major());
        prop_assert_eq!(&twin.to_vec().unwrap(), &host.iter().copied().collect::<Vec<_>>());
        let full = CudaTensor::full(stream, extents, 2.5_f32).unwrap();
        prop_assert_eq!(full.to_ndarray().unwrap(), Array3::from_elem(extents, 2.5));
        let from = CudaTensor::from_ndarray(device, &host.view().permuted_axes([2, 0, 1])).unwrap();
        prop_assert_eq!(from.to_ndarray().unwrap(), host.view().permuted_axes([2, 0, 1]));
        drop((zeros, tensor, twin, full, from));
        setup.finish();
    }
}

/// A diagonal, rows that are repeated, one index, and other extents: read and written on the device as they are named.
#[test]
fn operations_take_every_kind_of_view() {
    let setup = setup(4);
    let (device, stream) = (setup.device(), &setup.stream);
    let host = Array3::from_shape_fn((2, 3, 3), |(i, j, k)| (i * 9 + j * 3 + k) as f32);
    let mut x = CudaTensor::from_ndarray(device, &host.view()).unwrap();
    let diagonals = to_ndarray(x.view().diagonal::<2>(1, 2).unwrap()).unwrap();
    assert_eq!(diagonals, array![[0.0, 4.0, 8.0], [9.0, 13.0, 17.0]]);
    fill(
        stream,
        x.view_mut()
            .at::<2>(0, 1)
            .unwrap()
            .diagonal::<1>(0, 1)
            .unwrap(),
        -1.0,
    )
    .unwrap();
    let mut traces = CudaTensor::<f32, 1>::uninitialized(device, [2]).unwrap();
    sum(
        stream,
        &mut traces,
        x.view().diagonal::<2>(1, 2).unwrap(),
        [1],
    )
    .unwrap();
    assert_eq!(traces.to_vec().unwrap(), [12.0, -3.0]);
    let bias = x.view().at::<2>(0, 0).unwrap().at::<1>(0, 1).unwrap();
    let mut sums = CudaTensor::<f32, 2>::uninitialized(device, [6, 3]).unwrap();
    let rows = x.view().reshaped([6, 3]).unwrap();
    tensor_cuda::add(stream, &mut sums, rows, bias.broadcast([6, 3]).unwrap()).unwrap();
    let expected = x
        .to_ndarray()
        .unwrap()
        .into_shape_with_order((6, 3))
        .unwrap()
        + array![3.0, 4.0, 5.0];
    assert_eq!(sums.to_ndarray().unwrap(), expected);
    drop((x, traces, sums));
    setup.finish();
}

#[test]
fn ranks_change_between_compile_time_and_run_time() {
    let setup = setup(0);
    let device = setup.device();
    let host = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 12 + j * 4 + k) as u16);
    let tensor = DynTensor::from(CudaTensor::from_ndarray(device, &host.view()).unwrap());
    assert_eq!(
        (tensor.extents(), tensor.layout().rank()),
        (&[2, 3, 4][..], 3)
    );
    let layout = tensor
        .layout()
        .permuted(&[2, 0, 1])
        .unwrap()
        .slice_step(0, 0..4, -3)
        .unwrap();
    let tensor = tensor
        .with_layout(layout)
        .map_err(|refused| refused.error)
        .unwrap();
    let expected = host
        .view()
        .permuted_axes([2, 0, 1])
        .slice_move(ndarray::s![..;-3, .., ..])
        .to_owned();
    assert_eq!(to_ndarray(tensor.view::<3>().unwrap()).unwrap(), expected);
    let (tensor, error) = tensor
        .into_ranked::<2>()
        .map(drop)
        .unwrap_err()
        .into_parts();
    assert!(
        matches!(
            error,
            TensorError::RankMismatch {
                given: 3,
                expected: 2
            }
        ),
        "{error}"
    );
    let ranked = tensor
        .into_ranked::<3>()
        .map_err(|refused| refused.error)
        .unwrap();
    assert_eq!(ranked.to_ndarray().unwrap(), expected);
    let (ranked, error) = ranked.reshaped([12]).map(drop).unwrap_err().into_parts();
    assert!(
        matches!(error, TensorError::CannotReshape { .. }),
        "{error}"
    );
    drop(ranked);
    setup.finish();
}

/// A step that knows only its space: results from it, scratch from its frames.
fn step<S>(
    space: &mut S,
    stream: &cuda_runtime::Stream,
    x: &CudaTensor<f32, 2>,
) -> Result<Array1<f32>, TensorError>
where
    S: Space<Family = DeviceMemory>,
{
    space.scratch(|frame| {
        let mut turned = frame.alloc(Undef::<f32, _>::new([x.extents()[1], x.extents()[0]]))?;
        copy(stream, &mut turned, x.view().transposed())?;
        let mut twin = frame.alloc(Undef::like(x))?;
        copy(stream, &mut twin, x)?;
        let product = matmul(stream, &twin, &turned);
        let rows = match product {
            Ok(product) => {
                let mut rows = frame.alloc(Undef::<f32, _>::new([product.extents()[0]]))?;
                sum(stream, &mut rows, &product, [1])?;
                to_ndarray(&rows)?
            }
            Err(error) => return Err(error),
        };
        Ok(rows)
    })
}

#[test]
fn tensors_are_the_arrays_of_device_spaces() {
    let setup = setup(5);
    let (device, stream) = (setup.device(), &setup.stream);
    let x = CudaTensor::from_ndarray(
        device,
        &array![[1.0_f32, 2.0], [3.0, 4.0], [5.0, 6.0]].view(),
    )
    .unwrap();
    let expected = array![33.0, 75.0, 117.0];
    assert_eq!(step(&mut Similar::to(&x), stream, &x).unwrap(), expected);
    let mut meter = space_arena::Meter::new(DeviceSpace::of(device));
    assert_eq!(step(&mut meter, stream, &x).unwrap(), expected);
    let slab = DeviceSlab::new(device, meter.arena_bytes()).unwrap();
    let mut arena = DeviceArena::over(slab).unwrap();
    assert_eq!(step(&mut arena.frame(), stream, &x).unwrap(), expected);
    assert_eq!(arena.offset(), 0);
    // An array that owns its memory, like the tensor.
    let mut like = Similar::to(&x).alloc(Undef::like(&x)).unwrap();
    copy(stream, &mut like, &x).unwrap();
    assert_eq!((&like).into_view().extents(), [3, 2]);
    assert_eq!(to_ndarray(&like).unwrap(), x.to_ndarray().unwrap());
    drop((arena, meter, like, x));
    setup.finish();
}

#[test]
fn elements_less_aligned_than_kernels_take_them_are_refused() {
    let setup = setup(0);
    let (device, stream) = (setup.device(), &setup.stream);
    let slab = DeviceSlab::new(device, 4096).unwrap();
    // Each carve at its element type's own alignment.
    let arena = DeviceArena::aligned(slab, Alignment::new(1).unwrap()).unwrap();
    let odd = arena.alloc(Undef::<u8, _>::new([1])).unwrap();
    let mut bytes = arena.alloc(Undef::<[u8; 4], _>::new([2])).unwrap();
    let two = arena.alloc(Undef::<f32, _>::new([2])).unwrap();
    let mut floats = arena.alloc(Undef::<[f32; 4], _>::new([2])).unwrap();
    let refused = [
        fill(stream, &mut bytes, [1; 4]).unwrap_err(),
        fill(stream, &mut floats, [1.0; 4]).unwrap_err(),
    ];
    for (error, align) in refused.iter().zip([4, 8]) {
        assert!(
            matches!(error, TensorError::Misaligned { operand: "out", align_bytes, .. } if *align_bytes == align),
            "{error}"
        );
    }
    let a = CudaTensor::full(stream, [2], [7_u8; 4]).unwrap();
    let error = copy(stream, &mut bytes, a.view().reversed(0).unwrap()).unwrap_err();
    assert!(
        matches!(error, TensorError::Misaligned { operand: "out", .. }),
        "{error}"
    );
    // What lies alike is copied as bytes; primitive types are aligned enough for what is theirs.
    copy(stream, &mut bytes, &a).unwrap();
    let view = (&bytes).into_view().reversed(0).unwrap();
    let mut out = CudaTensor::<[u8; 4], 1>::uninitialized(device, [2]).unwrap();
    let error = copy(stream, &mut out, view).unwrap_err();
    assert!(
        matches!(error, TensorError::Misaligned { operand: "a", .. }),
        "{error}"
    );
    copy(stream, &mut out, &bytes).unwrap();
    assert_eq!(out.to_ndarray().unwrap().to_vec(), [[7; 4]; 2]);
    let mut doubles = arena.alloc(Undef::<f64, _>::new([2])).unwrap();
    fill(stream, &mut doubles, 1.0).unwrap();
    assert_eq!(to_ndarray(&doubles).unwrap().to_vec(), [1.0; 2]);
    drop((odd, bytes, two, floats, doubles, a, out));
    drop(arena);
    setup.finish();
}

#[test]
fn new_tensors_are_ordered_with_other_streams() {
    for seed in 0..20 {
        let runtime = Runtime::builder()
            .simulation(SimDriver::builder().seed(seed))
            .build()
            .unwrap();
        let device = runtime.default_device();
        let (one, two) = (
            device.streams().acquire().unwrap(),
            device.streams().acquire().unwrap(),
        );
        let mut a = CudaTensor::<f64, 2>::zeros(&one, [4, 4]).unwrap();
        fill(&two, a.view_mut().slice_step(0, 0..4, 2).unwrap(), 1.0).unwrap();
        let b = a.duplicate(&one).unwrap();
        fill(&two, &mut a, 5.0).unwrap();
        assert_eq!(b.to_ndarray().unwrap().sum(), 8.0);
        crate::common::assert_no_reports(&runtime);
    }
}

/// y = (x w) w, with x w as scratch, over blocks of any kind.
struct Twice<'x> {
    x: &'x CudaTensor<f32, 2>,
    w: &'x CudaTensor<f32, 2>,
    stream: &'x cuda_runtime::Stream,
}

impl Verb for Twice<'_> {
    type Outputs = Undef<f32, [usize; 2]>;
    type Checkpoints = ();
    type Scratch = Undef<f32, [usize; 2]>;

    fn outputs(&self) -> Self::Outputs {
        Undef::like(self.x)
    }

    fn checkpoints(&self) {}

    fn scratch(&self) -> Self::Scratch {
        Undef::like(self.x)
    }
}

impl<B> Mutate<B> for Twice<'_>
where
    B: Block<Family = DeviceMemory, Array<f32, [usize; 2]>: DeviceData<Element = f32>>,
{
    type Error = TensorError;

    fn mutate<'f>(
        &self,
        y: &mut Made<Self::Outputs, B>,
        (): &mut (),
        mut xw: MadeInFrame<'f, Self::Scratch, DeviceMemory>,
    ) -> Result<(), TensorError> {
        assign_product(self.stream, &mut xw, self.x, self.w)?;
        let y = TensorViewMut::over(y.write(), Layout::row_major(self.x.extents())?)?;
        assign_product(self.stream, y, &xw, self.w)
    }
}

#[test]
fn verbs_make_tensors_in_any_space_of_the_device() {
    let setup = setup(7);
    let (device, stream) = (setup.device(), &setup.stream);
    let host = array![[1.0_f32, 2.0], [3.0, 4.0]];
    let x = CudaTensor::from_ndarray(device, &host.view()).unwrap();
    let w = CudaTensor::from_ndarray(device, &array![[0.0_f32, 1.0], [1.0, 0.0]].view()).unwrap();
    let mut arena = DeviceArena::over(DeviceSlab::new(device, 4096).unwrap()).unwrap();
    let verb = Twice {
        x: &x,
        w: &w,
        stream,
    };
    let (owned, ()) = Allocating(&verb).run(&mut Similar::to(&x)).unwrap();
    assert_eq!(to_ndarray(&owned).unwrap(), host);
    let mut frame = arena.frame();
    let (carved, ()) = Allocating(&verb).run(&mut frame).unwrap();
    assert_eq!(to_ndarray(&carved).unwrap(), host);
    assert_eq!(frame.offset(), 256);
    drop((owned, carved));
    drop((arena, x, w));
    setup.finish();
}
