//! The ambient space: where code that was given no space allocates.
//!
//! A thread has at most one binding for each family of memory, made by [`with_space`], [`with_scratch`] or
//! [`Scope::enter`] for the extent of a closure, and restored when it ends, by a panic too.
//!
//! Why this is sound for an arena: the binding holds its frame by `&mut`, so nobody carves through
//! that frame, or through one above it, meanwhile. Ambient arrays are the only ones made through
//! the binding; they have no lifetime to be wrong about, and bytes that one of them holds are not
//! given back. Where a frame of the bound arena is handed to a caller
//! ([`Ambient`]'s [`scratch`](crate::Space::scratch)), the binding is suspended until it ends.

mod block;
mod family;
mod scope;
mod space;
mod stored;

pub use block::{AmbientBlock, AmbientOrBlock};
pub use family::{AmbientFamily, AmbientSlot};
pub use scope::{InScope, Scope, current_scope, spawn_in_scope, with_current_scope};
pub use space::{Ambient, AmbientOf, AmbientOr, ambient_alloc, ambient_space, ambient_space_or};

use std::ptr::NonNull;

use crate::{AllocError, Cursor, Frame, Host, Space};

/// What is bound.
enum Bound<F: AmbientFamily> {
    /// The cursor of a frame that the binding holds by `&mut`.
    Local(NonNull<Cursor<F>>),
    /// A scope that the binding holds by `&`.
    Shared(NonNull<Scope<F>>),
}

impl<F: AmbientFamily> Clone for Bound<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: AmbientFamily> Copy for Bound<F> {}

/// What this thread has bound.
#[inline]
fn bound<F: AmbientFamily>() -> Option<Bound<F>> {
    F::slot().with(AmbientSlot::get)
}

/// Puts back what was bound before.
struct Restore<F: AmbientFamily>(Option<Bound<F>>);

impl<F: AmbientFamily> Restore<F> {
    /// Binds something else until the value is dropped.
    #[inline]
    fn after(bound: Option<Bound<F>>) -> Self {
        Self(F::slot().with(|slot| slot.replace(bound)))
    }
}

impl<F: AmbientFamily> Drop for Restore<F> {
    #[inline]
    fn drop(&mut self) {
        F::slot().with(|slot| slot.replace(self.0));
    }
}

/// A level of ambient arrays on a cursor, and its end.
struct AmbientLevel<'c, F: AmbientFamily> {
    cursor: &'c Cursor<F>,
    before: Option<usize>,
}

impl<'c, F: AmbientFamily> AmbientLevel<'c, F> {
    fn enter(cursor: &'c Cursor<F>) -> Self {
        Self {
            cursor,
            before: cursor.enter(),
        }
    }
}

impl<F: AmbientFamily> Drop for AmbientLevel<'_, F> {
    fn drop(&mut self) {
        self.cursor.leave(self.before);
    }
}

/// The cursor that is bound, for as long as its binding lasts.
///
/// # Safety
///
/// The result is not used after the binding that is in the slot now has ended.
unsafe fn local<'b, F: AmbientFamily>(cursor: NonNull<Cursor<F>>) -> &'b Cursor<F> {
    // SAFETY: `with_space` put it there and takes it out before its frame's borrow ends; cursors
    // are only ever shared.
    unsafe { cursor.as_ref() }
}

/// Runs `body` with `frame` as the ambient space of this thread: in it, ambient arrays are carved
/// from the frame's arena.
///
/// Ambient arrays have no lifetime. One that is alive when its frame ends *pins* the frame's bytes
/// down to it: they are given back by a later end, retract or reset, and
/// `pinned_bytes` of the arena tells how many they are. The arena must own its slab.
///
/// ```
/// use space_core::{AllocError, Undef, ambient_alloc, ambient_scratch, with_space};
/// # use space_core::{Cursor, Alignment, Heap, Space, HostBlock, Parts, Host, Block};
/// # use std::{alloc::Layout, sync::Arc};
/// # fn with_arena<R>(body: impl FnOnce(&mut Cursor<Host>) -> R) -> R {
/// #     let owner = Arc::new(Heap.block(Layout::from_size_align(4096, 4096).unwrap()).unwrap());
/// #     let parts = Parts { base: owner.address(), bytes: owner.bytes(), region: (), owner };
/// #     let (mut arena, owner) = unsafe { Cursor::new(parts, Alignment::default()) }.unwrap();
/// #     unsafe { arena.keep_with(owner) };
/// #     body(&mut arena)
/// # }
/// # with_arena(|arena| {
/// let mut frame = arena.frame();
/// with_space(&mut frame, || {
///     let x = ambient_alloc(Undef::<f32, _>::new([10]))?.filled(1.0);
///     ambient_scratch(|| {
///         let square = ambient_alloc(Undef::like(&x))?.init_with(|i| x[i] * x[i]);
///         Ok::<f32, AllocError>(square.iter().sum())
///     })?
/// })
/// # .map(|sum| assert_eq!(sum, 10.0))
/// # })?;
/// # Ok::<(), AllocError>(())
/// ```
pub fn with_space<F: AmbientFamily, R>(frame: &mut Frame<'_, F>, body: impl FnOnce() -> R) -> R {
    let cursor = frame.cursor();
    let _level = AmbientLevel::enter(cursor);
    let _restore = Restore::after(Some(Bound::Local(NonNull::from(cursor))));
    body()
}

/// Opens a scratch block on `space` and runs `body` with it as the ambient space: what is made
/// ambiently in it, and dropped in it, is given back at the end.
pub fn with_scratch<S: Space<Family: AmbientFamily>, R>(
    space: &mut S,
    body: impl FnOnce() -> R,
) -> R {
    space.scratch(|frame| with_space(frame, body))
}

/// Opens a scratch block on the ambient space, which stays bound: what is made ambiently in it,
/// and dropped in it, is given back at the end.
///
/// On a shared space this only runs `body`: its arrays own their memory. Other families than the
/// host's have [`AmbientOf::scratch_bound`].
///
/// # Errors
///
/// [`AllocError::Unbound`].
pub fn ambient_scratch<R>(body: impl FnOnce() -> R) -> Result<R, AllocError> {
    AmbientOf::<Host>::new().scratch_bound(body)
}
