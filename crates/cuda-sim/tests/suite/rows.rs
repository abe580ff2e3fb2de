//! Rules of rows: copies and fills in two dimensions.

use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{
    Copies, CopyRows, CudaResult, DeviceId, DevicePtr, ErrorCode, Memory, Pattern, RawStream,
};
use cuda_sim::SimDriver;

/// Rows of `width` values; pitches in values.
fn rows(width: usize, rows: usize, dst_pitch: usize, src_pitch: usize) -> CopyRows {
    CopyRows {
        width_bytes: 4 * width,
        rows,
        dst_pitch_bytes: 4 * dst_pitch,
        src_pitch_bytes: 4 * src_pitch,
    }
}

impl Gpu {
    #[track_caller]
    fn fill_rows(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        pitch_bytes: usize,
        pattern: Pattern,
        (width, rows): (usize, usize),
    ) -> CudaResult<()> {
        // SAFETY: the simulated device checks range and order.
        unsafe {
            self.sim
                .fill_rows_async(D0, dst, pitch_bytes, pattern, width, rows, stream)
        }
    }

    #[track_caller]
    fn rows_on_device(
        &self,
        stream: RawStream,
        dst: DevicePtr,
        src: DevicePtr,
        shape: CopyRows,
    ) -> CudaResult<()> {
        // SAFETY: the simulated device checks ranges and order.
        unsafe { self.sim.copy_rows_device_async(D0, dst, src, shape, stream) }
    }
}

/// Rows are filled and what lies between them is not.
#[test]
fn a_fill_of_rows_leaves_the_gaps_alone() {
    seeds(20, |gpu| {
        let (a, x) = (gpu.stream(), gpu.alloc(4 * 12));
        gpu.fill(a, x, 1, 12);
        for (pattern, width) in [
            (Pattern::U8(7), 8),
            (Pattern::U16(0x0707), 4),
            (Pattern::U32(0x0707_0707), 2),
        ] {
            gpu.fill_rows(a, DevicePtr(x.0 + 4), 16, pattern, (width, 3))
                .unwrap();
            gpu.synchronize(a);
            let row = [1, 0x0707_0707, 0x0707_0707, 1];
            assert_eq!(gpu.read(x, 12), [row; 3].concat());
        }
        gpu.clean();
    });
}

/// Rows travel between places of different pitch, by the host and within the device.
#[test]
fn rows_travel_between_pitches() {
    seeds(20, |gpu| {
        let (a, host, back) = (gpu.stream(), gpu.pinned(12), gpu.pinned(6));
        let (x, y) = (gpu.alloc(4 * 9), gpu.alloc(4 * 6));
        (0..12).for_each(|i| host.set(i, i as u32));
        back.fill(99);
        gpu.fill(a, x, 77, 9);
        // SAFETY: the rows lie in the page-locked memory, which lives on.
        unsafe {
            gpu.sim.copy_rows_to_device_async(
                D0,
                x,
                host.pointer.as_ptr().cast(),
                rows(2, 3, 3, 4),
                a,
            )
        }
        .unwrap();
        gpu.rows_on_device(a, y, DevicePtr(x.0 + 4), rows(2, 3, 2, 3))
            .unwrap();
        // SAFETY: as above.
        unsafe {
            gpu.sim.copy_rows_to_host_async(
                D0,
                back.pointer.as_ptr().cast(),
                x,
                rows(1, 3, 2, 3),
                a,
            )
        }
        .unwrap();
        gpu.synchronize(a);
        assert_eq!(gpu.read(x, 9), [0, 1, 77, 4, 5, 77, 8, 9, 77]);
        assert_eq!(gpu.read(y, 6), [1, 77, 5, 77, 9, 77]);
        let back: Vec<u32> = (0..6).map(|i| back.get(i)).collect();
        assert_eq!(back, [0, 99, 4, 99, 8, 99]);
        gpu.clean();
    });
}

/// A pitch is at least a row and at most 2^31 - 1, and a multiple of a fill's pattern; rows that no address space holds
/// are refused.
#[test]
fn pitches_have_limits() {
    let gpu = Gpu::seeded(0);
    let (a, x) = (gpu.stream(), gpu.alloc(64));
    let value = |result: CudaResult<()>| result.unwrap_err().code == ErrorCode::INVALID_VALUE;
    let fill = |at: u64, pitch, width, rows| {
        gpu.fill_rows(
            a,
            DevicePtr(x.0 + at),
            pitch,
            Pattern::U32(1),
            (width, rows),
        )
    };
    assert!(value(fill(0, 7, 2, 1)) && value(fill(0, 4, 2, 1)));
    assert!(value(fill(2, 8, 2, 1)) && value(fill(0, 10, 2, 2)));
    assert!(value(fill(0, 1 << 31, 2, 2)));
    assert!(value(fill(0, 1 << 30, usize::MAX / 2, 1)));
    assert!(value(fill(0, 1 << 30, 2, usize::MAX / 8)));
    let copy = |shape| gpu.rows_on_device(a, x, DevicePtr(x.0 + 32), shape);
    assert!(value(copy(rows(2, 2, 1, 2))) && value(copy(rows(2, 2, 2, 1))));
    assert!(value(copy(rows(1, usize::MAX / 64, 16, 1))));
    // Nothing is nothing to do, wherever it is.
    fill(0, 0, 0, 5).unwrap();
    fill(1 << 40, 8, 2, 0).unwrap();
    copy(rows(2, 0, 2, 2)).unwrap();
    gpu.synchronize(a);
    gpu.clean();
}

/// Columns that share no byte need no order; columns that do are a race on the bytes they share.
#[test]
fn rows_race_by_their_own_bytes() {
    let gpu = Gpu::seeded(0);
    let (a, b, x) = (gpu.stream(), gpu.stream(), gpu.alloc(4 * 16));
    gpu.fill_rows(a, x, 16, Pattern::U32(1), (2, 4)).unwrap();
    gpu.fill_rows(b, DevicePtr(x.0 + 8), 16, Pattern::U32(2), (2, 4))
        .unwrap();
    gpu.clean();
    gpu.rows_on_device(b, DevicePtr(x.0 + 12), DevicePtr(x.0 + 4), rows(1, 2, 4, 4))
        .unwrap();
    let reports = gpu.sim.take_reports();
    assert_eq!(reports.len(), 1);
    let cuda_sim::Finding::Race { second, .. } = &reports[0].finding else {
        panic!("{}", reports[0])
    };
    assert_eq!(
        (second.range.clone(), second.writes),
        (x.0 + 4..x.0 + 8, false)
    );
}

/// What was never written is known by row, and travels with a copy.
#[test]
fn rows_carry_what_was_never_written() {
    let gpu = Gpu::seeded(0);
    let (a, x, y) = (gpu.stream(), gpu.alloc(4 * 8), gpu.alloc(4 * 8));
    gpu.fill_rows(a, x, 16, Pattern::U32(1), (1, 2)).unwrap();
    gpu.rows_on_device(a, y, x, rows(2, 2, 4, 4)).unwrap();
    gpu.step(a, y, 1, 1);
    gpu.step(a, DevicePtr(y.0 + 16), 1, 1);
    gpu.clean();
    gpu.step(a, DevicePtr(y.0 + 20), 1, 1);
    assert_eq!(gpu.kinds(), ["uninitialised read"]);
}

/// Rows that leave their allocation are out of bounds, however many they are, and lose the device.
#[test]
fn rows_end_with_their_memory() {
    for wrong in 0..3 {
        let gpu = Gpu::seeded(wrong);
        let (a, x, y) = (gpu.stream(), gpu.alloc(4 * 8), gpu.alloc(4 << 10));
        gpu.fill(a, x, 1, 8);
        gpu.fill(a, y, 1, 1 << 8);
        match wrong {
            0 => gpu.fill_rows(a, x, 16, Pattern::U32(1), (1, 3)).unwrap(),
            1 => gpu.rows_on_device(a, x, y, rows(1, 1 << 9, 4, 1)).unwrap(),
            _ => gpu.rows_on_device(a, y, x, rows(1, 1 << 9, 1, 2)).unwrap(),
        }
        assert_eq!(gpu.kinds(), ["out of bounds"]);
        gpu.sim.run_all();
        assert_eq!(
            gpu.sim.mem_alloc(D0, 4).unwrap_err().code,
            ErrorCode::ILLEGAL_ADDRESS
        );
    }
    // So many rows that none could be looked at one by one.
    let gpu = Gpu::seeded(0);
    let (a, x) = (gpu.stream(), gpu.alloc(64));
    gpu.fill_rows(a, x, 1, Pattern::U8(1), (1, 1 << 45))
        .unwrap();
    assert_eq!(gpu.kinds(), ["out of bounds"]);
}

/// Host memory between the rows of a copy belongs to the program.
#[test]
fn the_gaps_of_a_pending_copy_may_be_touched() {
    for (touched, expected) in [(2, &[][..]), (1, &["host memory touched"][..])] {
        let gpu = Gpu::seeded(0);
        let (a, x, host) = (gpu.stream(), gpu.alloc(4 * 4), gpu.pinned(8));
        host.fill(5);
        gpu.sim.hold_stream(a);
        // SAFETY: the rows lie in the page-locked memory, which lives on.
        unsafe {
            gpu.sim.copy_rows_to_device_async(
                D0,
                x,
                host.pointer.as_ptr().cast(),
                rows(2, 2, 2, 4),
                a,
            )
        }
        .unwrap();
        host.set(touched, 6);
        gpu.sim.release_stream(a);
        gpu.synchronize(a);
        assert_eq!(gpu.kinds(), expected);
    }
}

/// Rows are captured and replayed like any copy.
#[test]
fn rows_are_captured() {
    let gpu = Gpu::seeded(0);
    let (a, x, y) = (gpu.stream(), gpu.alloc(4 * 8), gpu.alloc(4 * 4));
    gpu.begin(a);
    gpu.fill_rows(a, x, 16, Pattern::U32(3), (2, 2)).unwrap();
    gpu.rows_on_device(a, y, x, rows(2, 2, 2, 4)).unwrap();
    let exec = gpu.instantiate(gpu.end(a));
    gpu.replay(exec, a).unwrap();
    gpu.synchronize(a);
    assert_eq!(gpu.read(y, 4), [3; 4]);
    gpu.clean();
}

/// Rows travel between any two devices, each address on the device that the call says; they race by their own bytes.
#[test]
fn rows_reach_every_device() {
    for (seed, peers) in [(1, true), (2, false)] {
        let sim = SimDriver::builder().seed(seed).devices(2).peers(peers);
        let sim = sim.build();
        let (here, there) = (Gpu::on(sim.clone(), D0), Gpu::on(sim.clone(), DeviceId(1)));
        let (stream, far) = (here.stream(), there.stream());
        let (x, y) = (here.alloc(4 * 6), there.alloc(4 * 12));
        here.fill(stream, x, 7, 6);
        there.fill(far, y, 1, 12);
        there.synchronize(far);
        let copy = |(to, dst): (u32, _), (from, src): (u32, _), shape| {
            let (to, from) = (DeviceId(to), DeviceId(from));
            // SAFETY: the simulated device checks ranges, devices and order.
            unsafe { sim.copy_rows_peer_async(D0, to, dst, from, src, shape, stream) }
        };
        copy((1, y), (0, x), rows(2, 3, 4, 2)).unwrap();
        here.synchronize(stream);
        let row = [7, 7, 1, 1];
        assert_eq!(there.read(y, 12), [row, row, row].concat());
        sim.assert_no_reports();
        for (to, from) in [((0, y), (0, x)), ((1, y), (1, x))] {
            let wrong = copy(to, from, rows(2, 3, 4, 2)).unwrap_err();
            assert_eq!(wrong.code, ErrorCode::INVALID_VALUE);
        }
        assert_eq!(
            copy((1, y), (0, x), rows(2, 3, 1, 2)).unwrap_err().code,
            ErrorCode::INVALID_VALUE
        );
        // Of nothing, nobody asks whose it is.
        copy((0, y), (1, x), rows(2, 0, 4, 2)).unwrap();
        copy((0, y), (1, x), rows(0, 3, 4, 2)).unwrap();
        // Between the rows another stream may work, in them it may not.
        copy((1, y), (0, x), rows(2, 3, 4, 2)).unwrap();
        there.fill(far, DevicePtr(y.0 + 8), 2, 2);
        sim.assert_no_reports();
        there.fill(far, DevicePtr(y.0 + 16), 2, 1);
        assert_eq!(here.kinds(), ["race"]);
    }
}

/// They take as long as the bytes need between devices, and are captured.
#[test]
fn rows_to_another_device_are_captured_and_timed() {
    let sim = SimDriver::builder().devices(2).build();
    let (here, there) = (Gpu::on(sim.clone(), D0), Gpu::on(sim.clone(), DeviceId(1)));
    // So many that the bytes take most of the time, and not the latency.
    let (stream, n) = (here.stream(), 1 << 22);
    let (x, y) = (here.alloc(4 * n), there.alloc(4 * n));
    here.fill(stream, x, 7, n);
    here.begin(stream);
    let shape = rows(n / 4, 2, n / 2, n / 2);
    // SAFETY: the simulated device checks ranges, devices and order.
    unsafe { sim.copy_rows_peer_async(D0, DeviceId(1), y, D0, x, shape, stream) }.unwrap();
    let exec = here.instantiate(here.end(stream));
    here.replay(exec, stream).unwrap();
    let before = sim.modelled_time();
    here.replay(exec, stream).unwrap();
    let peer = sim.modelled_time() - before;
    here.synchronize(stream);
    assert_eq!(there.read(y, 1), [7]);
    let before = sim.modelled_time();
    // SAFETY: as above.
    unsafe { sim.copy_peer_async(D0, DeviceId(1), y, D0, x, 2 * n, stream) }.unwrap();
    let flat = sim.modelled_time() - before;
    // The same bytes, but for what the calls themselves take.
    assert!(peer.abs_diff(flat) < flat / 4, "{peer:?} and {flat:?}");
    sim.assert_no_reports();
}
