//! Blocks that a frame keeps for a space that is not an arena.

use std::{
    alloc::Layout,
    cell::{Cell, RefCell},
    mem,
    ptr::NonNull,
};

use crate::{AllocError, AmbientBlock, AmbientFamily, Block, Checkpoint, Family, Space, block};

/// A space whose blocks are kept until a frame ends, seen without its type.
pub(crate) trait Lend<F: Family> {
    /// Asks the space for a block, keeps it, and tells where it is.
    fn lend(&self, layout: Layout) -> Result<F::Place, AllocError>;
    /// Asks the space for a block that outlives the frame.
    fn give(&self, layout: Layout) -> Result<AmbientBlock<F>, AllocError>
    where
        F: AmbientFamily;
    /// How many blocks are kept.
    fn kept(&self) -> usize;
    /// Drops the latest blocks until `keep` are left.
    fn release(&self, keep: usize);
    /// Notes the space's own checkpoint, and returns how many blocks are kept.
    fn checkpoint(&self) -> usize;
    /// Drops the latest blocks until `keep` are left, and rolls the space back.
    ///
    /// # Safety
    ///
    /// As for [`Space::rollback`], where `keep` came from the latest `checkpoint`.
    unsafe fn rollback(&self, keep: usize);
    /// Tells the space that a frame opened.
    fn opened(&self);
    /// Tells the space that a frame ended and its blocks were dropped.
    fn closed(&self);
    /// Tells the space that a level of ambient arrays began.
    fn ambient_opened(&self);
    /// Tells the space that the innermost level of ambient arrays ended.
    fn ambient_closed(&self);
}

/// The space under a frame, and the blocks it gave, oldest first.
pub(crate) struct Lender<'s, S: Space> {
    space: &'s S,
    kept: RefCell<Vec<S::Block>>,
    /// The space's checkpoint. One is enough: no code of a caller runs before it is used.
    checkpoint: Cell<Checkpoint>,
}

impl<'s, S: Space> Lender<'s, S> {
    pub(crate) fn new(space: &'s S) -> Self {
        Self {
            space,
            kept: RefCell::new(Vec::new()),
            checkpoint: Cell::new(Checkpoint::NONE),
        }
    }

    fn pop_above(&self, keep: usize) -> Option<S::Block> {
        let mut kept = self.kept.borrow_mut();
        if kept.len() > keep { kept.pop() } else { None }
    }
}

impl<S: Space> Lend<S::Family> for Lender<'_, S> {
    fn lend(&self, layout: Layout) -> Result<<S::Family as Family>::Place, AllocError> {
        let block = self.space.block(layout)?;
        block::check(&block, layout)?;
        let place = block.place();
        self.kept.borrow_mut().push(block);
        Ok(place)
    }

    fn give(&self, layout: Layout) -> Result<AmbientBlock<S::Family>, AllocError>
    where
        S::Family: AmbientFamily,
    {
        let Some(into_ambient) = S::Block::INTO_AMBIENT else {
            return Err(AllocError::BlocksEndWithFrame);
        };
        let block = self.space.block(layout)?;
        block::check(&block, layout)?;
        let observer = self.space.observer();
        let held = observer.and_then(|observer| observer.ambient_made(layout.size()));
        let block = into_ambient(block);
        Ok(match held {
            Some(held) => block.keeping(held),
            None => block,
        })
    }

    fn kept(&self) -> usize {
        self.kept.borrow().len()
    }

    fn release(&self, keep: usize) {
        // The cell isn't borrowed while a block drops: the drop is the space's own code.
        let unwinding = OnUnwind(|| self.release(keep));
        while let Some(block) = self.pop_above(keep) {
            drop(block);
        }
        mem::forget(unwinding);
    }

    fn checkpoint(&self) -> usize {
        self.checkpoint.set(self.space.checkpoint());
        self.kept()
    }

    unsafe fn rollback(&self, keep: usize) {
        self.release(keep);
        // SAFETY: Handed on; the blocks that this lender was handed since have just been dropped.
        unsafe { self.space.rollback(self.checkpoint.get()) };
    }

    fn opened(&self) {
        if let Some(observer) = self.space.observer() {
            observer.frame_opened();
        }
    }

    fn closed(&self) {
        if let Some(observer) = self.space.observer() {
            observer.frame_closed();
        }
    }

    fn ambient_opened(&self) {
        if let Some(observer) = self.space.observer() {
            observer.ambient_opened();
        }
    }

    fn ambient_closed(&self) {
        if let Some(observer) = self.space.observer() {
            observer.ambient_closed();
        }
    }
}

/// Goes on with the rest when the drop of one block unwinds.
struct OnUnwind<C: Fn()>(C);

impl<C: Fn()> Drop for OnUnwind<C> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A [`Lender`] without its type and lifetime.
#[derive(Clone, Copy)]
pub(crate) struct LenderRef<F: Family>(NonNull<dyn Lend<F>>);

// SAFETY: A cursor that has a lender is a local of `scratch_over`, reached by shared reference
// only. The cursor isn't `Sync`, so neither it nor this pointer gets to another thread; the impl
// exists so that the cursors of arenas, which have none, can be moved to one.
unsafe impl<F: Family> Send for LenderRef<F> {}

impl<F: Family> LenderRef<F> {
    /// # Safety
    ///
    /// The lender outlives every use of the value.
    pub(crate) unsafe fn new<'s>(lender: &'s (dyn Lend<F> + 's)) -> Self {
        let lender: *const (dyn Lend<F> + 's) = lender;
        // SAFETY: Only the lifetime of the trait object changes, and the caller answers for that.
        let lender = unsafe {
            mem::transmute::<*const (dyn Lend<F> + 's), *const (dyn Lend<F> + 'static)>(lender)
        };
        // SAFETY: It was a reference.
        Self(unsafe { NonNull::new_unchecked(lender.cast_mut()) })
    }

    pub(crate) fn get(&self) -> &dyn Lend<F> {
        // SAFETY: `new`'s caller promised that the lender is alive; it is only ever shared.
        unsafe { self.0.as_ref() }
    }
}
