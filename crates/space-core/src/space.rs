//! Where arrays come from.

use std::alloc::Layout;

use crate::{
    AllocError, Block, CaptureViolation, Describe, Dims, Element, Family, Flat, Frame, Observer,
    block, frame::scratch_over,
};

/// The array of `T`, shaped `D`, that a space `S` hands out.
pub type ArrayOf<S, T, D> = <<S as Space>::Block as Block>::Array<T, D>;

/// Anywhere an uninitialised array can be materialised from.
///
/// A space implements [`block`](Space::block), from size and alignment to a block of bytes, and
/// gets everything else: typed shapes, descriptions of several arrays at once, and frames.
/// Implementing it takes no `unsafe`, because a block's own constructors carry the obligations.
///
/// ```
/// use std::{alloc::Layout, cell::Cell};
/// use space_core::{AllocError, Heap, Host, HostBlock, Space, Undef};
///
/// /// Counts what it hands out.
/// struct Counted(Cell<usize>);
///
/// impl Space for Counted {
///     type Family = Host;
///     type Block = HostBlock;
///     fn block(&self, layout: Layout) -> Result<HostBlock, AllocError> {
///         self.0.set(self.0.get() + 1);
///         Heap.block(layout)
///     }
/// }
///
/// let mut space = Counted(Cell::new(0));
/// let y = space.alloc(Undef::<f32, _>::new([2, 3]))?;
/// space.scratch(|frame| {
///     let (a, b) = frame.alloc((Undef::<f64, _>::new([3]), Undef::<u8, _>::new([5])))?;
///     Ok::<(), AllocError>(())
/// })?; // `b`, then `a` are given back here
/// assert_eq!((space.0.get(), y.len()), (3, 6));
/// # Ok::<(), AllocError>(())
/// ```
///
/// Through a trait object the provided methods are those of the reference: `(&space).alloc(..)`.
pub trait Space {
    /// The kind of memory.
    type Family: Family;

    /// What the leaf hands out.
    type Block: Block<Family = Self::Family>;

    /// A block of at least `layout.size()` uninitialised bytes at a multiple of `layout.align()`.
    ///
    /// # Errors
    ///
    /// Whatever keeps the space from having it. Then nothing changed.
    fn block(&self, layout: Layout) -> Result<Self::Block, AllocError>;

    /// Who is told of what frames over this space do. Only spaces that count, and those that
    /// forward to one, have somebody.
    fn observer(&self) -> Option<&dyn Observer> {
        None
    }

    /// Where [`rollback`](Space::rollback) would return to. Only spaces that give bytes back in
    /// bulk, and those that forward to one, have anything to say here.
    fn checkpoint(&self) -> Checkpoint {
        Checkpoint::NONE
    }

    /// Undoes the blocks handed out since `to`, as if they had not been asked for. Spaces whose
    /// blocks give themselves back by their drop have nothing to do.
    ///
    /// # Safety
    ///
    /// `to` came from this space's [`checkpoint`](Space::checkpoint), and no frame over the space
    /// was closed since. All that the caller was handed since has been dropped, and no code ran
    /// meanwhile that could have been handed more, apart from the space's own, which answers for
    /// itself.
    unsafe fn rollback(&self, to: Checkpoint) {
        let _ = to;
    }

    /// An array of `T` with the extents `dims`. [`alloc`](Space::alloc) of a description is the
    /// way to say this; here is what it comes down to.
    ///
    /// The block that the leaf hands out is checked for size and alignment.
    ///
    /// # Errors
    ///
    /// [`AllocError::SizeOverflow`], [`AllocError::BadBlock`], and those of
    /// [`block`](Space::block).
    #[inline]
    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<Self, T, D>, AllocError>
    where
        Self: Sized,
    {
        let layout = layout_of::<T, D>(&dims)?;
        let block = match self.block(layout) {
            Ok(block) => block,
            Err(error) => return Err(CaptureViolation::name::<T, D>(error, dims)),
        };
        block::check(&block, layout)?;
        // SAFETY: The block has the size and alignment of the layout, which is that of `dims`
        // elements of `T`.
        Ok(unsafe { block.typed(dims) })
    }

    /// Materialises a description: of one array, or of several at once.
    ///
    /// All or nothing: if one entry can't be had, those before it are given back.
    ///
    /// # Errors
    ///
    /// Those of [`typed`](Space::typed).
    #[inline(always)]
    fn alloc<D: Describe<Self::Block>>(&self, description: D) -> Result<D::Out, AllocError>
    where
        Self: Sized,
    {
        // Three stages. The caller's own code runs in the first and the last, so that none runs
        // between a carve and its roll-back. `held` is the caller's too: it drops after that.
        let (flat, held) = description.flatten();
        if <D::Flat as Flat<Self::Block>>::ENTRIES < 2 {
            return Ok(D::finish(flat.carve(self)?, held));
        }
        let checkpoint = self.checkpoint();
        match flat.carve(self) {
            Ok(arrays) => Ok(D::finish(arrays, held)),
            Err(error) => {
                // SAFETY: The checkpoint is this space's. `Flat` is sealed: all that ran since is
                // our carving, which has dropped the arrays it made and opened no frame.
                unsafe { self.rollback(checkpoint) };
                Err(error)
            }
        }
    }

    /// Runs `body` with a frame over this space. What it carves there is given back at the end,
    /// on panic too; what was carved before stays.
    ///
    /// Over an arena, or a frame of one, this moves a cursor. Over any other space the frame keeps
    /// the blocks and drops them, latest first.
    #[inline]
    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, Self::Family>) -> R) -> R
    where
        Self: Sized,
    {
        scratch_over(self, body)
    }
}

/// A space's state, to roll back to when a description could not be materialised in full.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint(pub(crate) usize);

impl Checkpoint {
    /// The checkpoint of a space that has nothing to roll back.
    pub const NONE: Self = Self(0);
}

/// Layout of `dims` elements of `T`.
#[inline]
fn layout_of<T, D: Dims>(dims: &D) -> Result<Layout, AllocError> {
    let overflow = |len| AllocError::SizeOverflow {
        len,
        elem_size: size_of::<T>(),
    };
    let len = dims.checked_len().ok_or_else(|| overflow(usize::MAX))?;
    Layout::array::<T>(len).map_err(|_| overflow(len))
}

/// A shared borrow of a space is a space. A frame opened through it is a frame over the borrow: it
/// keeps blocks, and gives an arena nothing back before the arena's own frame ends.
impl<S: Space + ?Sized> Space for &S {
    type Family = S::Family;
    type Block = S::Block;

    #[inline]
    fn block(&self, layout: Layout) -> Result<S::Block, AllocError> {
        (**self).block(layout)
    }

    fn observer(&self) -> Option<&dyn Observer> {
        (**self).observer()
    }

    #[inline]
    fn checkpoint(&self) -> Checkpoint {
        (**self).checkpoint()
    }

    #[inline]
    unsafe fn rollback(&self, to: Checkpoint) {
        // SAFETY: Handed on.
        unsafe { (**self).rollback(to) };
    }
}

impl<S: Space> Space for &mut S {
    type Family = S::Family;
    type Block = S::Block;

    #[inline]
    fn block(&self, layout: Layout) -> Result<S::Block, AllocError> {
        (**self).block(layout)
    }

    fn observer(&self) -> Option<&dyn Observer> {
        (**self).observer()
    }

    #[inline]
    fn checkpoint(&self) -> Checkpoint {
        (**self).checkpoint()
    }

    #[inline]
    unsafe fn rollback(&self, to: Checkpoint) {
        // SAFETY: Handed on.
        unsafe { (**self).rollback(to) };
    }

    #[inline(always)]
    fn typed<T: Element, D: Dims>(&self, dims: D) -> Result<ArrayOf<S, T, D>, AllocError> {
        (**self).typed(dims)
    }

    #[inline(always)]
    fn scratch<R>(&mut self, body: impl for<'f> FnOnce(&mut Frame<'f, S::Family>) -> R) -> R {
        (**self).scratch(body)
    }
}
