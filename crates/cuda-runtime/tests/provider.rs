//! Objects kept per device: made once, shared, and given up with the runtime though they hold the device.

#![cfg(feature = "sim")]

use cuda_runtime::{Device, Runtime, RuntimeError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Handle {
    device: Device,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_object_is_made_once_and_given_up_with_the_runtime() {
    let runtime = Runtime::builder().build().unwrap();
    let device = runtime.default_device().clone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let made = AtomicUsize::new(0);
    let get = |device: &Device| {
        let make = |device: &Device| {
            made.fetch_add(1, Ordering::Relaxed);
            Ok::<_, RuntimeError>(Handle {
                device: device.clone(),
                dropped: dropped.clone(),
            })
        };
        device.provider(make).unwrap()
    };
    let first = get(&device);
    assert!(Arc::ptr_eq(&first, &get(&device)));
    assert_eq!(first.device.id(), device.id());
    let failed = device.provider(|_| Err::<String, _>("no"));
    assert_eq!(failed, Err("no"));
    drop(runtime.clone());
    drop(first);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(runtime);
    assert_eq!(
        (
            made.load(Ordering::Relaxed),
            dropped.load(Ordering::Relaxed)
        ),
        (1, 1)
    );
    // Without the runtime nothing is kept, so nothing keeps the device.
    drop(get(&device));
    assert_eq!(
        (
            made.load(Ordering::Relaxed),
            dropped.load(Ordering::Relaxed)
        ),
        (2, 2)
    );
}
