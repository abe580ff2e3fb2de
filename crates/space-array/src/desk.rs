//! How arrays of this crate get memory from the space in scope.
//!
//! The space in scope is `space-core`'s ambient space. Its blocks are boxed where a shared scope
//! is bound, so that any space can be; the allocators of this crate would pay that box for each
//! array. So a request is laid on the desk of its thread while the ambient space is asked, and an
//! allocator of this crate that is asked in turn answers there. Any other space answers as ever.

use std::{
    alloc::Layout,
    cell::Cell,
    mem::{self, ManuallyDrop},
};

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

enum Desk {
    Empty,
    Asked(Want, Layout),
    Answered(Result<Piece, ArrayError>),
}

thread_local! {
    /// Without a destructor, so that arrays can be made while a thread ends. What lies here is
    /// taken by whoever laid it.
    static DESK: Cell<ManuallyDrop<Desk>> = const { Cell::new(ManuallyDrop::new(Desk::Empty)) };
}

/// Lays something on the desk, and takes what lay there.
#[inline]
fn exchange(desk: Desk) -> Desk {
    ManuallyDrop::into_inner(DESK.replace(ManuallyDrop::new(desk)))
}

/// Puts back what lay there before, on a panic in somebody's space too.
struct Restore(Desk);

impl Restore {
    #[inline]
    fn after(desk: Desk) -> Self {
        Self(exchange(desk))
    }

    /// What lies there now.
    #[inline]
    fn take(self) -> Desk {
        exchange(Desk::Empty)
    }
}

impl Drop for Restore {
    #[inline]
    fn drop(&mut self) {
        drop(exchange(mem::replace(&mut self.0, Desk::Empty)));
    }
}

/// Memory of the space in scope, or of the heap where there is none.
pub(crate) fn ask(want: Want, layout: Layout) -> Result<Piece, ArrayError> {
    let desk = Restore::after(Desk::Asked(want, layout));
    let block = Ambient.block(layout);
    let answer = desk.take();
    match (block, answer) {
        (Ok(block), _) => Ok(Piece {
            address: block.address(),
            grip: Grip::Settled(Store::Ambient { _block: block }),
        }),
        (Err(_), Desk::Answered(answer)) => answer,
        (Err(AllocError::Unbound), _) => {
            let block = Heap.block(layout)?;
            Ok(Piece {
                address: block.address(),
                grip: Grip::Settled(Store::Heap { _block: block }),
            })
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// Answers the request on the desk, if it is one for `layout`.
///
/// # Errors
///
/// An error that nobody gets to see, if the request was answered: the block that the space was
/// asked for isn't wanted.
pub(crate) fn answer(
    layout: Layout,
    serve: impl FnOnce(Want) -> Result<Piece, ArrayError>,
) -> Result<(), AllocError> {
    match exchange(Desk::Empty) {
        Desk::Asked(want, asked) if asked == layout => {
            drop(exchange(Desk::Answered(serve(want))));
            Err(AllocError::Unbound)
        }
        other => {
            drop(exchange(other));
            Ok(())
        }
    }
}
