//! How arrays of this crate get memory from the space in scope.
//!
//! The space in scope is `space-core`'s ambient space. Its blocks are boxed where a shared scope
//! is bound, so that any space can be; the allocators of this crate would pay that box for each
//! array. So a request is laid on the desk of its thread while the ambient space is asked, and an
//! allocator of this crate that is asked in turn answers there. Any other space answers as ever.

use std::{alloc::Layout, cell::Cell, ptr::NonNull};

use space_core::{AllocError, Ambient, Block, Heap, Space};

use crate::{
    ArrayError,
    piece::{Grip, Piece},
    store::Store,
};

/// What kind of array wants memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// One that keeps its allocator from resetting.
    Counted,
    /// One that checks its memory at each access.
    Checked,
}

struct Request {
    want: Want,
    layout: Layout,
    answer: Cell<Option<Result<Piece, ArrayError>>>,
}

thread_local! {
    /// The request that is being made; it lives until it is taken away by whoever laid it here.
    static DESK: Cell<Option<NonNull<Request>>> = const { Cell::new(None) };
}

/// Puts back what lay there before, on a panic in somebody's space too.
struct Restore(Option<NonNull<Request>>);

impl Drop for Restore {
    #[inline]
    fn drop(&mut self) {
        DESK.set(self.0);
    }
}

/// Memory of the space in scope, or of the heap where there is none.
#[inline]
pub(crate) fn ask(want: Want, layout: Layout) -> Result<Piece, ArrayError> {
    let request = Request {
        want,
        layout,
        answer: Cell::new(None),
    };
    let restore = Restore(DESK.replace(Some(NonNull::from(&request))));
    let block = Ambient.block(layout);
    drop(restore);
    match (block, request.answer.into_inner()) {
        (Err(_), Some(answer)) => answer,
        (Ok(block), _) => Ok(Piece {
            address: block.address(),
            grip: Grip::Settled(Store::Ambient { _block: block }),
        }),
        (Err(AllocError::Unbound), None) => {
            let block = Heap.block(layout)?;
            Ok(Piece {
                address: block.address(),
                grip: Grip::Settled(Store::Heap { _block: block }),
            })
        }
        (Err(error), None) => Err(error.into()),
    }
}

/// Answers the request on the desk, if it is one for `layout`.
///
/// # Errors
///
/// An error that nobody gets to see, if the request was answered: the block that the space was
/// asked for isn't wanted.
#[inline]
pub(crate) fn answer(
    layout: Layout,
    serve: impl FnOnce(Want) -> Result<Piece, ArrayError>,
) -> Result<(), AllocError> {
    let Some(request) = DESK.get() else {
        return Ok(());
    };
    // SAFETY: `ask` laid it there and takes it away before it returns, by a panic too; the desk is
    // this thread's alone.
    let request = unsafe { request.as_ref() };
    if request.layout != layout {
        return Ok(());
    }
    DESK.set(None);
    request.answer.set(Some(serve(request.want)));
    Err(AllocError::Unbound)
}
