//! What another thread does in the middle of a wait on the host, at the very moment at which it matters.

use crate::cases::raw;
use crate::kit::{N, Rig};
use crate::tap::Tap;
use cuda_buffer::{CaptureStep, CudaBuffer, DeviceData};
use cuda_driver::RawStream;
use cuda_runtime::{Completion, Device, Runtime, Stream};
use cuda_sim::SimDriver;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn rig(seed: u64) -> (Rig, Arc<Tap>, Device, [Stream; 2]) {
    let sim = SimDriver::builder().seed(seed).build();
    let tap = Arc::new(Tap::new(sim.clone()));
    let builder = Runtime::builder().driver(tap.clone());
    let runtime = builder.streams_per_device(2).build().unwrap();
    let rig = Rig { runtime, sim };
    let device = rig.device();
    let streams = rig.streams();
    (rig, tap, device, streams)
}

/// How the host hears that a place of a stream is over, and where in the middle of that memory is allocated.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Told {
    WhileItWaits,
    ByWaiting,
    ByAsking,
    ByWaitingForThePlace,
}

/// An allocation that is queued behind a place shares the place, and costs no event, as long as nobody has been told that the place is over:
/// then the allocation has a place of its own, which its next user waits for.
#[test]
fn memory_shares_no_place_that_the_host_was_told_is_over() {
    use Told::*;
    for told in [WhileItWaits, ByWaiting, ByAsking, ByWaitingForThePlace] {
        for seed in 0..5 {
            let (rig, tap, device, [s, t]) = rig(seed);
            let name: RawStream = raw(&s);
            let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
            x.fill(&s, 1).unwrap();
            let place: Completion = s.record().unwrap();
            // Held: the allocation, and nothing before it, is still to come when its memory is used.
            let (sim, stream) = (rig.sim.clone(), s.clone());
            let memory = Arc::new(Mutex::new(None));
            let place_for = memory.clone();
            let allocate: Box<dyn FnOnce() + Send> = Box::new(move || {
                sim.hold_stream(name);
                *place_for.lock().unwrap() = Some(CudaBuffer::<u32>::new_on(&stream, N).unwrap());
            });
            match told {
                WhileItWaits => {
                    tap.after_synchronize(allocate);
                    s.synchronize().unwrap();
                }
                ByWaiting => {
                    s.synchronize().unwrap();
                    allocate();
                }
                ByAsking => {
                    rig.sim.run_all();
                    assert!(place.is_complete().unwrap());
                    allocate();
                }
                ByWaitingForThePlace => {
                    place.wait().unwrap();
                    allocate();
                }
            }
            let mut y = memory.lock().unwrap().take().unwrap();
            y.fill(&t, 2).unwrap();
            // What could run without the allocation does.
            rig.sim.run_all();
            rig.sim.release_stream(name);
            assert_eq!(y.to_vec().unwrap(), [2; N]);
            drop((x, y, place, s, t, device));
            rig.finish();
        }
    }
}

/// A thread that waits for a stream, and another one that begins to capture it in the middle of that: the capture begins when the wait is
/// over, and is not broken by it.
#[test]
fn a_capture_begins_after_a_wait_that_it_meets() {
    for joins in [false, true] {
        let (rig, tap, device, [s, t]) = rig(1);
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 1).unwrap();
        let (begin, begun) = channel();
        let (captured, is_captured) = channel();
        let (waited, has_waited) = channel();
        tap.before_synchronize(move || {
            begin.send(()).unwrap();
            // Long enough for a capture that does not heed the wait.
            let _ = is_captured.recv_timeout(Duration::from_millis(20));
        });
        let graph = std::thread::scope(|scope| {
            let waited = waited;
            let (s, t, x) = (&s, &t, &mut x);
            let other = scope.spawn(move || {
                begun.recv().unwrap();
                let (first, second) = if joins { (t, s) } else { (s, t) };
                first.capture(|capture| {
                    capture.join(second)?;
                    // Nobody listens any more where the wait is over.
                    let _ = captured.send(());
                    has_waited.recv().unwrap();
                    x.fill(second, 2)
                })
            });
            s.synchronize().unwrap();
            waited.send(()).unwrap();
            other.join().unwrap().unwrap()
        });
        graph.launch(&t).unwrap();
        assert_eq!(x.to_vec().unwrap(), [2; N]);
        drop((graph, x, s, t, device));
        rig.finish();
    }
}
