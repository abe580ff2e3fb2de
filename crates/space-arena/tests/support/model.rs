//! Runs programs against an arena and a model of it, and compares.

use std::ops::Range;

use space_arena::{Arena, HostSlab};
use space_core::{AllocError, Frame, Host, Mark, Space, Undef};

use super::program::{Kind, Step, Wide, in_frame, layout};

/// What an arena must do, computed without memory.
#[derive(Debug, Clone)]
struct Model {
    capacity: usize,
    alignment: usize,
    offset: usize,
    watermark: usize,
    epoch: u64,
}

impl Model {
    fn carve(&mut self, bytes: usize, align: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let next = (self.offset + bytes).next_multiple_of(align.max(self.alignment));
        if next > self.capacity {
            return false;
        }
        self.offset = next;
        self.watermark = self.watermark.max(next);
        true
    }
}

/// What a program left behind: the address ranges of its carves, relative to the slab.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) carves: Vec<Range<usize>>,
    pub(crate) failures: usize,
}

/// A live carve, recorded as an address range and the pattern written to it.
struct Live<'a> {
    bytes: &'a mut [u8],
    pattern: u8,
}

fn carve_one<'a, T: Copy + 'static>(
    frame: &Frame<'a, Host>,
    len: usize,
) -> Result<&'a mut [u8], AllocError> {
    let array = frame.alloc(Undef::<T, _>::new([len]))?;
    let slots = array.into_slice();
    assert_eq!(slots.len(), len);
    assert_eq!(slots.as_ptr().addr() % align_of::<T>(), 0);
    let bytes = size_of_val(slots);
    let start = slots.as_mut_ptr().cast::<u8>();
    // SAFETY: The slots are exclusively ours; all their bytes are written here.
    unsafe { start.write_bytes(0, bytes) };
    // SAFETY: As above; every byte is written.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, bytes) })
}

fn carve<'a>(frame: &Frame<'a, Host>, kind: Kind, len: usize) -> Result<&'a mut [u8], AllocError> {
    match kind {
        Kind::U8 => carve_one::<u8>(frame, len),
        Kind::Triple => carve_one::<[u16; 3]>(frame, len),
        Kind::F32 => carve_one::<f32>(frame, len),
        Kind::Quad => carve_one::<[f32; 4]>(frame, len),
        Kind::Wide => carve_one::<Wide>(frame, len),
        Kind::Empty => carve_one::<()>(frame, len),
    }
}

/// Runs one step in a frame, next to the model.
fn run<'a>(
    frame: &mut Frame<'a, Host>,
    live: &mut Vec<Live<'a>>,
    model: &mut Model,
    slab: Range<usize>,
    trace: &mut Trace,
    step: &Step,
) {
    match step {
        Step::Carve(kind, len) => {
            let (bytes, align) = layout(*kind, *len);
            let result = carve(frame, *kind, *len);
            assert_eq!(result.is_ok(), model.carve(bytes, align), "{step:?}");
            match result {
                Ok(carved) if !carved.is_empty() => {
                    let range = carved.as_ptr_range();
                    let range = range.start.addr()..range.end.addr();
                    assert!(slab.start <= range.start && range.end <= slab.end);
                    assert_eq!(range.start % align.max(model.alignment), 0);
                    trace
                        .carves
                        .push(range.start - slab.start..range.end - slab.start);
                    let pattern = live.len() as u8 + 1;
                    carved.fill(pattern);
                    live.push(Live {
                        bytes: carved,
                        pattern,
                    });
                }
                Ok(_) => {}
                Err(AllocError::OutOfCapacity { .. }) => trace.failures += 1,
                Err(other) => panic!("{other}"),
            }
        }
        Step::Several([a, b, c]) => {
            let mut whole = model.clone();
            let fits = whole.carve(4 * a, 4) && whole.carve(*b, 1) && whole.carve(8 * c, 8);
            let made = frame.alloc((
                Undef::<f32, _>::new([*a]),
                Undef::<u8, _>::new([*b]),
                Undef::<u64, _>::new([*c]),
            ));
            assert_eq!(made.is_ok(), fits);
            if fits {
                *model = whole;
            } else {
                trace.failures += 1;
            }
        }
        Step::Frame(steps) => {
            let before = model.offset;
            frame.scratch(|inner| {
                let mut inner_live = Vec::new();
                for step in steps {
                    run(inner, &mut inner_live, model, slab.clone(), trace, step);
                }
                check(&inner_live);
            });
            model.offset = before;
        }
        Step::Mark | Step::Retract(_) | Step::Reset => unreachable!("not in a frame"),
    }
    assert_eq!(frame.offset(), model.offset);
    assert_eq!(frame.remaining(), model.capacity - model.offset);
}

/// That nobody else wrote to a live carve: carves are disjoint.
fn check(live: &[Live<'_>]) {
    for carve in live {
        assert!(carve.bytes.iter().all(|&byte| byte == carve.pattern));
    }
}

/// Runs a program; the carves between two marks live together.
pub(crate) fn run_all(arena: &mut Arena<HostSlab>, program: &[Step]) -> Trace {
    let base = arena.base().addr().get();
    let mut trace = Trace::default();
    let mut model = Model {
        capacity: arena.capacity(),
        alignment: arena.alignment().alignment(),
        offset: arena.offset(),
        watermark: arena.watermark(),
        epoch: arena.epoch().number(),
    };
    let slab = base..base + arena.capacity();
    let mut marks: Vec<(Mark, usize, u64)> = Vec::new();
    for run_of_steps in program.chunk_by(|a, b| in_frame(a) && in_frame(b)) {
        if run_of_steps.iter().all(in_frame) {
            let mut frame = arena.frame();
            let mut live = Vec::new();
            for step in run_of_steps {
                run(
                    &mut frame,
                    &mut live,
                    &mut model,
                    slab.clone(),
                    &mut trace,
                    step,
                );
            }
            check(&live);
        } else {
            match &run_of_steps[0] {
                Step::Mark => marks.push((arena.mark(), model.offset, model.epoch)),
                Step::Retract(n) if !marks.is_empty() => {
                    let (mark, offset, epoch) = marks[marks.len() - 1 - n % marks.len()];
                    let result = arena.retract(mark);
                    if epoch != model.epoch {
                        assert!(matches!(result, Err(AllocError::StaleMark { .. })));
                    } else if offset > model.offset {
                        assert!(matches!(
                            result,
                            Err(AllocError::MarkAboveOffset { mark_bytes, offset_bytes })
                                if mark_bytes == offset && offset_bytes == model.offset
                        ));
                    } else {
                        result.unwrap();
                        model.offset = offset;
                    }
                }
                Step::Reset => {
                    arena.reset().unwrap();
                    model.offset = 0;
                    model.epoch += 1;
                }
                _ => {}
            }
        }
        assert_eq!(arena.offset(), model.offset);
        assert_eq!(arena.watermark(), model.watermark);
        assert_eq!(arena.epoch().number(), model.epoch);
    }
    trace
}
