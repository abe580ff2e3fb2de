//! What a program is made of.

/// One step of a program.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Carve(Kind, usize),
    /// All of these in one description.
    Several([usize; 3]),
    Mark,
    /// Retract to the n-th latest mark.
    Retract(usize),
    Reset,
    Frame(Vec<Step>),
}

/// An element type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    U8,
    Triple,
    F32,
    Quad,
    Wide,
    Empty,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
#[expect(dead_code, reason = "there for its size and alignment")]
pub(crate) struct Wide([u8; 64]);

pub(crate) fn layout(kind: Kind, len: usize) -> (usize, usize) {
    fn of<T>(len: usize) -> (usize, usize) {
        (len * size_of::<T>(), align_of::<T>())
    }
    match kind {
        Kind::U8 => of::<u8>(len),
        Kind::Triple => of::<[u16; 3]>(len),
        Kind::F32 => of::<f32>(len),
        Kind::Quad => of::<[f32; 4]>(len),
        Kind::Wide => of::<Wide>(len),
        Kind::Empty => of::<()>(len),
    }
}

pub(crate) fn in_frame(step: &Step) -> bool {
    matches!(step, Step::Carve(..) | Step::Several(_) | Step::Frame(_))
}
