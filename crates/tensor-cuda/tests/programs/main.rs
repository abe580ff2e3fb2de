//! Random programs on asynchronous tensors mean what they would mean if each operation ran at once, under every order of the executor
//! and of the device: products, elementwise operations, reductions, transfers, copies, drops, early releases, failures, panics and
//! cancellations.
//!
//! `CARVE_CASES` sets the number of programs, and `CARVE_SEED` the first of their seeds.

mod meaning;
mod program;
mod queue;

use async_value::{AsyncError, Cause, Limited, SeededExecutor, Spawn, TaskId};
use cuda_runtime::Runtime;
use cuda_sim::{Schedule, SimDriver};
use meaning::{End, State};
use program::{Kind, MATRICES, Op, Random, SLOTS, program};
use queue::Values;
use std::collections::HashMap;
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
    let (first, cases) = (number("CARVE_SEED", 0), number("CARVE_CASES", 80));
    let mut ends = [0; 5];
    for seed in first..first + cases {
        for order in 0..ORDERS {
            check(seed, order, &mut ends);
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

/// One program under one order.
fn check(seed: u64, order: u64, ends: &mut [usize; 5]) {
    let context = format!("CARVE_SEED={seed}, order {order}");
    let mut random = Random::new(seed * ORDERS + order);
    let schedule = Schedule::Stepped {
        seed: random.next(),
    };
    let simulation = SimDriver::builder().devices(2).schedule(schedule);
    let builder = Runtime::builder().streams_per_device(1 + random.below(4));
    let runtime = builder.simulation(simulation).build().unwrap();
    for device in runtime.devices() {
        Blas::of(device).set_handles(1 + random.below(3));
    }
    let executor = SeededExecutor::new(random.next());
    let limited = (random.below(3) == 0).then(|| Limited::new(executor.clone(), 3));

    let mut ops = program(seed);
    let mut values = Values::default();
    let mut tasks: HashMap<TaskId, usize> = HashMap::new();
    let mut hosts = Vec::new();
    for at in 0..ops.len() {
        let place = limited
            .as_ref()
            .map(|limited| executor.run_until(limited.place()).unwrap());
        let on: &dyn Spawn = match &place {
            Some(place) => place,
            None => &executor,
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
        if random.below(80) == 0 {
            abort(&executor, &tasks, &mut ops, &mut random);
        }
    }
    for _ in 0..random.below(4) / 2 {
        for _ in 0..random.below(20) {
            executor.step();
        }
        abort(&executor, &tasks, &mut ops, &mut random);
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
