//! Host allocations and driver calls in the steady state, over a driver that does nothing.

#[path = "../benches/costs/counting.rs"]
mod counting;
#[path = "../benches/costs/null.rs"]
mod null;
#[path = "../benches/costs/work.rs"]
mod work;

use work::{CASES, Under, World};

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

/// Operations that are counted; a tenth where one is of many parts.
const ROUNDS: u64 = 200;

/// What operations allocate on the host and call at the driver, after as many.
fn steady(name: &str) -> (u64, u64) {
    steady_over(Under::Null, name)
}

fn steady_over(under: Under, name: &str) -> (u64, u64) {
    let case = CASES.iter().find(|case| case.name == name);
    let case = case.expect("a case of this name");
    let rounds = ROUNDS / u64::from(case.per).min(10);
    let mut world = World::new(under);
    (0..rounds).for_each(|_| (case.run)(&mut world).unwrap());
    let (calls, allocated) = (world.calls().total(), counting::allocations());
    (0..rounds).for_each(|_| (case.run)(&mut world).unwrap());
    let allocated = counting::allocations() - allocated;
    world.check();
    (allocated, world.calls().total() - calls)
}

/// What operations cost over a driver that does nothing is right: the simulated device, which does everything at once and checks
/// it, finds nothing wrong, and is called as often.
#[test]
fn the_simulated_device_is_called_as_often_and_reports_nothing() {
    for case in CASES {
        let (_, calls) = steady_over(Under::Simulated, case.name);
        assert_eq!(calls, steady(case.name).1, "{}", case.name);
    }
}

/// The counter counts: a test that can't fail proves nothing.
#[test]
fn allocations_are_counted() {
    let before = counting::allocations();
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(counting::allocations() - before, 1);
}

/// What a buffer needs on the host is used again by the next one.
#[test]
fn buffers_allocate_nothing_on_the_host() {
    for (name, calls) in [
        ("allocate with new, drop", 2),
        ("allocate with new_on, drop", 2),
        ("allocate with new_on, fill, drop", 4),
    ] {
        assert_eq!(steady(name), (0, ROUNDS * calls), "{name}");
    }
}

#[test]
fn operations_allocate_nothing() {
    for (name, calls) in [
        ("operation, same stream", 2),
        ("operation, alternating streams", 3),
        ("copy, same stream", 2),
        // The copy, its event, and the wait for it on the host.
        ("copy from ordinary memory", 3),
    ] {
        assert_eq!(steady(name), (0, ROUNDS * calls), "{name}");
    }
}

#[test]
fn replays_allocate_nothing() {
    let name = "replay of a graph with three accesses";
    assert_eq!(steady(name), (0, ROUNDS * 2), "{name}");
}

#[test]
fn carves_allocate_nothing() {
    for (name, calls) in [
        ("frame with a carve, not used", 0),
        ("frame with a carve, filled twice", 4),
    ] {
        assert_eq!(steady(name), (0, ROUNDS * calls), "{name}");
    }
}

/// One event for all of a thousand parts, and none of its own when nothing is queued.
#[test]
fn access_of_all_parts_makes_no_call_of_its_own() {
    let (_, calls) = steady("write access of 1,000 parts, each");
    assert_eq!(calls, 0);
}
