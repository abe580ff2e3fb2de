//! A described struct of six entries.

use std::hint::black_box;

use space_arena::{Arena, HostSlab};
use space_core::{Describe, Mode, Space, Spec, Undef};

use super::{Lens, address};

#[derive(Describe)]
struct Six<M: Mode> {
    a: M::Of<f32, [usize; 1]>,
    b: M::Of<f32, [usize; 1]>,
    c: M::Of<f32, [usize; 1]>,
    d: M::Of<f32, [usize; 1]>,
    e: M::Of<f32, [usize; 1]>,
    f: M::Of<f32, [usize; 1]>,
}

#[inline(never)]
pub(crate) fn structs_of_six(arena: &mut Arena<HostSlab>, lens: &Lens) -> usize {
    let frame = arena.frame();
    let frame = black_box(&frame);
    let mut sink = 0;
    for n in lens.as_chunks::<6>().0 {
        let spec = Six::<Spec> {
            a: Undef::new([n[0]]),
            b: Undef::new([n[1]]),
            c: Undef::new([n[2]]),
            d: Undef::new([n[3]]),
            e: Undef::new([n[4]]),
            f: Undef::new([n[5]]),
        };
        let six = frame.alloc(spec).unwrap();
        sink ^= address(&six.a) ^ address(&six.b) ^ address(&six.c);
        sink ^= address(&six.d) ^ address(&six.e) ^ address(&six.f);
    }
    sink
}
