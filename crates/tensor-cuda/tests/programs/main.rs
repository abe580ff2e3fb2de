//! Random programs on asynchronous tensors mean what they would mean if each operation ran at once, under every order of the executor
//! and of the device: products, elementwise operations, reductions, transfers, copies, drops, early releases, failures, panics and
//! cancellations.
//!
//! `CARVE_CASES=10` runs ten times as many programs, and `CARVE_SEED` sets the first of their seeds.

mod abort;
mod meaning;
mod program;
mod queue;

use abort::Aborting;
use async_value::{AsyncError, Cause, Limited, SeededExecutor, Spawn, TaskId};
use cuda_runtime::Runtime;
use cuda_sim::{Schedule, SimDriver};
use meaning::{End, State};
use program::{Kind, MATRICES, Op, Random, SLOTS, program};
use queue::Values;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tensor_cuda::Blas;

/// How often each program is run, with other orders.
const ORDERS: u64 = 3;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn programs_equal_their_sequential_meaning_under_every_order_of_executor_and_device() {
    quiet();
    let (first, cases) = (number("CARVE_SEED", 0), 80 * number("CARVE_CASES", 1));
    let mut ends = [0; 5];
    for seed in first..first + cases {
        for order in 0..ORDERS {
            check(seed, order, &mut ends, None);
        }
    }
    let [values, empty, errors, panics, cancelled] = ends;
    println!(
        "values at the end: {values} there, {empty} empty, {errors} failed, {panics} panicked, {cancelled} cancelled"
    );
    assert!(
        cases < 80 || ends.iter().all(|&count| count > 5),
        "{ends:?}"
    );
    assert!(values > errors + cancelled, "most operations do something");
}

/// One operation of a program after the other is dropped at each point where it waits: for values, for places under a limit, for
/// the only handle and the only stream of each device, and for the device.
#[test]
fn a_task_may_be_dropped_wherever_it_waits() {
    let mut aborted = 0;
    for seed in 0..2 * number("CARVE_CASES", 1) {
        for victim in 0..program(seed).len() {
            for polls in 0.. {
                let mut ends = [0; 5];
                if !check(seed, 0, &mut ends, Some((victim, polls))) {
                    break;
                }
                aborted += 1;
                assert!(polls < 100, "the task ends");
            }
        }
    }
    println!("{aborted} aborted");
    assert!(aborted > 100, "{aborted}");
}

/// One program under one order; with the number of an operation that is dropped after so many polls, or else with random ones dropped
/// at random moments. Whether the one was dropped before it ended.
fn check(seed: u64, order: u64, ends: &mut [usize; 5], victim: Option<(usize, u64)>) -> bool {
    let context = format!("CARVE_SEED={seed}, order {order}, dropped: {victim:?}");
    let mut random = Random::new(seed * ORDERS + order);
    let schedule = Schedule::Stepped {
        seed: random.next(),
    };
    let simulation = SimDriver::builder().devices(2).schedule(schedule);
    let (streams, handles) = match victim {
        Some(_) => (1, 1),
        None => (1 + random.below(4), 1 + random.below(3)),
    };
    let builder = Runtime::builder().streams_per_device(streams);
    let runtime = builder.simulation(simulation).build().unwrap();
    for device in runtime.devices() {
        Blas::of(device).set_handles(handles);
    }
    let executor = SeededExecutor::new(random.next());
    // In every other program all tasks that can wait for a lease do.
    let held = (victim.is_some() && seed % 2 == 1)
        .then(|| Blas::of(runtime.default_device()).lease().unwrap());
    let is_limited = random.below(3) == 0 || victim.is_some() && held.is_none();
    let limited = is_limited.then(|| Limited::new(executor.clone(), 3));

    let mut ops = program(seed);
    let mut values = Values::default();
    let mut tasks: HashMap<TaskId, usize> = HashMap::new();
    let mut hosts = Vec::new();
    let aborted = Arc::new(AtomicBool::new(false));
    for at in 0..ops.len() {
        let place = limited
            .as_ref()
            .map(|limited| executor.run_until(limited.place()).unwrap());
        let on: &dyn Spawn = match &place {
            Some(place) => place,
            None => &executor,
        };
        let aborting;
        let on = match victim {
            Some((victim, polls)) if victim == at => {
                let aborted = aborted.clone();
                aborting = Aborting {
                    executor: &executor,
                    admits: on,
                    polls,
                    aborted,
                };
                &aborting
            }
            _ => on,
        };
        let before = executor.tasks().last().copied();
        if let Some(host) = values.queue(on, runtime.devices(), &ops[at]) {
            hosts.push((at, host));
        }
        if let Some(&task) = executor
            .tasks()
            .last()
            .filter(|last| Some(**last) != before)
        {
            tasks.insert(task, at);
        }
        for _ in 0..random.below(8) {
            executor.step();
        }
        if random.below(80) == 0 && victim.is_none() {
            abort(&executor, &tasks, &mut ops, &mut random);
        }
    }
    for _ in 0..random.below(if victim.is_none() { 4 } else { 1 }) / 2 {
        for _ in 0..random.below(20) {
            executor.step();
        }
        abort(&executor, &tasks, &mut ops, &mut random);
    }
    if held.is_some() {
        while executor.step() {}
        drop(held);
    }
    let begun = Instant::now();
    while !executor.is_empty() {
        if !executor.step() {
            std::thread::yield_now();
        }
        if begun.elapsed() > Duration::from_secs(60) {
            panic!("{context}: stuck\n{}", executor.dump());
        }
    }

    let aborted = aborted.load(Ordering::Relaxed);
    if let Some((victim, _)) = victim {
        ops[victim].cancelled = aborted;
    }
    let (states, seen) = meaning::of(&ops);
    let mut compare = |found: Result<_, AsyncError>, expected: &State, what: String| {
        let end = expected
            .compare(found, &ops)
            .unwrap_or_else(|difference| panic!("{context}, {what}: {difference}\n{ops:#?}"));
        ends[end as usize] += 1;
    };
    for (at, host) in hosts {
        let found = host.try_read().map(|array| array.clone());
        compare(found, &seen[&at], format!("read by operation {at}"));
    }
    for (slot, state) in states.iter().enumerate().take(SLOTS) {
        let kind = if slot < MATRICES { "matrix" } else { "vector" };
        compare(values.read(slot), state, format!("{kind} {slot}"));
    }
    values.are_usable(runtime.devices(), &context);
    drop(values);
    assert!(limited.is_none_or(|limited| limited.limit() == 3));
    runtime.simulation().unwrap().assert_no_reports();
    for (device, alive) in runtime.shutdown().unwrap() {
        assert_eq!(alive, Default::default(), "{context}, {device:?}");
    }
    aborted
}

/// Drops one of the tasks that have not ended, wherever it waits.
fn abort(
    executor: &SeededExecutor,
    tasks: &HashMap<TaskId, usize>,
    ops: &mut [Op],
    random: &mut Random,
) {
    let left = executor.tasks();
    if left.is_empty() {
        return;
    }
    let task = left[random.below(left.len())];
    if executor.abort(task) {
        ops[tasks[&task]].cancelled = true;
    }
}

/// How a failure began.
fn end_of(cause: &Cause) -> End {
    match cause {
        Cause::Panic(_) => End::Panic,
        Cause::Cancelled => End::Cancelled,
        _ => End::Error,
    }
}

/// Planned panics are not printed.
fn quiet() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let planned = info.payload().downcast_ref::<&str>();
        if !planned.is_some_and(|text| text.starts_with("planned")) {
            hook(info);
        }
    }));
}

/// The name under which an operation fails.
fn name_of(kind: &Kind) -> &'static str {
    kind.name()
}
