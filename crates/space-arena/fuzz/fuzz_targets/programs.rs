//! The programs of the property tests, found by the fuzzer instead of drawn at random.
//!
//! `cargo +nightly fuzz run programs -- -max_total_time=60` in `crates/space-arena`.

#![no_main]

#[path = "../../tests/support/model.rs"]
mod model;
#[path = "../../tests/support/program.rs"]
mod program;

use libfuzzer_sys::fuzz_target;
use program::{Kind, Step};
use space_arena::{Arena, HostSlab};
use space_core::Alignment;

fuzz_target!(|bytes: &[u8]| {
    let [carve, max, capacity, steps @ ..] = bytes else {
        return;
    };
    let alignment = Alignment::new(1 << (carve % 10))
        .and_then(|alignment| alignment.up_to(1 << (6 + max % 6)))
        .expect("powers of two");
    let slab = HostSlab::new(usize::from(*capacity) << 7).expect("32 KiB");
    // A capacity that ends inside the pad is an error, and no program.
    if let Ok(mut arena) = Arena::aligned(slab, alignment) {
        let (steps, _) = decode(steps, 0);
        model::run_all(&mut arena, &steps);
    }
});

/// Steps until the bytes end or a frame does, and the bytes after that.
fn decode(mut bytes: &[u8], depth: usize) -> (Vec<Step>, &[u8]) {
    let mut steps = Vec::new();
    while let [what, rest @ ..] = bytes {
        bytes = rest;
        let mut number = || match bytes {
            [number, rest @ ..] => {
                bytes = rest;
                usize::from(*number)
            }
            [] => 0,
        };
        let step = match what % 16 {
            0..=4 => Step::Carve(kind(what / 16), number()),
            5 => Step::Several([number(), number(), 8 * number()]),
            6 if depth == 0 => Step::Mark,
            7 if depth == 0 => Step::Retract(number()),
            8 if depth == 0 => Step::Reset,
            9..=12 if depth < 8 => {
                let (inner, rest) = decode(bytes, depth + 1);
                bytes = rest;
                Step::Frame(inner)
            }
            _ if depth > 0 => break,
            _ => continue,
        };
        steps.push(step);
    }
    (steps, bytes)
}

fn kind(number: u8) -> Kind {
    match number % 6 {
        0 => Kind::U8,
        1 => Kind::Triple,
        2 => Kind::F32,
        3 => Kind::Quad,
        4 => Kind::Wide,
        _ => Kind::Empty,
    }
}
