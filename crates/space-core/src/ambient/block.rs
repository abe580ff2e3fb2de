//! Blocks without a lifetime.

use std::{fmt, sync::Arc};

use super::{AmbientFamily, stored::Stored};
use crate::{
    Block, Dims, Element, Family, Host, HostArray, HostLeaf, IntoAmbient, Keeper,
    pins::{Held, Token},
};

/// A block without a lifetime, as the ambient space hands out: it keeps what its bytes are part of.
pub struct AmbientBlock<F: Family = Host> {
    place: F::Place,
    bytes: usize,
    /// Dropped with the block, or with the array over it.
    hold: Hold,
}

/// What keeps the bytes.
enum Hold {
    /// There are none; the place may refer to what keeps the slab.
    Nothing {
        /// Not counted.
        _slab: Keeper,
    },
    /// An arena's level, and its slab.
    Arena {
        /// Counted, and otherwise unused.
        _token: Arc<Token>,
    },
    /// A block that owns its bytes.
    Owned {
        /// The block.
        _block: Stored,
    },
}

// SAFETY: The bytes are the block's alone, its place may be used on any thread (`AmbientFamily`),
// and what keeps them may be dropped by any thread.
unsafe impl<F: AmbientFamily> Send for AmbientBlock<F> {}

// SAFETY: As above; a shared block gives its place away, and access only by `unsafe`.
unsafe impl<F: AmbientFamily> Sync for AmbientBlock<F> {}

impl<F: AmbientFamily> AmbientBlock<F> {
    /// A block that was carved from an arena.
    ///
    /// # Safety
    ///
    /// The bytes were carved for this block alone, and are not given back while `held` is; if it
    /// is only the slab's keeper, there are none.
    pub(super) unsafe fn carved(place: F::Place, bytes: usize, held: Held) -> Self {
        let hold = match held {
            Held::Level(_token) => Hold::Arena { _token },
            Held::Slab(_slab) => Hold::Nothing { _slab },
        };
        Self { place, bytes, hold }
    }

    /// A block that owns its bytes, without its type.
    #[inline]
    pub fn of<B: Block<Family = F> + Send + Sync + 'static>(block: B) -> Self {
        Self {
            place: block.place(),
            bytes: block.bytes(),
            hold: Hold::Owned {
                _block: Stored::new(block),
            },
        }
    }

    /// The same block, which keeps `kept` as long as it lives.
    pub(crate) fn keeping(self, kept: Keeper) -> Self {
        Self {
            place: self.place,
            bytes: self.bytes,
            hold: Hold::Owned {
                _block: Stored::new((self, kept)),
            },
        }
    }
}

impl<F: AmbientFamily> fmt::Debug for AmbientBlock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hold = match self.hold {
            Hold::Nothing { .. } => "nothing",
            Hold::Arena { .. } => "arena",
            Hold::Owned { .. } => "its own",
        };
        f.debug_struct("AmbientBlock")
            .field("address", &F::address(self.place))
            .field("bytes", &self.bytes)
            .field("of", &hold)
            .finish()
    }
}

// SAFETY: `carved`'s caller gave the bytes to this block alone until what it holds is dropped; what
// `of` was given is a block, kept here unused, and its place stays right when it is moved.
unsafe impl<F: AmbientFamily> Block for AmbientBlock<F> {
    type Family = F;
    type Array<T: Element, D: Dims> = F::Array<Self, T, D>;
    const INTO_AMBIENT: IntoAmbient<Self> = Some(|block| block);

    #[inline]
    fn place(&self) -> F::Place {
        self.place
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> Self::Array<T, D> {
        // SAFETY: Handed on.
        unsafe { F::array(self, dims) }
    }
}

/// A block of the ambient space, or of another one where none was bound.
#[derive(Debug)]
pub enum AmbientOrBlock<B: Block<Family: AmbientFamily>> {
    /// Of the ambient space.
    Ambient(AmbientBlock<B::Family>),
    /// Of the other one.
    Default(B),
}

// SAFETY: Both are blocks.
unsafe impl<B: Block<Family: AmbientFamily>> Block for AmbientOrBlock<B> {
    type Family = B::Family;
    type Array<T: Element, D: Dims> = <B::Family as AmbientFamily>::Array<Self, T, D>;
    const INTO_AMBIENT: IntoAmbient<Self> = match B::INTO_AMBIENT {
        Some(_) => Some(|block| match (block, B::INTO_AMBIENT) {
            (Self::Ambient(block), _) => block,
            (Self::Default(block), Some(into_ambient)) => into_ambient(block),
            (Self::Default(_), None) => unreachable!(),
        }),
        None => None,
    };

    #[inline]
    fn place(&self) -> <B::Family as Family>::Place {
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
    unsafe fn typed<T: Element, D: Dims>(self, dims: D) -> Self::Array<T, D> {
        // SAFETY: Handed on.
        unsafe { B::Family::array(self, dims) }
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
