//! Allocation.

use crate::subject::{Need, Subject, ok};
use cuda_driver::ErrorCode;
use std::ptr::NonNull;

pub(crate) fn addresses_are_aligned_and_apart(subject: &Subject) {
    let bench = subject.bench();
    let mut ends: Vec<(u64, u64)> = [1, 255, 256, 257, 4096]
        .map(|count| {
            let address = bench.zeros(count).0;
            assert_eq!(address % 256, 0);
            (address, address + 4 * count as u64)
        })
        .to_vec();
    ends.sort_unstable();
    assert!(
        ends.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "{ends:?}"
    );
}

pub(crate) fn no_bytes_is_an_invalid_request(subject: &Subject) {
    let bench = subject.bench();
    let error = bench.driver.mem_alloc(bench.device, 0).unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_VALUE);
    if !subject.has(Need::Pools) {
        return;
    }
    let (pool, stream) = (
        ok(bench.driver.pool_create(bench.device, 0)),
        bench.stream(),
    );
    let error = bench
        .driver
        .mem_alloc_async(bench.device, pool, 0, stream)
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::INVALID_VALUE);
    // SAFETY: nothing came from the pool.
    ok(unsafe { bench.driver.pool_destroy(bench.device, pool) });
}

pub(crate) fn more_than_there_is_is_refused_and_changes_nothing(subject: &Subject) {
    let bench = subject.bench();
    let (_, total) = ok(bench.driver.memory_info(bench.device));
    let bytes = usize::try_from(total).unwrap() + 1;
    let error = bench.driver.mem_alloc(bench.device, bytes).unwrap_err();
    assert_eq!(error.code, ErrorCode::OUT_OF_MEMORY);
    assert_eq!(bench.read(bench.zeros(2), 2), [0, 0]);
}

pub(crate) fn pool_memory_is_valid_behind_its_allocation(subject: &Subject) {
    let bench = subject.bench();
    let (first, second, allocated) = (bench.stream(), bench.stream(), bench.event());
    let pool = ok(bench.driver.pool_create(bench.device, u64::MAX));
    let x = ok(bench
        .driver
        .mem_alloc_async(bench.device, pool, 4096, first));
    assert_eq!(x.0 % 256, 0);
    ok(bench.driver.event_record(bench.device, allocated, first));
    ok(bench
        .driver
        .stream_wait_event(bench.device, second, allocated));
    ok(bench.fill(x, 7, 1024, second));
    bench.wait(second);
    assert_eq!(bench.read(x, 1024), [7; 1024]);
    // SAFETY: the only use was waited for.
    ok(unsafe { bench.driver.mem_free_async(bench.device, x, first) });
    bench.wait(first);
    // SAFETY: nothing of the pool is in use.
    ok(unsafe { bench.driver.pool_destroy(bench.device, pool) });
}

pub(crate) fn a_pool_tells_what_is_in_use(subject: &Subject) {
    let bench = subject.bench();
    let stream = bench.stream();
    let pool = ok(bench.driver.pool_create(bench.device, u64::MAX));
    let usage = || ok(bench.driver.pool_usage(bench.device, pool));
    assert_eq!(usage().used_bytes, 0);
    let x = ok(bench
        .driver
        .mem_alloc_async(bench.device, pool, 1 << 20, stream));
    bench.wait(stream);
    let during = usage();
    assert!(during.used_bytes >= 1 << 20 && during.reserved_bytes >= during.used_bytes);
    // SAFETY: nothing uses the memory.
    ok(unsafe { bench.driver.mem_free_async(bench.device, x, stream) });
    bench.wait(stream);
    let after = usage();
    assert_eq!(
        (after.used_bytes, after.used_high_bytes),
        (0, during.used_bytes)
    );
    ok(bench.driver.pool_trim(bench.device, pool, 0));
    assert_eq!(usage().reserved_bytes, 0);
    // SAFETY: nothing of the pool is in use.
    ok(unsafe { bench.driver.pool_destroy(bench.device, pool) });
}

pub(crate) fn a_pool_above_its_threshold_keeps_its_memory(subject: &Subject) {
    let bench = subject.bench();
    let stream = bench.stream();
    for (threshold, keeps) in [(u64::MAX, true), (0, false)] {
        let pool = ok(bench.driver.pool_create(bench.device, threshold));
        let x = ok(bench
            .driver
            .mem_alloc_async(bench.device, pool, 1 << 20, stream));
        // SAFETY: nothing uses the memory.
        ok(unsafe { bench.driver.mem_free_async(bench.device, x, stream) });
        bench.wait(stream);
        let reserved = ok(bench.driver.pool_usage(bench.device, pool)).reserved_bytes;
        assert_eq!(
            reserved > 0,
            keeps,
            "threshold {threshold}: {reserved} bytes"
        );
        // SAFETY: nothing of the pool is in use.
        ok(unsafe { bench.driver.pool_destroy(bench.device, pool) });
    }
}

pub(crate) fn devices_without_pools_say_so(subject: &Subject) {
    if subject.has(Need::Pools) {
        return;
    }
    let bench = subject.bench();
    let error = bench.driver.pool_create(bench.device, 0).unwrap_err();
    assert_eq!(error.code, ErrorCode::NOT_SUPPORTED);
}

pub(crate) fn page_locked_memory_is_the_hosts(subject: &Subject) {
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(1024));
    let host = ok(bench.driver.host_alloc(bench.device, 4096));
    let numbers: [u32; 1024] = std::array::from_fn(|i| i as u32);
    // SAFETY: of that size, and ours.
    unsafe { host.cast::<[u32; 1024]>().write(numbers) };
    // SAFETY: both are of that size; the host waits before it touches its own.
    ok(unsafe {
        let from = host.as_ptr();
        bench
            .driver
            .copy_to_device_async(bench.device, x, from, 4096, stream)
    });
    bench.wait(stream);
    assert_eq!(bench.read(x, 1024), numbers);
    ok(bench.fill(x, 5, 1024, stream));
    // SAFETY: as above.
    ok(unsafe {
        let to = host.as_ptr();
        bench
            .driver
            .copy_to_host_async(bench.device, to, x, 4096, stream)
    });
    bench.wait(stream);
    // SAFETY: the copy is done.
    assert_eq!(unsafe { host.cast::<[u32; 1024]>().read() }, [5; 1024]);
    // SAFETY: nothing uses the memory any more.
    ok(unsafe { bench.driver.host_free(bench.device, host) });
}

pub(crate) fn memory_of_the_program_is_registered_once(subject: &Subject) {
    /// Whole pages of its own.
    #[repr(align(4096))]
    struct Pages([u32; 2048]);
    let bench = subject.bench();
    let (stream, x) = (bench.stream(), bench.zeros(2048));
    let mut pages = Box::new(Pages(std::array::from_fn(|i| i as u32)));
    let numbers = pages.0;
    let host = NonNull::from(&mut *pages).cast::<u8>();
    // SAFETY: the memory is ours and outlives its registrations here and below; no copy is under way when one ends.
    let register =
        |at: NonNull<u8>, bytes| unsafe { bench.driver.host_register(bench.device, at, bytes) };
    // SAFETY: as above.
    let unregister = |at| unsafe { bench.driver.host_unregister(bench.device, at) };
    assert_eq!(
        unregister(host).unwrap_err().code,
        ErrorCode::HOST_MEMORY_NOT_REGISTERED
    );
    assert_eq!(
        register(host, 0).unwrap_err().code,
        ErrorCode::INVALID_VALUE
    );
    for _ in 0..2 {
        ok(register(host, 8192));
        assert_eq!(
            register(host, 8192).unwrap_err().code,
            ErrorCode::HOST_MEMORY_ALREADY_REGISTERED
        );
        bench.write(x, &[0; 2048]);
        // SAFETY: both are of that size; the host waits before it touches its own.
        ok(unsafe {
            let from = host.as_ptr();
            bench
                .driver
                .copy_to_device_async(bench.device, x, from, 8192, stream)
        });
        bench.wait(stream);
        assert_eq!(bench.read(x, 2048), numbers);
        ok(unregister(host));
    }
    assert_eq!(
        unregister(host).unwrap_err().code,
        ErrorCode::HOST_MEMORY_NOT_REGISTERED
    );
    ok(register(host, 8192));
    ok(bench.fill(x, 5, 2048, stream));
    // SAFETY: as above.
    ok(unsafe {
        let to = host.as_ptr();
        bench
            .driver
            .copy_to_host_async(bench.device, to, x, 8192, stream)
    });
    bench.wait(stream);
    ok(unregister(host));
    assert_eq!(pages.0, [5; 2048]);
}
