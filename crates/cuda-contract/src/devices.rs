//! Discovery.

use crate::subject::{Subject, ok};
use cuda_driver::{DeviceId, ErrorCode};

pub(crate) fn devices_are_numbered_from_zero(subject: &Subject) {
    let count = ok(subject.driver().device_count());
    assert!(count > 0);
    for device in (0..count).map(DeviceId) {
        let properties = subject.properties(device);
        assert!(!properties.name.is_empty());
        assert!(properties.memory_bytes > 0 && properties.multiprocessors > 0);
        assert!(properties.max_block_threads >= 512);
        assert!(properties.shared_bytes_per_block >= 48 * 1024);
        assert!(properties.shared_bytes_per_block_opt_in >= properties.shared_bytes_per_block);
        // Smaller numbers are more urgent.
        assert!(properties.priorities.1 <= properties.priorities.0);
    }
}

pub(crate) fn memory_in_use_is_not_free(subject: &Subject) {
    let bench = subject.bench();
    let (_, total) = ok(bench.driver.memory_info(bench.device));
    bench.zeros(1024);
    let (free, again) = ok(bench.driver.memory_info(bench.device));
    assert_eq!(total, again);
    assert!(free < total);
}

pub(crate) fn no_other_device_exists(subject: &Subject) {
    let driver = subject.driver();
    let none = DeviceId(ok(driver.device_count()));
    let codes = [
        driver.device_properties(none).map(drop),
        driver.memory_info(none).map(drop),
        driver.stream_create(none, 0).map(drop),
        driver.mem_alloc(none, 256).map(drop),
    ]
    .map(|result| result.map_err(|error| error.code));
    assert_eq!(codes, [Err(ErrorCode::INVALID_DEVICE); 4]);
}

pub(crate) fn peers_are_other_devices(subject: &Subject) {
    let driver = subject.driver();
    assert!(!ok(driver.can_access_peer(DeviceId(0), DeviceId(0))));
    let there = ok(driver.can_access_peer(DeviceId(0), DeviceId(1)));
    let back = ok(driver.can_access_peer(DeviceId(1), DeviceId(0)));
    assert_eq!(there, back);
}
