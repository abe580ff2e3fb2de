//! What is done with each step: dropped in every order, and made to fail in every way.

use crate::Outcome;
use crate::shape::{Input, Shape, Space};
use crate::subject::Subject;
use crate::world::{N, Part, Values, World};
use cuda_buffer::{BufferError, CaptureStep, CudaBuffer, DeviceData};
use cuda_driver::{Call, ErrorCode};
use cuda_runtime::{RuntimeError, Stream};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What an injected failure returns: an error that no device is lost by.
const CODE: ErrorCode = ErrorCode::LAUNCH_OUT_OF_RESOURCES;

/// The cases that a shape has passed and failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
}

impl Tally {
    fn enter(&mut self, shape: &Shape, case: &str, outcome: Outcome) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(error) => self.failed.push(format!("{shape}, {case}: {error}")),
        }
    }
}

/// Why a shape can't be tried here.
pub(crate) fn not_applicable(subject: &Subject, shape: &Shape) -> Outcome<Option<&'static str>> {
    Ok(match shape.input {
        Input::Peer if subject.device_count()? < 2 => Some("a peer copy takes a second device"),
        _ => None,
    })
}

/// Every case of a shape; of the orders of drops, every `stride`th from `first` on.
pub(crate) fn run(subject: &Subject, shape: Shape, first: usize, stride: usize) -> Tally {
    let mut tally = Tally::default();
    if shape.input == Input::Pageable {
        tally.enter(&shape, "refused", refused(subject, shape, pageable));
        tally.enter(&shape, "refused, read", refused(subject, shape, read));
        return tally;
    }
    let orders = orders(shape.space != Space::Eager);
    for order in orders.iter().skip(first % stride).step_by(stride) {
        let case = format!("dropped in the order {order:?}");
        tally.enter(&shape, &case, dropped(subject, shape, order));
    }
    for (case, refuse) in REFUSALS {
        tally.enter(&shape, case, refused(subject, shape, *refuse));
    }
    tally.enter(&shape, "panic inside", panics(subject, shape));
    match calls(subject, shape) {
        Ok(calls) => {
            for (call, count) in calls {
                let case = format!("{call} fails");
                tally.enter(&shape, &case, fails(subject, shape, call, count));
            }
        }
        Err(error) => tally.enter(&shape, "calls counted", Err(error)),
    }
    tally
}

/// Every order of the parts.
fn orders(arena: bool) -> Vec<Vec<Part>> {
    let mut parts = vec![Part::Buffers, Part::Graph, Part::Streams];
    if arena {
        parts.push(Part::Arena);
    }
    let mut orders = vec![Vec::new()];
    for part in parts {
        let longer = orders.iter().flat_map(|order: &Vec<Part>| {
            (0..=order.len()).map(move |at| {
                let mut order = order.clone();
                order.insert(at, part);
                order
            })
        });
        orders = longer.collect();
    }
    orders
}

/// A captured step computes, and everything can be dropped in this order while a replay is under way.
fn dropped(subject: &Subject, shape: Shape, order: &[Part]) -> Outcome {
    let seed = order.iter().fold(0, |seed, part| 4 * seed + *part as u64);
    let mut world = World::new(subject, shape, seed)?;
    world.capture_and_replay()?;
    world.replay()?;
    for part in order {
        world.drop_part(*part);
    }
    world.finish()
}

/// Something that a step may not do.
type Refusal = fn(&mut Values, &Stream) -> Outcome;

const REFUSALS: &[(&str, Refusal)] = &[
    ("error inside", |_, _| Err(OWN.into())),
    ("allocation inside", |_, stream| {
        CudaBuffer::<f32>::new_on(stream, 4)?;
        Ok(())
    }),
    ("wait inside", |_, stream| {
        stream.synchronize()?;
        Ok(())
    }),
    ("capture inside", |_, stream| {
        stream.capture(|_| Ok::<(), BufferError>(()))?;
        Ok(())
    }),
    ("read inside", read),
];

/// The error of a step that has one of its own.
const OWN: &str = "the step's own error";

/// A copy to plain memory, which would have to wait.
fn read(values: &mut Values, _: &Stream) -> Outcome {
    values.x.to_vec()?;
    Ok(())
}

/// A copy from plain memory, whose bytes a replay would read when they are long gone.
fn pageable(values: &mut Values, _: &Stream) -> Outcome {
    values.x.copy_from_slice(&[1.0; N * N])?;
    Ok(())
}

/// Whether an error says that a capture forbids what was asked for, or is the step's own.
fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    let own = error.to_string() == OWN;
    let by_runtime = |error: &RuntimeError| matches!(error, RuntimeError::CaptureActive { .. });
    let runtime = error.downcast_ref().is_some_and(by_runtime);
    let buffer = match error.downcast_ref() {
        Some(BufferError::Runtime(error)) => by_runtime(error),
        _ => false,
    };
    own || runtime || buffer
}

/// The step ends with a clear error, and the streams are as usable as before.
fn refused(subject: &Subject, shape: Shape, refusal: Refusal) -> Outcome {
    let mut world = World::new(subject, shape, 1)?;
    match world.capture(refusal) {
        Ok(_) => return Err("it was captured".into()),
        Err(error) if is_refusal(&*error) => {}
        Err(error) => return Err(format!("another error came: {error}").into()),
    }
    world.capture_and_replay()?;
    world.finish()
}

/// A panic goes through the capture, which ends.
fn panics(subject: &Subject, shape: Shape) -> Outcome {
    let mut world = World::new(subject, shape, 2)?;
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        world.capture(|_, _| std::panic::resume_unwind(Box::new(OWN)))
    }));
    match unwound {
        Err(payload) if payload.downcast_ref() == Some(&OWN) => {}
        Err(_) => return Err("another panic came".into()),
        Ok(_) => return Err("the panic was swallowed".into()),
    }
    world.capture_and_replay()?;
    world.finish()
}

/// The calls that capturing the step makes.
fn calls(subject: &Subject, shape: Shape) -> Outcome<Vec<(Call, u64)>> {
    let mut world = World::new(subject, shape, 3)?;
    world.made.failing.watch();
    let graph = world.capture(|_, _| Ok(()));
    let seen = world.made.failing.finish();
    drop(graph?);
    world.finish()?;
    Ok(seen.calls.into_iter().collect())
}

/// Each call of this name fails once, and the next capture is as if nothing had been.
fn fails(subject: &Subject, shape: Shape, call: Call, count: u64) -> Outcome {
    let mut world = World::new(subject, shape, 4)?;
    for n in 1..=count {
        world.made.failing.fail(call, n, CODE);
        let captured = world.capture(|_, _| Ok(()));
        let seen = world.made.failing.finish();
        let parked = world.device().check();
        if !seen.failed {
            return Err(format!("call {n} of {count} was not made again").into());
        }
        let told = captured.is_err() || parked.is_err();
        if !told && !HARMLESS.contains(&call) {
            return Err(format!("the failure of call {n} was told by nobody").into());
        }
        drop(captured);
        let again = world.capture_and_replay();
        again.map_err(|error| format!("after call {n} had failed: {error}"))?;
    }
    match call {
        Call::EventDestroy | Call::GraphDestroy => world.finish_after_failed_destruction(),
        _ => world.finish(),
    }
}

/// Calls whose failure changes nothing: the thread keeps its mode, the question is asked again.
const HARMLESS: [Call; 2] = [
    Call::ThreadExchangeStreamCaptureMode,
    Call::StreamGetCaptureInfo,
];
