//! The ambient space as a space.

use std::{alloc::Layout, fmt, marker::PhantomData};

use super::{
    AmbientBlock, AmbientFamily, AmbientLevel, AmbientOrBlock, Bound, Restore, bound, local,
};
use crate::{
    AllocError, Checkpoint, Cursor, Describe, Frame, Host, Observer, Space, frame::scratch_over,
};

/// The ambient space of the thread that asks, whatever is bound at the moment, in host memory.
///
/// As a space it serves everywhere one is taken, [`Allocating`] verbs included:
/// `Allocating(&verb).run(&mut Ambient)`. Its [`scratch`](Space::scratch) hands out a frame of the
/// bound arena, and nothing is bound while that is open; [`with_space`](super::with_space) of the
/// frame binds again. To keep the binding, use [`ambient_scratch`](super::ambient_scratch).
///
/// [`Allocating`]: https://docs.rs/space-arena/latest/space_arena/struct.Allocating.html
#[derive(Debug, Clone, Copy, Default)]
pub struct Ambient;

/// The ambient space of the thread that asks, in memory of the family `F`: [`Ambient`] for any
/// family.
pub struct AmbientOf<F: AmbientFamily>(PhantomData<fn() -> F>);

/// The ambient space of host memory, as that of any family.
const HOST: AmbientOf<Host> = AmbientOf::new();

impl<F: AmbientFamily> AmbientOf<F> {
    /// The ambient space. Whether there is one shows when it is used.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// The ambient space, if there is one.
    ///
    /// # Errors
    ///
    /// [`AllocError::Unbound`].
    pub fn bound() -> Result<Self, AllocError> {
        match bound::<F>() {
            Some(_) => Ok(Self::new()),
            None => Err(AllocError::Unbound),
        }
    }

    /// Opens a scratch block on the ambient space, which stays bound:
    /// [`ambient_scratch`](super::ambient_scratch) for any family.
    ///
    /// # Errors
    ///
    /// [`AllocError::Unbound`].
    pub fn scratch_bound<R>(self, body: impl FnOnce() -> R) -> Result<R, AllocError> {
        match bound::<F>() {
            None => Err(AllocError::Unbound),
            Some(Bound::Shared(_)) => Ok(body()),
            Some(Bound::Local(cursor)) => {
                // SAFETY: The binding outlasts this call. Bindings made and ended in `body` leave
                // it.
                let cursor = unsafe { local(cursor) };
                let _after = AmbientLevel::enter(cursor);
                let _level = cursor.open();
                Ok(body())
            }
        }
    }
}

impl<F: AmbientFamily> Clone for AmbientOf<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: AmbientFamily> Copy for AmbientOf<F> {}

impl<F: AmbientFamily> Default for AmbientOf<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: AmbientFamily> fmt::Debug for AmbientOf<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AmbientOf<{}>", std::any::type_name::<F>())
    }
}

/// The ambient space of host memory, if there is one.
///
/// # Errors
///
/// [`AllocError::Unbound`].
pub fn ambient_space() -> Result<Ambient, AllocError> {
    AmbientOf::<Host>::bound().map(|_| Ambient)
}

/// The ambient space of the family of `default`, or `default` where none is bound.
///
/// ```
/// use space_core::{AllocError, Heap, Space, Undef, ambient_space_or};
/// let x = ambient_space_or(Heap).alloc(Undef::<f32, _>::new([3]))?;
/// assert_eq!(x.len(), 3);
/// # Ok::<(), AllocError>(())
/// ```
pub fn ambient_space_or<S: Space<Family: AmbientFamily>>(default: S) -> AmbientOr<S> {
    match AmbientOf::bound() {
        Ok(ambient) => AmbientOr::Ambient(ambient),
        Err(_) => AmbientOr::Default(default),
    }
}

/// Materialises a description in the ambient space of host memory. The arrays have no lifetime.
///
/// # Errors
///
/// [`AllocError::Unbound`]; [`AllocError::BorrowedSlab`] and [`AllocError::BlocksEndWithFrame`] if
/// the space that is bound can't keep an array beyond its frame; and those of [`Space::alloc`].
pub fn ambient_alloc<D: Describe<AmbientBlock>>(description: D) -> Result<D::Out, AllocError> {
    Ambient.alloc(description)
}

impl Space for Ambient {
    type Family = Host;
    type Block = AmbientBlock;

    #[inline]
    fn block(&self, layout: Layout) -> Result<AmbientBlock, AllocError> {
        HOST.block(layout)
    }

    fn checkpoint(&self) -> Checkpoint {
        HOST.checkpoint()
    }

    unsafe fn rollback(&self, to: Checkpoint) {
        // SAFETY: Handed on.
        unsafe { HOST.rollback(to) };
    }

    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, Host>) -> R) -> R {
        AmbientOf::new().scratch(body)
    }
}

impl<F: AmbientFamily> Space for AmbientOf<F> {
    type Family = F;
    type Block = AmbientBlock<F>;

    #[inline]
    fn block(&self, layout: Layout) -> Result<AmbientBlock<F>, AllocError> {
        match bound() {
            None => Err(AllocError::Unbound),
            Some(Bound::Local(cursor)) => {
                // SAFETY: The binding outlasts this call. Bindings that a space makes and ends
                // when it is asked leave it.
                let cursor = unsafe { local(cursor) };
                if let Some(lender) = cursor.lender() {
                    let _suspended = suspended_if_lent(cursor);
                    return lender.give(layout);
                }
                let (place, held) = cursor.carve_ambient(layout)?;
                // SAFETY: The cursor gave the bytes out for this block, and gives back none that
                // are held.
                Ok(unsafe { AmbientBlock::carved(place, layout.size(), held) })
            }
            Some(Bound::Shared(scope)) => {
                // SAFETY: The binding holds the scope until it ends, which is after this call.
                let scope = unsafe { scope.as_ref() };
                scope.block(layout)
            }
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        match bound::<F>() {
            Some(Bound::Local(cursor)) => {
                // SAFETY: As in `block`.
                let cursor = unsafe { local(cursor) };
                let _suspended = suspended_if_lent(cursor);
                cursor.checkpoint()
            }
            _ => Checkpoint::NONE,
        }
    }

    unsafe fn rollback(&self, to: Checkpoint) {
        if let Some(Bound::Local(cursor)) = bound::<F>() {
            // SAFETY: As in `block`.
            let cursor = unsafe { local(cursor) };
            let _suspended = suspended_if_lent(cursor);
            // SAFETY: No code of a caller ran since the checkpoint, so the binding is the same;
            // the rest is handed on.
            unsafe { cursor.rollback_ambient(to) };
        }
    }

    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, F>) -> R) -> R {
        let cursor = match bound() {
            Some(Bound::Local(cursor)) => cursor,
            // Not over `self`, which asks for what is bound: that could be this frame itself.
            // SAFETY: The binding outlasts this call.
            Some(Bound::Shared(scope)) => return scratch_over(unsafe { scope.as_ref() }, body),
            None => return scratch_over(&Nothing(PhantomData), body),
        };
        // SAFETY: The binding that is in the slot outlasts this call. It is taken out of the slot
        // meanwhile, so the frame below is the only way to the cursor.
        let cursor = unsafe { local(cursor) };
        let _suspended = Restore::<F>::after(None);
        let _after = AmbientLevel::enter(cursor);
        let _level = cursor.open();
        body(&mut Frame::over(cursor))
    }
}

/// Unbinds while a frame asks its space, which may be one that asks for what is bound, and
/// would get this frame itself.
fn suspended_if_lent<F: AmbientFamily>(cursor: &Cursor<F>) -> Option<Restore<F>> {
    cursor.lender().map(|_| Restore::after(None))
}

/// The space where none is bound.
struct Nothing<F>(PhantomData<fn() -> F>);

impl<F: AmbientFamily> Space for Nothing<F> {
    type Family = F;
    type Block = AmbientBlock<F>;

    fn block(&self, _: Layout) -> Result<AmbientBlock<F>, AllocError> {
        Err(AllocError::Unbound)
    }
}

/// The ambient space, or another one where none was bound. See [`ambient_space_or`].
#[derive(Debug, Clone, Copy)]
pub enum AmbientOr<S: Space<Family: AmbientFamily>> {
    /// The ambient space.
    Ambient(AmbientOf<S::Family>),
    /// The other one.
    Default(S),
}

impl<S: Space<Family: AmbientFamily>> Space for AmbientOr<S> {
    type Family = S::Family;
    type Block = AmbientOrBlock<S::Block>;

    fn block(&self, layout: Layout) -> Result<Self::Block, AllocError> {
        match self {
            Self::Ambient(space) => space.block(layout).map(AmbientOrBlock::Ambient),
            Self::Default(space) => space.block(layout).map(AmbientOrBlock::Default),
        }
    }

    fn observer(&self) -> Option<&dyn Observer> {
        match self {
            Self::Ambient(space) => space.observer(),
            Self::Default(space) => space.observer(),
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

    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, S::Family>) -> R) -> R {
        match self {
            Self::Ambient(space) => space.scratch(body),
            Self::Default(space) => space.scratch(body),
        }
    }
}
