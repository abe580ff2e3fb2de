//! Memory that begins and ends together, and what holds it.

use std::{marker::PhantomData, mem::ManuallyDrop, ptr};

use space_core::HostBlock;

use crate::{
    InvalidMemory,
    gate::{Gate, NotPinned},
    own,
    sync::{Arc, Mutex},
};

/// The chunks of an allocator, and the gate that says which of their generations is there.
///
/// Whoever may still look at the memory holds the region; the chunks are replaced by the
/// allocator only, between two generations.
#[derive(Debug)]
pub(crate) struct Region {
    /// Never used again in this process.
    pub(crate) id: u64,
    /// Identity of the allocator.
    pub(crate) allocator: u64,
    pub(crate) gate: Gate,
    /// Keeps the memory.
    pub(crate) chunks: Mutex<Vec<HostBlock>>,
}

/// Held by each array that is counted: while somebody but the allocator has it, the generation
/// doesn't end.
///
/// Alone on its cache lines, as is the count before it: each lane has one.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Hold {
    /// Keeps the memory when the allocator is gone.
    pub(crate) _region: Arc<Region>,
}

impl Hold {
    /// A hold that nobody has yet.
    pub(crate) fn new(region: &Arc<Region>) -> Arc<Self> {
        Arc::new(Self {
            _region: Arc::clone(region),
        })
    }
}

impl Region {
    /// Takes a pin, to be let go by the thread that took it.
    #[inline]
    fn take_pin(&self, made: u64) -> Result<(), InvalidMemory> {
        match self.gate.pin(made) {
            Ok(()) => {
                own::took(self.id);
                Ok(())
            }
            Err(error) => Err(self.refusal(made, error)),
        }
    }

    #[cold]
    fn refusal(&self, made: u64, error: NotPinned) -> InvalidMemory {
        let allocator = self.allocator;
        match error {
            NotPinned::Over { now } => InvalidMemory::GivenBack {
                allocator,
                made,
                now,
            },
            NotPinned::TooMany => InvalidMemory::TooManyViews {
                allocator,
                views: crate::word::MAX_PINS,
            },
        }
    }

    #[inline]
    fn let_pin_go(&self) {
        own::let_go(self.id);
        self.gate.unpin();
    }
}

/// Keeps memory valid for as long as it lives; stays on its thread, which may ask how many it
/// holds.
#[derive(Debug)]
pub struct Pin<'a> {
    /// `None` for memory that stays valid anyway.
    region: Option<&'a Region>,
    here: PhantomData<*const ()>,
}

// SAFETY: A shared pin gives nothing away; it is dropped by the thread that has it.
unsafe impl Sync for Pin<'_> {}

impl<'a> Pin<'a> {
    /// For memory that stays valid anyway.
    #[inline]
    pub(crate) fn none() -> Self {
        Self {
            region: None,
            here: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn take(region: &'a Region, made: u64) -> Result<Self, InvalidMemory> {
        region.take_pin(made)?;
        Ok(Self {
            region: Some(region),
            here: PhantomData,
        })
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(region) = self.region {
            region.let_pin_go();
        }
    }
}

/// A pin that keeps its region: what an array has until it is initialised.
#[derive(Debug)]
pub(crate) struct OwnedPin {
    region: Arc<Region>,
    made: u64,
    here: PhantomData<*const ()>,
}

// SAFETY: As for `Pin`.
unsafe impl Sync for OwnedPin {}

impl OwnedPin {
    /// A pin of the generation that is there. The caller keeps it from ending meanwhile.
    #[inline]
    pub(crate) fn take(region: &Arc<Region>) -> Result<Self, InvalidMemory> {
        let made = region.gate.generation();
        region.take_pin(made)?;
        Ok(Self {
            region: Arc::clone(region),
            made,
            here: PhantomData,
        })
    }

    /// Lets the pin go: the region, and the generation that was pinned.
    #[inline]
    pub(crate) fn let_go(self) -> (Arc<Region>, u64) {
        let this = ManuallyDrop::new(self);
        this.region.let_pin_go();
        // SAFETY: Read once, out of a value that isn't used again.
        (unsafe { ptr::read(&this.region) }, this.made)
    }
}

impl Drop for OwnedPin {
    fn drop(&mut self) {
        self.region.let_pin_go();
    }
}
