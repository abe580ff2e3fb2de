//! Where arrays get their memory: the space in scope.
//!
//! That is `space-core`'s ambient space. Where an allocator of this crate is bound, it is seen by
//! its type, and its arrays hold what they need to; the blocks of any other space are held as they
//! are.

use std::{alloc::Layout, ptr::NonNull};

use space_core::{AllocError, Ambient, Block, Heap, Host, Scope, Space, with_current_scope};

use crate::{
    AllocBlock, ArrayError, bumper, heap, region::OwnedPin, store::Store, sync::Arc, unchecked,
};

/// What kind of array wants memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// One that keeps its allocator from resetting.
    Counted,
    /// One that checks its memory at each access.
    Checked,
}

/// Memory for one array, fresh from its allocator.
#[derive(Debug)]
pub(crate) struct Piece {
    /// First byte, with the right to access all that were asked for. They are uninitialised.
    pub(crate) address: NonNull<u8>,
    pub(crate) grip: Grip,
}

/// What keeps the memory until the array is initialised.
#[derive(Debug)]
pub(crate) enum Grip {
    /// The same as afterwards.
    Settled(Store),
    /// A pin, which is let go then.
    Pinned(OwnedPin),
}

/// An allocator of this crate as its scope sees it.
pub(crate) enum Source {
    Bumper(Arc<bumper::Shared>),
    Unchecked(unchecked::Handle),
    Heap(heap::Handle),
}

impl Source {
    #[inline]
    fn piece(&self, want: Want, layout: Layout) -> Result<Piece, ArrayError> {
        let (address, store) = match self {
            Self::Bumper(shared) => return shared.piece(want, layout),
            Self::Unchecked(handle) => handle.memory(want, layout)?,
            Self::Heap(handle) => handle.memory(layout)?,
        };
        Ok(Piece {
            address,
            grip: Grip::Settled(store),
        })
    }
}

/// What others than this crate ask of its allocators.
impl Space for Source {
    type Family = Host;
    type Block = AllocBlock;

    fn block(&self, layout: Layout) -> Result<AllocBlock, AllocError> {
        match self {
            Self::Bumper(shared) => shared.block(layout),
            // The contract speaks of arrays of this crate only; what isn't one owns its memory.
            Self::Unchecked(_) => AllocBlock::of_heap(layout),
            Self::Heap(handle) => handle.block(layout),
        }
    }
}

/// Memory of the space in scope, or of the heap where there is none.
#[inline]
pub(crate) fn ask(want: Want, layout: Layout) -> Result<Piece, ArrayError> {
    let known = with_current_scope(|scope| {
        let source = scope.and_then(Scope::downcast_ref::<Source>)?;
        Some(source.piece(want, layout))
    });
    match known {
        Some(piece) => piece,
        None => ask_others(layout),
    }
}

/// Memory of an arena or of somebody's own space, or of the heap.
#[inline]
fn ask_others(layout: Layout) -> Result<Piece, ArrayError> {
    let (address, store) = match Ambient.block(layout) {
        Ok(block) => (block.address(), Store::Ambient { _block: block }),
        Err(AllocError::Unbound) => {
            let block = Heap.block(layout)?;
            (block.address(), Store::Heap { _block: block })
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Piece {
        address,
        grip: Grip::Settled(store),
    })
}
