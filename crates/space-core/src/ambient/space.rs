//! The ambient space as a space.

use std::alloc::Layout;

use super::{AmbientBlock, AmbientLevel, AmbientOrBlock, Bound, Restore, SLOT, local};
use crate::{AllocError, Checkpoint, Describe, Frame, Host, Space, frame::scratch_over};

/// The ambient space of the thread that asks, whatever is bound at the moment.
///
/// As a space it serves everywhere one is taken, [`Allocating`] verbs included:
/// `Allocating(&verb).run(&mut Ambient)`. Its [`scratch`](Space::scratch) hands out a frame of the
/// bound arena, and nothing is bound while that is open; [`with_space`](super::with_space) of the
/// frame binds again. To keep the binding, use [`ambient_scratch`](super::ambient_scratch).
///
/// [`Allocating`]: https://docs.rs/space-arena/latest/space_arena/struct.Allocating.html
#[derive(Debug, Clone, Copy, Default)]
pub struct Ambient;

/// The ambient space, if there is one.
///
/// # Errors
///
/// [`AllocError::Unbound`].
pub fn ambient_space() -> Result<Ambient, AllocError> {
    match SLOT.get() {
        Some(_) => Ok(Ambient),
        None => Err(AllocError::Unbound),
    }
}

/// The ambient space, or `default` where none is bound.
///
/// ```
/// use space_core::{AllocError, Heap, Space, Undef, ambient_space_or};
/// let x = ambient_space_or(Heap).alloc(Undef::<f32, _>::new([3]))?;
/// assert_eq!(x.len(), 3);
/// # Ok::<(), AllocError>(())
/// ```
pub fn ambient_space_or<S: Space<Family = Host>>(default: S) -> AmbientOr<S> {
    match SLOT.get() {
        Some(_) => AmbientOr::Ambient(Ambient),
        None => AmbientOr::Default(default),
    }
}

/// Materialises a description in the ambient space. The arrays have no lifetime.
///
/// # Errors
///
/// [`AllocError::Unbound`]; [`AllocError::BorrowedSlab`] and [`AllocError::NotAnArena`] if the
/// space that is bound can't keep an array beyond its frame; and those of [`Space::alloc`].
pub fn ambient_alloc<D: Describe<AmbientBlock>>(description: D) -> Result<D::Out, AllocError> {
    Ambient.alloc(description)
}

impl Space for Ambient {
    type Family = Host;
    type Block = AmbientBlock;

    fn block(&self, layout: Layout) -> Result<AmbientBlock, AllocError> {
        match SLOT.get() {
            None => Err(AllocError::Unbound),
            Some(Bound::Local(cursor)) => {
                // SAFETY: No code of a caller runs in this arm, so the binding outlasts it.
                let cursor = unsafe { local(cursor) };
                let (place, token) = cursor.carve_ambient(layout)?;
                // SAFETY: The cursor gave the bytes out for this block, and gives back none that
                // are held by a token.
                Ok(unsafe { AmbientBlock::carved(place, layout.size(), token) })
            }
            Some(Bound::Shared(scope)) => {
                // SAFETY: The binding holds the scope until it ends, which is after this call.
                let scope = unsafe { scope.as_ref() };
                scope.block(layout)
            }
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        match SLOT.get() {
            Some(Bound::Local(cursor)) => {
                // SAFETY: No code of a caller runs in this arm, so the binding outlasts it.
                unsafe { local(cursor) }.checkpoint()
            }
            _ => Checkpoint::NONE,
        }
    }

    unsafe fn rollback(&self, to: Checkpoint) {
        if let Some(Bound::Local(cursor)) = SLOT.get() {
            // SAFETY: No code of a caller runs in this arm, so the binding outlasts it.
            let cursor = unsafe { local(cursor) };
            // SAFETY: No code of a caller ran since the checkpoint, so the binding is the same;
            // the rest is handed on.
            unsafe { cursor.rollback_ambient(to) };
        }
    }

    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, Host>) -> R) -> R {
        let Some(Bound::Local(cursor)) = SLOT.get() else {
            return scratch_over(self, body);
        };
        // SAFETY: The binding that is in the slot outlasts this call. It is taken out of the slot
        // meanwhile, so the frame below is the only way to the cursor.
        let cursor = unsafe { local(cursor) };
        let _suspended = Restore::after(None);
        let _after = AmbientLevel::enter(cursor);
        let _level = cursor.open();
        body(&mut Frame::over(cursor))
    }
}

/// The ambient space, or another one where none was bound. See [`ambient_space_or`].
#[derive(Debug, Clone, Copy)]
pub enum AmbientOr<S> {
    /// The ambient space.
    Ambient(Ambient),
    /// The other one.
    Default(S),
}

impl<S: Space<Family = Host>> Space for AmbientOr<S> {
    type Family = Host;
    type Block = AmbientOrBlock<S::Block>;

    fn block(&self, layout: Layout) -> Result<Self::Block, AllocError> {
        match self {
            Self::Ambient(space) => space.block(layout).map(AmbientOrBlock::Ambient),
            Self::Default(space) => space.block(layout).map(AmbientOrBlock::Default),
        }
    }

    fn frame_opened(&self) {
        if let Self::Default(space) = self {
            space.frame_opened();
        }
    }

    fn frame_closed(&self) {
        if let Self::Default(space) = self {
            space.frame_closed();
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        match self {
            Self::Ambient(space) => space.checkpoint(),
            Self::Default(space) => space.checkpoint(),
        }
    }

    unsafe fn rollback(&self, to: Checkpoint) {
        match self {
            // SAFETY: Handed on.
            Self::Ambient(space) => unsafe { space.rollback(to) },
            // SAFETY: Handed on.
            Self::Default(space) => unsafe { space.rollback(to) },
        }
    }

    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, Host>) -> R) -> R {
        match self {
            Self::Ambient(space) => space.scratch(body),
            Self::Default(space) => space.scratch(body),
        }
    }
}
