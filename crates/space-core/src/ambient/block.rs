//! Blocks without a lifetime.

use std::{any::Any, fmt, ptr::NonNull, sync::Arc};

use crate::{Block, Dims, Element, Host, HostArray, HostLeaf, pins::Token};

/// A block of the ambient space: it has no lifetime, and keeps what its bytes are part of.
pub struct AmbientBlock {
    address: NonNull<u8>,
    bytes: usize,
    /// Dropped with the block, or with the array over it.
    hold: Hold,
}

/// What keeps the bytes.
enum Hold {
    /// There are none.
    Nothing,
    /// An arena's level, and its slab.
    Arena {
        /// Counted, and otherwise unused.
        _token: Arc<Token>,
    },
    /// The block of a shared space.
    Shared {
        /// The block.
        _block: Box<dyn Any + Send + Sync>,
    },
}

// SAFETY: The bytes are the block's alone, and what keeps them may be dropped by any thread.
unsafe impl Send for AmbientBlock {}

// SAFETY: As above; a shared block gives its address away, and access only by `unsafe`.
unsafe impl Sync for AmbientBlock {}

impl AmbientBlock {
    /// A block that was carved from an arena.
    ///
    /// # Safety
    ///
    /// The bytes were carved for this block alone, and are not given back while `token` is held;
    /// without a token there are none.
    pub(super) unsafe fn carved(
        address: NonNull<u8>,
        bytes: usize,
        token: Option<Arc<Token>>,
    ) -> Self {
        let hold = match token {
            Some(_token) => Hold::Arena { _token },
            None => Hold::Nothing,
        };
        Self {
            address,
            bytes,
            hold,
        }
    }

    /// The block of a shared space.
    pub(super) fn shared<B: Block<Family = Host> + Send + Sync + 'static>(block: B) -> Self {
        Self {
            address: block.address(),
            bytes: block.bytes(),
            hold: Hold::Shared {
                _block: Box::new(block),
            },
        }
    }
}

impl fmt::Debug for AmbientBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hold = match self.hold {
            Hold::Nothing => "nothing",
            Hold::Arena { .. } => "arena",
            Hold::Shared { .. } => "shared space",
        };
        f.debug_struct("AmbientBlock")
            .field("address", &self.address)
            .field("bytes", &self.bytes)
            .field("of", &hold)
            .finish()
    }
}

// SAFETY: `carved`'s caller gave the bytes to this block alone until the token is dropped; a
// shared space's block is a block, kept here unused, and its place stays right when it is moved.
unsafe impl Block for AmbientBlock {
    type Family = Host;
    type Array<T: Element, D: Dims> = HostArray<Self, T, D>;

    #[inline]
    fn place(&self) -> NonNull<u8> {
        self.address
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> HostArray<Self, T, D> {
        // SAFETY: Handed on.
        unsafe { HostArray::over(self, dims) }
    }
}

/// A block of the ambient space, or of another one where none was bound.
#[derive(Debug)]
pub enum AmbientOrBlock<B> {
    /// Of the ambient space.
    Ambient(AmbientBlock),
    /// Of the other one.
    Default(B),
}

// SAFETY: Both are blocks.
unsafe impl<B: Block<Family = Host>> Block for AmbientOrBlock<B> {
    type Family = Host;
    type Array<T: Element, D: Dims> = HostArray<Self, T, D>;

    #[inline]
    fn place(&self) -> NonNull<u8> {
        match self {
            Self::Ambient(block) => block.place(),
            Self::Default(block) => block.place(),
        }
    }

    #[inline]
    fn bytes(&self) -> usize {
        match self {
            Self::Ambient(block) => block.bytes(),
            Self::Default(block) => block.bytes(),
        }
    }

    #[inline]
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> HostArray<Self, T, D> {
        // SAFETY: Handed on.
        unsafe { HostArray::over(self, dims) }
    }
}

impl HostLeaf for AmbientBlock {
    #[inline]
    fn host<T: Element, D: Dims>(array: Self::Array<T, D>) -> HostArray<Self, T, D> {
        array
    }

    #[inline]
    fn host_mut<T: Element, D: Dims>(array: &mut Self::Array<T, D>) -> &mut HostArray<Self, T, D> {
        array
    }
}

impl<B: Block<Family = Host>> HostLeaf for AmbientOrBlock<B> {
    #[inline]
    fn host<T: Element, D: Dims>(array: Self::Array<T, D>) -> HostArray<Self, T, D> {
        array
    }

    #[inline]
    fn host_mut<T: Element, D: Dims>(array: &mut Self::Array<T, D>) -> &mut HostArray<Self, T, D> {
        array
    }
}
