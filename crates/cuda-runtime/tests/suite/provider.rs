//! Objects kept per device: made once, shared, and given up with the runtime though they hold the device.

use crate::kit::Rig;
use cuda_runtime::{Device, RuntimeError};
use cuda_sim::SimDriver;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

struct Handle {
    device: Device,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The device's streams are there still.
        if self.device.check().is_ok() {
            drop(self.device.streams().acquire().unwrap());
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_object_is_made_once_and_given_up_with_the_runtime() {
    let rig = Rig::new(1);
    let device = rig.device();
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
    let made_later = device
        .provider(|_| Ok::<_, Infallible>(String::from("yes")))
        .unwrap();
    assert_eq!(*made_later, "yes");
    drop(rig.runtime.clone());
    drop(first);
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    let Rig { runtime, sim } = rig;
    drop(runtime);
    let counts = || {
        (
            made.load(Ordering::Relaxed),
            dropped.load(Ordering::Relaxed),
        )
    };
    assert_eq!(counts(), (1, 1));
    // Without the runtime nothing is kept, so nothing keeps the device.
    drop(get(&device));
    assert_eq!(counts(), (2, 2));
    drop(device);
    sim.shutdown();
    sim.assert_no_reports();
}

#[test]
fn a_shutdown_gives_up_what_is_kept() {
    let rig = Rig::new(1);
    let device = rig.device();
    let dropped = Arc::new(AtomicUsize::new(0));
    let make = |device: &Device| {
        Ok::<_, Infallible>(Handle {
            device: device.clone(),
            dropped: dropped.clone(),
        })
    };
    device.provider(make).unwrap();
    let (other, device) = (rig.runtime.clone(), drop(device));
    let () = device;
    rig.runtime.shutdown().unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    drop(other);
    rig.sim.shutdown();
    rig.sim.assert_no_reports();
}

#[test]
fn threads_that_ask_at_once_get_the_same_object() {
    let rig = Rig::new(1);
    let device = rig.device();
    for round in 0..20 {
        struct Slow<const ROUND: usize>;
        let made = AtomicUsize::new(0);
        let start = Barrier::new(4);
        let addresses: Vec<usize> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| {
                scope.spawn(|| {
                    start.wait();
                    let object = device.provider(|_| {
                        std::thread::sleep(Duration::from_millis(1));
                        // The first two tries fail: whoever waited tries again.
                        match made.fetch_add(1, Ordering::Relaxed) {
                            0 | 1 if round == 0 => Err("not yet"),
                            _ => Ok([0_u8; 3]),
                        }
                    });
                    object.map_or(0, |object| Arc::as_ptr(&object).addr())
                })
            });
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let kept: Vec<_> = addresses.iter().filter(|&&address| address != 0).collect();
        assert_eq!(kept.len(), if round == 0 { 2 } else { 4 });
        assert!(kept.iter().all(|address| *address == kept[0]));
        assert_eq!(made.load(Ordering::Relaxed), if round == 0 { 3 } else { 0 });
        let _ = Slow::<0>;
    }
    drop(device);
    rig.finish();
}

/// A builder that asks for what it builds would wait for itself; one that panics leaves nothing behind.
#[test]
fn a_builder_may_ask_for_others_and_fail_in_any_way() {
    let rig = Rig::new(1);
    let device = rig.device();
    let never = || -> Result<u8, Infallible> { panic!("no") };
    let own = |device: &Device| {
        device.provider::<u8, Infallible>(|device| Ok(1 + *device.provider(|_| never())?))
    };
    for _ in 0..2 {
        let panicked = catch_unwind(AssertUnwindSafe(|| own(&device))).unwrap_err();
        let said = panicked.downcast_ref::<String>().unwrap();
        assert!(said.contains("u8 asks for itself"), "{said}");
    }
    // By way of another one.
    let round_about = |device: &Device| {
        device.provider::<u8, Infallible>(|device| {
            let other = device.provider::<u16, Infallible>(|device| {
                Ok(u16::from(*device.provider(|_| never())?))
            })?;
            Ok(u8::try_from(*other).unwrap())
        })
    };
    catch_unwind(AssertUnwindSafe(|| round_about(&device))).unwrap_err();
    catch_unwind(AssertUnwindSafe(|| device.provider(|_| never()))).unwrap_err();
    let right = device.provider::<u8, Infallible>(|device| {
        let other = device.provider(|_| Ok::<u16, Infallible>(6))?;
        Ok(1 + u8::try_from(*other).unwrap())
    });
    assert_eq!(right.map(|object| *object), Ok(7));
    drop(device);
    rig.finish();
}

/// Two threads whose builders want each other's object: one of them is told, the other one succeeds.
#[test]
fn builders_that_wait_for_each_other_are_told() {
    let rig = Rig::new(1);
    let device = rig.device();
    let both = Barrier::new(2);
    let results = std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            catch_unwind(AssertUnwindSafe(|| {
                device.provider::<u32, Infallible>(|device| {
                    both.wait();
                    device
                        .provider::<u64, _>(|_| Ok(1))
                        .map(|other| *other as u32)
                })
            }))
            .is_ok()
        });
        let two = scope.spawn(|| {
            catch_unwind(AssertUnwindSafe(|| {
                device.provider::<u64, Infallible>(|device| {
                    both.wait();
                    device
                        .provider::<u32, _>(|_| Ok(1))
                        .map(|other| u64::from(*other))
                })
            }))
            .is_ok()
        });
        [one.join().unwrap(), two.join().unwrap()]
    });
    assert!(
        results.contains(&true) && results.contains(&false),
        "{results:?}"
    );
    drop(device);
    rig.finish();
}

/// The same with objects of two devices, of which neither knows what the other one's wait for.
#[test]
fn builders_of_two_devices_that_wait_for_each_other_are_told() {
    for _ in 0..20 {
        let rig = Rig::with(SimDriver::builder().devices(2), |builder| builder);
        let [first, second] = rig.runtime.devices() else {
            unreachable!("there are two")
        };
        let both = Barrier::new(2);
        let told = std::thread::scope(|scope| {
            let make = |here: &'static str, own: &Device, other: &Device| {
                let made = catch_unwind(AssertUnwindSafe(|| {
                    own.provider::<u32, Infallible>(|_| {
                        both.wait();
                        other.provider::<u32, _>(|_| Ok(1)).map(|other| *other)
                    })
                }));
                let said = made.err().map(|panic| *panic.downcast::<String>().unwrap());
                said.inspect(|said| assert!(said.contains("u32 asks for itself"), "{here}: {said}"))
            };
            let there = scope.spawn(move || make("there", second, first));
            [make("here", first, second), there.join().unwrap()]
        });
        // Whoever is told gives up, and the other one goes on.
        assert_eq!(told.iter().flatten().count(), 1, "{told:?}");
        for device in [first, second] {
            assert_eq!(
                device.provider::<u32, Infallible>(|_| Ok(1)).as_deref(),
                Ok(&1)
            );
        }
        rig.finish();
    }
}

/// Who was waited for is not taken to be waited for still: it may ask in turn.
#[test]
fn a_wait_that_is_over_is_in_no_cycle() {
    let rig = Rig::with(SimDriver::builder().devices(2), |builder| builder);
    let [first, second] = rig.runtime.devices() else {
        unreachable!("there are two")
    };
    let (failed, both) = ("made anew each time", Barrier::new(2));
    std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            let made = second.provider(|_| {
                both.wait();
                std::thread::sleep(Duration::from_millis(5));
                Err::<u8, _>(failed)
            });
            // The other thread has waited for that, may not have heard yet, and makes this.
            (made.err(), first.provider(|_| Err::<u16, _>(failed)).err())
        });
        let outer = first.provider(|_| {
            both.wait();
            let inner = second.provider(|_| Err::<u8, _>(failed));
            assert_eq!(inner.err(), Some(failed));
            Err::<u16, _>(failed)
        });
        assert_eq!(outer.err(), Some(failed));
        assert_eq!(one.join().unwrap(), (Some(failed), Some(failed)));
    });
    rig.finish();
}
