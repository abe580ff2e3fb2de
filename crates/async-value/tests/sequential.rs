//! Random programs mean what they would mean if each operation ran at once.

#![cfg(not(loom))]

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_value::{Async, AsyncError, SeededExecutor, TaskError, spawn};
use proptest::prelude::*;

const VALUES: usize = 4;
const NAMES: [&str; 12] = [
    "op0", "op1", "op2", "op3", "op4", "op5", "op6", "op7", "op8", "op9", "op10", "op11",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Set,
    Update,
    Take,
    /// Gives the ticket up without awaiting it.
    Drop,
    /// Awaits it, and drops the guard without a release.
    Lose,
    /// Releases the guard as it is.
    Keep,
    /// Reuses what is there, whatever it is.
    Overwrite,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Well,
    Error,
    Panic,
}

#[derive(Clone, Debug)]
struct Op {
    reads: Vec<usize>,
    writes: Vec<(usize, Action)>,
    /// After how many writes it ends early.
    end: (End, usize),
    yields: usize,
    /// Whether reads are kept until the end.
    keeps_reads: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("planned error of {0}")]
struct Planned(usize);

/// What a value is: there, absent, or failed by the operation of a number.
type State = Result<Option<i64>, usize>;

fn mix(op: usize, inputs: &[i64], write: usize) -> i64 {
    let mut hash = op as i64 * 31 + write as i64 + 7;
    for input in inputs {
        hash = hash.wrapping_mul(1_000_003).wrapping_add(*input);
    }
    hash
}

/// The meaning of an operation: the states after it, and what it saw.
fn model(op: usize, what: &Op, states: &mut [State; VALUES]) -> Vec<i64> {
    let mut inputs = Vec::new();
    let mut failed = None;
    for &read in &what.reads {
        match states[read] {
            Ok(Some(value)) => inputs.push(value),
            Ok(None) => failed = Some(op),
            Err(origin) => failed = Some(origin),
        }
        if failed.is_some() {
            break;
        }
    }
    for (at, &(write, action)) in what.writes.iter().enumerate() {
        if failed.is_none() && what.end.0 != End::Well && what.end.1 == at {
            failed = Some(op);
        }
        if let Some(origin) = failed {
            states[write] = Err(origin);
            continue;
        }
        states[write] = match (action, states[write]) {
            (Action::Set, _) | (Action::Overwrite, _) => Ok(Some(mix(op, &inputs, write))),
            (Action::Drop | Action::Lose, _) => Err(op),
            (Action::Keep, state) => state,
            (Action::Update, Ok(Some(value))) => {
                Ok(Some(mix(op, &inputs, write).wrapping_add(value)))
            }
            (Action::Take, Ok(Some(_))) => Ok(None),
            (Action::Update | Action::Take, Ok(None)) => Err(op),
            (Action::Update | Action::Take, Err(origin)) => Err(origin),
        };
        if let (Action::Update | Action::Take, Err(origin)) = (action, states[write]) {
            failed = Some(origin);
        }
    }
    // A failure told to nobody but the task: those given up with `Drop` before it get it, too, if it is in the same poll.
    inputs
}

struct Yield(usize);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

type Log = Arc<Mutex<Vec<(usize, Vec<i64>)>>>;

fn queue(executor: &SeededExecutor, values: &[Async<i64>], op: usize, what: &Op, log: &Log) {
    let queued = spawn(executor, NAMES[op], || {
        let reads: Vec<_> = what.reads.iter().map(|&at| values[at].read()).collect();
        let writes: Vec<_> = what
            .writes
            .iter()
            .map(|&(at, _)| values[at].write())
            .collect();
        let (what, log) = (what.clone(), log.clone());
        async move {
            let mut inputs = Vec::new();
            let mut kept = Vec::new();
            for read in reads {
                Yield(what.yields).await;
                let guard = read.await?;
                inputs.push(*guard);
                if what.keeps_reads {
                    kept.push(guard);
                }
            }
            log.lock().unwrap().push((op, inputs.clone()));
            for (at, (write, (to, action))) in writes.into_iter().zip(&what.writes).enumerate() {
                if what.end.1 == at {
                    match what.end.0 {
                        End::Well => {}
                        End::Error => return Err(Planned(op).into()),
                        End::Panic => panic!("planned panic of {op}"),
                    }
                }
                Yield(what.yields).await;
                if *action == Action::Drop {
                    drop(write);
                    Yield(1).await;
                    continue;
                }
                let mut guard = write.await;
                Yield(what.yields).await;
                match action {
                    Action::Set => guard.set(mix(op, &inputs, *to)),
                    Action::Update => {
                        let value = guard.get_mut()?;
                        *value = value.wrapping_add(mix(op, &inputs, *to));
                        guard.release();
                    }
                    Action::Take => {
                        guard.take()?;
                        guard.release();
                    }
                    Action::Lose => {
                        drop(guard);
                        Yield(1).await;
                    }
                    Action::Keep => guard.release(),
                    Action::Overwrite => {
                        match guard.overwrite() {
                            Some(place) => *place = mix(op, &inputs, *to),
                            None => drop(guard.put(mix(op, &inputs, *to))),
                        }
                        guard.release();
                    }
                    Action::Drop => unreachable!("above"),
                }
            }
            Ok::<(), TaskError>(())
        }
    });
    queued.unwrap();
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let action = prop_oneof![
        6 => Just(Action::Set),
        4 => Just(Action::Update),
        1 => Just(Action::Take),
        1 => Just(Action::Drop),
        1 => Just(Action::Lose),
        1 => Just(Action::Keep),
        1 => Just(Action::Overwrite),
    ];
    let end = prop_oneof![8 => Just(End::Well), 1 => Just(End::Error), 1 => Just(End::Panic)];
    let op = (
        prop::collection::vec(action, VALUES),
        prop::collection::vec(0..4_u8, VALUES),
        (end, 0..3_usize),
        0..3_usize,
        any::<bool>(),
    )
        .prop_map(|(actions, roles, end, yields, keeps_reads)| Op {
            reads: (0..VALUES)
                .filter(|&at| roles[at] == 1 || roles[at] == 3)
                .collect(),
            writes: (0..VALUES)
                .filter(|&at| roles[at] == 2)
                .map(|at| (at, actions[at]))
                .collect(),
            end,
            yields,
            keeps_reads,
        });
    prop::collection::vec(op, 1..NAMES.len())
}

fn check(ops: &[Op], seed: u64) {
    let mut states: [State; VALUES] = [Ok(Some(0)), Ok(Some(1)), Ok(None), Ok(Some(3))];
    let executor = SeededExecutor::new(seed);
    let log = Log::default();
    let values: Vec<Async<i64>> = states
        .iter()
        .map(|state| state.unwrap().map_or_else(Async::empty, Async::new))
        .collect();
    let mut seen = Vec::new();
    for (op, what) in ops.iter().enumerate() {
        queue(&executor, &values, op, what, &log);
        // A part of the work is done while the program is still queued.
        for _ in 0..(seed as usize + op) % 3 {
            executor.step();
        }
        let before = states;
        let inputs = model(op, what, &mut states);
        if what
            .reads
            .iter()
            .all(|&at| matches!(before[at], Ok(Some(_))))
        {
            seen.push((op, inputs));
        }
    }
    executor.run().unwrap();
    for (value, state) in values.iter().zip(&states) {
        let found = match value.try_read() {
            Ok(guard) => Ok(Some(*guard)),
            Err(AsyncError::Empty { .. }) => Ok(None),
            Err(AsyncError::Failed(failure)) => Err(NAMES
                .iter()
                .position(|name| *name == failure.operation())
                .unwrap()),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(found, *state, "seed {seed}");
        value.try_write().unwrap().set(1);
        assert_eq!(*value.try_read().unwrap(), 1);
    }
    let mut log = std::mem::take(&mut *log.lock().unwrap());
    log.sort();
    assert_eq!(log, seen, "seed {seed}");
}

#[test]
fn programs_equal_their_sequential_meaning_under_every_order() {
    quiet();
    // `CARVE_CASES=10` runs ten times as many.
    let times: u32 = std::env::var("CARVE_CASES").map_or(1, |times| times.parse().unwrap());
    let cases = 96 * times;
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    proptest!(config, |(ops in ops(), seeds in any::<u64>())| {
        for seed in 0..12 {
            check(&ops, seeds.wrapping_add(seed));
        }
    });
}

/// Planned panics are not printed.
fn quiet() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let planned = info.payload().downcast_ref::<String>();
        if !planned.is_some_and(|text| text.starts_with("planned")) {
            hook(info);
        }
    }));
}
