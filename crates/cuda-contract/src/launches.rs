//! Modules, launches and host functions.

use crate::kernels::MODULE;
use crate::subject::{Subject, ok};
use cuda_driver::{Argument, ErrorCode, LaunchConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const N: usize = 1000;

pub(crate) fn a_kernel_computes(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x, y) = (bench.stream(), bench.zeros(N), bench.zeros(N));
    let numbers: Vec<u32> = (0..N).map(|i| (i as f32).to_bits()).collect();
    bench.write(x, &numbers);
    let scale = bench.kernel("contract_scale");
    let args = [
        Argument::scalar(N as u32),
        Argument::scalar(1.5_f32),
        Argument::Pointer(y),
        Argument::Pointer(x),
    ];
    ok(bench.launch(scale, N, &args, stream));
    bench.wait(stream);
    let expected: Vec<u32> = (0..N).map(|i| (1.5 * i as f32).to_bits()).collect();
    assert_eq!(bench.read(y, N), expected);
}

/// Of eight, two and eight bytes, each followed by others.
pub(crate) fn arguments_of_every_size_arrive(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(N));
    let count = bench.kernel("contract_count");
    for step in [1, 0xff00, 3] {
        ok(bench.count_up(count, x, N, step, stream));
    }
    bench.wait(stream);
    assert_eq!(bench.read(x, N), [0xff04; N]);
}

pub(crate) fn there_is_no_other_kernel(subject: &Subject) {
    let bench = subject.bench();
    let module = ok(bench.driver.module_load(bench.device, &MODULE));
    let error = bench
        .driver
        .module_function(bench.device, module, "contract_other")
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::NOT_FOUND);
    // SAFETY: nothing of it was launched.
    ok(unsafe { bench.driver.module_unload(bench.device, module) });
}

pub(crate) fn a_grid_of_nothing_is_refused(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(1));
    let count = bench.kernel("contract_count");
    let args = crate::kernels::count_arguments(x, 1, 1);
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [1, 0, 1]),
        ([1, 1, 1], [1, 1, 65]),
    ] {
        let config = LaunchConfig::new(grid, block);
        // SAFETY: refused; the arguments fit.
        let result = unsafe {
            bench
                .driver
                .launch(bench.device, count, &config, stream, &args)
        };
        assert_eq!(
            result.unwrap_err().code,
            ErrorCode::INVALID_VALUE,
            "{config:?}"
        );
    }
    assert_eq!(bench.read(x, 1), [0]);
}

pub(crate) fn a_host_function_runs_between_its_neighbours(subject: &Subject) {
    let bench = subject.bench();
    let stream = bench.stream();
    let seen = Arc::new(AtomicU32::new(0));
    for turn in 0..4 {
        let seen = seen.clone();
        let function = Arc::new(move || {
            let _ = seen.compare_exchange(turn, turn + 1, Ordering::SeqCst, Ordering::SeqCst);
        });
        ok(bench
            .driver
            .launch_host_function(bench.device, stream, function));
    }
    bench.wait(stream);
    assert_eq!(seen.load(Ordering::SeqCst), 4);
    // Called and dropped: nobody else holds it. The last may be on its way from the driver's thread.
    for _ in 0..1000 {
        if Arc::strong_count(&seen) == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let _ = bench.driver.stream_query(bench.device, stream);
    }
    panic!("a function was not dropped after its call");
}
