//! The bookkeeping, step by step.

use super::*;
use crate::Cause;

fn take(epochs: &mut Epochs, write: bool) -> Key {
    epochs.take(write, None, Location::caller())
}

fn failed() -> Outcome {
    Outcome::Failed(Failure::new("test", Location::caller(), Cause::Dropped))
}

fn sizes(epochs: &Epochs) -> (usize, usize) {
    (epochs.entries.room(), epochs.queue.len())
}

#[test]
fn tickets_that_come_and_go_leave_no_hole() {
    let mut epochs = Epochs::new();
    let front = take(&mut epochs, true);
    for round in 0..10_000 {
        let (read, write, last) = (
            take(&mut epochs, false),
            take(&mut epochs, true),
            take(&mut epochs, false),
        );
        // In every order that three can have.
        let mut ends = [(read, 0), (write, 1), (last, 2)];
        ends.rotate_left(round % 3);
        if round % 2 == 0 {
            ends.swap(0, 1);
        }
        for (key, which) in ends {
            epochs.finish(key, if which == 1 { failed() } else { Outcome::Read });
        }
        // The place of a write that was given up, which readers still have to learn of.
        assert!(sizes(&epochs).1 <= 3, "{epochs:?}");
    }
    assert!(sizes(&epochs).0 <= 4);
    epochs.turn(front, None).unwrap();
    epochs.finish(front, Outcome::Written);
    assert_eq!(sizes(&epochs).1, 0);
    assert!(epochs.failure().is_some());
}

/// Of tickets that overlap, the last one is always there.
#[test]
fn tickets_that_overlap_leave_no_hole() {
    for kinds in [&[true][..], &[true, false], &[false, true, true]] {
        let mut epochs = Epochs::new();
        let front = take(&mut epochs, true);
        let mut kinds = kinds.iter().copied().cycle();
        let mut next = |epochs: &mut Epochs| {
            let write = kinds.next().unwrap();
            (take(epochs, write), write)
        };
        let mut last = next(&mut epochs);
        for _ in 0..10_000 {
            let (key, write) = std::mem::replace(&mut last, next(&mut epochs));
            epochs.finish(key, if write { failed() } else { Outcome::Read });
            assert!(sizes(&epochs).1 <= 4 * KEPT, "{:?}", sizes(&epochs));
        }
        assert!(sizes(&epochs).0 <= 4);
        let (key, write) = last;
        assert!(epochs.turn(key, None).is_none());
        epochs.finish(front, Outcome::Written);
        // The writes that were given up before it.
        assert!(epochs.turn(key, None).unwrap().is_some());
        epochs.finish(
            key,
            if write {
                Outcome::Written
            } else {
                Outcome::Read
            },
        );
        assert_eq!(sizes(&epochs).1, 0);
        assert!(epochs.queue.capacity() <= 2 * KEPT);
    }
}

/// What tickets find at their turn does not depend on whether holes were closed before.
#[test]
fn holes_are_closed_unnoticed() {
    fn number(failure: Option<Failure>) -> Option<u32> {
        failure.map(|failure| failure.site().line())
    }
    fn at_line(line: usize) -> Outcome {
        let at = SITES[line % SITES.len()]();
        Outcome::Failed(Failure::new("test", at, Cause::Dropped))
    }
    const SITES: [fn() -> &'static Location<'static>; 3] = [
        || Location::caller(),
        || Location::caller(),
        || Location::caller(),
    ];
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for _ in 0..50 {
        let [mut lazy, mut eager] = [Epochs::new(), Epochs::new()];
        let mut tickets = Vec::new();
        for _ in 0..60 {
            let write = random(2) == 0;
            tickets.push((write, [take(&mut lazy, write), take(&mut eager, write)]));
        }
        for at in 0..40 {
            let (write, [one, other]) =
                tickets.remove(1 + random(tickets.len() as u64 - 1) as usize);
            let outcome = || if write { at_line(at) } else { Outcome::Read };
            lazy.finish(one, outcome());
            eager.finish(other, outcome());
            eager.close_holes(&mut Ended::default());
        }
        assert!(sizes(&eager).1 <= 2 * tickets.len());
        for (write, [one, other]) in tickets {
            let of = |epochs: &mut Epochs, key| epochs.turn(key, None).map(number);
            let found = of(&mut lazy, one);
            assert!(found.is_some());
            assert_eq!(found, of(&mut eager, other));
            let outcome = || {
                if write {
                    Outcome::Written
                } else {
                    Outcome::Read
                }
            };
            lazy.finish(one, outcome());
            eager.finish(other, outcome());
        }
        assert_eq!(lazy.failure().is_some(), eager.failure().is_some());
        assert_eq!((sizes(&lazy).1, sizes(&eager).1), (0, 0));
    }
}

#[test]
fn a_long_queue_gives_its_room_back() {
    let mut epochs = Epochs::new();
    let keys: Vec<_> = (0..10_000)
        .map(|at| take(&mut epochs, at % 2 == 0))
        .collect();
    assert_eq!(sizes(&epochs), (10_000, 10_000));
    for (at, key) in keys.into_iter().enumerate() {
        assert!(epochs.turn(key, None).is_some());
        epochs.finish(
            key,
            if at % 2 == 0 {
                Outcome::Written
            } else {
                Outcome::Read
            },
        );
    }
    assert_eq!(sizes(&epochs), (0, 0));
    assert!(epochs.queue.capacity() <= 2 * KEPT);
}

#[test]
fn all_readers_of_an_epoch_are_woken_once() {
    let mut epochs = Epochs::new();
    let write = take(&mut epochs, true);
    let readers: Vec<_> = (0..10).map(|_| take(&mut epochs, false)).collect();
    let next = take(&mut epochs, true);
    for &key in &readers {
        assert!(epochs.turn(key, None).is_none());
        epochs.register(key, Waker::noop().clone());
    }
    epochs.register(next, Waker::noop().clone());
    let ended = epochs.finish(write, Outcome::Written);
    assert!(ended.wakes.len() == 10 && ended.waker.is_none());
    for (at, key) in readers.into_iter().enumerate() {
        epochs.turn(key, None).unwrap();
        let ended = epochs.finish(key, Outcome::Read);
        assert_eq!(ended.wakes.len(), usize::from(at == 9));
    }
}
