//! What a kernel's model sees of its operands.

use crate::kit::{D0, Gpu};
use cuda_driver::{Copies, DevicePtr, Devices, ErrorCode, Kernels, LaunchConfig, Pattern};

/// Operands that share bytes are seen by the model as they were before the launch.
#[test]
fn operands_may_be_the_same_memory() {
    let gpu = Gpu::seeded(0);
    let (a, x) = (gpu.stream(), gpu.alloc(16));
    gpu.fill(a, x, 1, 4);
    gpu.fill(a, x, 7, 1);
    gpu.add(a, x, x, DevicePtr(x.0 + 4), 3);
    gpu.synchronize(a);
    assert_eq!(gpu.read(x, 4), [8, 2, 2, 1]);
    gpu.column(a, x, 5, 1, 1);
    gpu.column(a, DevicePtr(x.0 + 8), 6, 1, 1);
    gpu.synchronize(a);
    assert_eq!(gpu.read(x, 4), [5, 2, 6, 1]);
    gpu.clean();
}

/// What a launch declares as written only is poison before the model runs: a model that leaves part of it unwritten,
/// or reads it first, shows it.
#[test]
fn outputs_hold_poison_before_the_launch() {
    let gpu = Gpu::seeded(0);
    let (a, x) = (gpu.stream(), gpu.alloc(16));
    gpu.fill(a, x, 1, 4);
    gpu.sloppy(a, x, 3);
    gpu.synchronize(a);
    assert_eq!(gpu.read(x, 4), [0, u32::MAX, u32::MAX, 1]);
    gpu.clean();
}

/// What lies between the bytes that a launch declares as read is poison to it: a model that reads there shows it, whether the
/// operand lies apart or is the output as well.
#[test]
fn inputs_hold_poison_where_none_was_declared() {
    let gpu = Gpu::seeded(0);
    let (a, x, y) = (gpu.stream(), gpu.alloc(4 * 8), gpu.alloc(4 * 8));
    gpu.fill(a, x, 1, 8);
    gpu.ends(a, y, x, 4);
    gpu.ends(a, x, x, 4);
    gpu.synchronize(a);
    let undeclared = u32::MAX;
    let row = [1, undeclared, undeclared];
    let expected = [&row[..], &[undeclared], &row, &[1]].concat();
    assert_eq!(gpu.read(y, 8), expected);
    assert_eq!(gpu.read(x, 8), expected);
    gpu.clean();
}

/// A launch that writes rows of a matrix leaves the rest of it alone.
#[test]
fn outputs_are_not_inputs() {
    let gpu = Gpu::seeded(0);
    let (a, x) = (gpu.stream(), gpu.alloc(32 * 2));
    gpu.fill(a, x, 1, 16);
    gpu.column(a, x, 9, 2, 2);
    gpu.synchronize(a);
    let row = [9, 9, 1, 1, 1, 1, 1, 1];
    assert_eq!(gpu.read(x, 16), [row, row].concat());
    gpu.clean();
    // SAFETY: a pattern of two bytes at an odd address is refused.
    let odd = unsafe {
        gpu.sim
            .fill_async(D0, DevicePtr(x.0 + 1), Pattern::U16(1), 1, a)
    };
    assert_eq!(odd.unwrap_err().code, ErrorCode::INVALID_VALUE);
}

/// Whatever operands share, the launch reads what was there before it and writes where it says.
#[test]
fn operands_overlap_in_every_way() {
    let gpu = Gpu::seeded(0);
    let (stream, x, whole) = (gpu.stream(), gpu.alloc(4 * 16), gpu.pinned(16));
    let before: Vec<u32> = (0..16).map(|i| 1 << i).collect();
    for n in 1..=4_usize {
        for (out, a, b) in
            (0..9).flat_map(|out| (0..9).flat_map(move |a| (0..9).map(move |b| (out, a, b))))
        {
            (0..16).for_each(|i| whole.set(i, before[i]));
            gpu.to_device(stream, x, &whole, 16);
            let at = |index: usize| DevicePtr(x.0 + 4 * index as u64);
            gpu.add(stream, at(out), at(a), at(b), n as u32);
            gpu.synchronize(stream);
            let mut expected = before.clone();
            (0..n).for_each(|i| expected[out + i] = before[a + i] + before[b + i]);
            assert_eq!(gpu.read(x, 16), expected, "{n} values: {out} = {a} + {b}");
        }
    }
    gpu.clean();
}

/// Grid y and z are at most 65,535, x at most 2^31 - 1; a function has 48 KiB of shared memory per block unless it asks
/// for more, up to what the device has.
#[test]
fn launches_have_limits() {
    let gpu = Gpu::seeded(0);
    let stream = gpu.stream();
    let both = gpu.sim.module_function(D0, gpu.module, "both").unwrap();
    let x = gpu.alloc(4);
    let args = [
        cuda_driver::Argument::scalar(0_u32),
        cuda_driver::Argument::Pointer(x),
        cuda_driver::Argument::Pointer(x),
    ];
    // SAFETY: launches of no values touch nothing.
    let launch = |config| unsafe { gpu.sim.launch(D0, both, &config, stream, &args) };
    let grid = |x, y, z| LaunchConfig::new([x, y, z], [1; 3]);
    let shared = |bytes| grid(1, 1, 1).with_shared_bytes(bytes);
    for fine in [grid(i32::MAX as u32, 65_535, 65_535), shared(48 << 10)] {
        launch(fine).unwrap();
    }
    gpu.clean();
    for wrong in [
        grid(1 << 31, 1, 1),
        grid(1, 65_536, 1),
        grid(1, 1, 65_536),
        shared((48 << 10) + 1),
    ] {
        assert_eq!(launch(wrong).unwrap_err().code, ErrorCode::INVALID_VALUE);
    }
    assert_eq!(gpu.kinds(), ["bad launch"]);
    let text = gpu.sim.take_reports()[0].to_string();
    assert!(text.contains("a grid of 2147483648 blocks in x"), "{text}");
    let most = gpu
        .sim
        .device_properties(D0)
        .unwrap()
        .shared_bytes_per_block_opt_in;
    assert_eq!(most, 227 << 10);
    let allow = |bytes| gpu.sim.function_allow_shared(D0, both, bytes);
    assert_eq!(allow(most + 1).unwrap_err().code, ErrorCode::INVALID_VALUE);
    allow(most).unwrap();
    launch(shared(most)).unwrap();
    allow(100 << 10).unwrap();
    assert!(launch(shared(most)).is_err());
    launch(shared(100 << 10)).unwrap();
    gpu.synchronize(stream);
}
