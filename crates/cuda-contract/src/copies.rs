//! Copies and fills.

use crate::subject::{Subject, ok};
use cuda_driver::{CopyRows, DeviceId, DevicePtr, ErrorCode, Pattern};

pub(crate) fn bytes_go_there_and_back(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x, y) = (bench.stream(), bench.zeros(256), bench.zeros(256));
    let numbers: Vec<u32> = (0..256).map(|i| i * 0x0101_0101).collect();
    bench.write(x, &numbers);
    ok(bench.copy(DevicePtr(y.0 + 4), x, 255, stream));
    bench.wait(stream);
    let copied = bench.read(y, 256);
    assert_eq!((copied[0], &copied[1..]), (0, &numbers[..255]));
    // No bytes are nothing to do, wherever they are.
    ok(bench.copy(y, x, 0, stream));
    bench.wait(stream);
}

pub(crate) fn patterns_of_three_sizes_fill(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(4));
    let fills = [
        (0, Pattern::U8(0xab), 4),
        (4, Pattern::U16(0x1234), 2),
        (8, Pattern::U32(0xdead_beef), 1),
    ];
    for (offset, pattern, count) in fills {
        // SAFETY: within the memory.
        ok(unsafe {
            let to = DevicePtr(x.0 + offset);
            bench
                .driver
                .fill_async(bench.device, to, pattern, count, stream)
        });
    }
    bench.wait(stream);
    assert_eq!(bench.read(x, 4), [0xabab_abab, 0x1234_1234, 0xdead_beef, 0]);
}

pub(crate) fn a_fill_must_be_aligned(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(4));
    for (offset, pattern) in [(1, Pattern::U16(1)), (2, Pattern::U32(1))] {
        // SAFETY: within the memory, and refused.
        let result = unsafe {
            let to = DevicePtr(x.0 + offset);
            bench
                .driver
                .fill_async(bench.device, to, pattern, 1, stream)
        };
        assert_eq!(result.unwrap_err().code, ErrorCode::INVALID_VALUE);
    }
    assert_eq!(bench.read(x, 4), [0; 4]);
}

pub(crate) fn devices_copy_to_each_other(subject: &Subject) {
    let (here, there) = (subject.bench(), subject.bench_on(DeviceId(1)));
    let (x, y) = (here.zeros(64), there.zeros(64));
    here.write(x, &[6; 64]);
    let stream = here.stream();
    // SAFETY: both ranges are allocated, and nothing else uses them.
    ok(unsafe {
        here.driver
            .copy_peer_async(here.device, there.device, y, here.device, x, 256, stream)
    });
    here.wait(stream);
    assert_eq!(there.read(y, 64), [6; 64]);
}

/// Rows of two numbers, every three numbers at the source and every four at the destination.
pub(crate) fn rows_are_copied_and_the_rest_is_not_touched(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x, y) = (bench.stream(), bench.zeros(12), bench.zeros(12));
    bench.write(x, &[1, 2, 0, 3, 4, 0, 5, 6, 0, 0, 0, 0]);
    bench.write(y, &[9; 12]);
    let shape = CopyRows {
        width_bytes: 8,
        rows: 3,
        dst_pitch_bytes: 16,
        src_pitch_bytes: 12,
    };
    // SAFETY: all rows lie within the memory.
    ok(unsafe {
        bench
            .driver
            .copy_rows_device_async(bench.device, y, x, shape, stream)
    });
    bench.wait(stream);
    assert_eq!(bench.read(y, 12), [1, 2, 9, 9, 3, 4, 9, 9, 5, 6, 9, 9]);

    let host = ok(bench.driver.host_alloc(bench.device, 32));
    let back = CopyRows {
        dst_pitch_bytes: 8,
        src_pitch_bytes: 16,
        ..shape
    };
    // SAFETY: all rows lie within the memory; the host waits before it reads.
    ok(unsafe {
        bench
            .driver
            .copy_rows_to_host_async(bench.device, host.as_ptr(), y, back, stream)
    });
    bench.wait(stream);
    // SAFETY: the copy is done, and wrote that many.
    let got = unsafe { host.cast::<[u32; 6]>().read() };
    assert_eq!(got, [1, 2, 3, 4, 5, 6]);
    let out = CopyRows {
        dst_pitch_bytes: 12,
        src_pitch_bytes: 8,
        ..shape
    };
    bench.write(y, &[9; 12]);
    // SAFETY: as above.
    ok(unsafe {
        bench
            .driver
            .copy_rows_to_device_async(bench.device, y, host.as_ptr(), out, stream)
    });
    bench.wait(stream);
    assert_eq!(bench.read(y, 12), [1, 2, 9, 3, 4, 9, 5, 6, 9, 9, 9, 9]);
    // SAFETY: nothing uses the memory any more.
    ok(unsafe { bench.driver.host_free(bench.device, host) });
    let narrow = CopyRows {
        src_pitch_bytes: 4,
        ..shape
    };
    // SAFETY: refused.
    let refused = unsafe {
        bench
            .driver
            .copy_rows_device_async(bench.device, y, x, narrow, stream)
    };
    assert_eq!(refused.unwrap_err().code, ErrorCode::INVALID_VALUE);
}

/// Rows of two numbers, there and back, on a stream of either device.
pub(crate) fn rows_go_to_another_device(subject: &Subject) {
    let (here, there) = (subject.bench(), subject.bench_on(DeviceId(1)));
    let (x, y) = (here.zeros(12), there.zeros(12));
    here.write(x, &[1, 2, 0, 3, 4, 0, 5, 6, 0, 0, 0, 0]);
    there.write(y, &[9; 12]);
    let shape = CopyRows {
        width_bytes: 8,
        rows: 3,
        dst_pitch_bytes: 16,
        src_pitch_bytes: 12,
    };
    let stream = here.stream();
    // SAFETY: all rows lie within the memory, and nothing else uses it.
    ok(unsafe {
        let (from, to) = (here.device, there.device);
        here.driver
            .copy_rows_peer_async(here.device, to, y, from, x, shape, stream)
    });
    here.wait(stream);
    assert_eq!(there.read(y, 12), [1, 2, 9, 9, 3, 4, 9, 9, 5, 6, 9, 9]);

    here.write(x, &[8; 12]);
    let back = CopyRows {
        dst_pitch_bytes: 8,
        src_pitch_bytes: 16,
        ..shape
    };
    let stream = there.stream();
    // SAFETY: as above.
    ok(unsafe {
        let (from, to) = (there.device, here.device);
        there
            .driver
            .copy_rows_peer_async(there.device, to, x, from, y, back, stream)
    });
    there.wait(stream);
    assert_eq!(here.read(x, 12), [1, 2, 3, 4, 5, 6, 8, 8, 8, 8, 8, 8]);

    let narrow = CopyRows {
        dst_pitch_bytes: 4,
        ..shape
    };
    let none = CopyRows { rows: 0, ..shape };
    for (shape, expected) in [(narrow, Err(ErrorCode::INVALID_VALUE)), (none, Ok(()))] {
        // SAFETY: refused, or nothing to do.
        let result = unsafe {
            let (from, to) = (here.device, there.device);
            there
                .driver
                .copy_rows_peer_async(there.device, to, y, from, x, shape, stream)
        };
        assert_eq!(result.map_err(|error| error.code), expected);
    }
}

pub(crate) fn rows_are_filled_and_the_rest_is_not_touched(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(6));
    for (offset, pattern, width) in [
        (0, Pattern::U32(7), 1),
        (4, Pattern::U16(0x0101), 2),
        (8, Pattern::U8(2), 2),
    ] {
        // SAFETY: two rows of at most 4 bytes, 12 bytes apart, within the memory.
        ok(unsafe {
            let to = DevicePtr(x.0 + offset);
            bench
                .driver
                .fill_rows_async(bench.device, to, 12, pattern, width, 2, stream)
        });
    }
    bench.wait(stream);
    assert_eq!(
        bench.read(x, 6),
        [7, 0x0101_0101, 0x0202, 7, 0x0101_0101, 0x0202]
    );
}
