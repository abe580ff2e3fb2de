//! The allocator that gives memory back all at once.

use std::{
    alloc::Layout,
    array, fmt,
    ptr::NonNull,
    time::{Duration, Instant},
};

use space_core::{AllocError, Block, Host, Scope, Space};

use crate::{
    AllocBlock, ArrayError, Buffer, ResetError, Statistics,
    allocator::Allocator,
    identity,
    lane::{self, Stretch},
    region::{Hold, OwnedPin},
    source::{Grip, Piece, Source, Want},
    state::{Locked, State},
    store::Store,
    sync::{Arc, Mutex, lock},
};

/// Hands out memory by moving a cursor, and takes it back all at once.
///
/// Clones share one buffer, any number of threads may allocate from it at the same time, and any
/// of them may [`reset`](BumperAllocator::reset) it: memory that somebody still uses is never
/// given back, whatever anybody does. A reset that finds such is an error and changes nothing.
///
/// ```
/// use space_array::{AllocArray, AllocBuffer, BumperAllocator, with_allocator};
///
/// let bumper = BumperAllocator::new(AllocBuffer::new(1 << 20)?);
/// let x = AllocArray::from([1.0, 2.0, 3.0]); // of the heap: nothing is bound yet
/// for _ in 0..3 {
///     let sum = with_allocator(&bumper, || (&x * 2.0 + &x).sum()); // made, used and dropped
///     bumper.reset()?;
///     assert_eq!(sum, 18.0);
/// }
/// assert_eq!(bumper.statistics().resets, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a buffer of a mebibyte and more, small arrays come from stretches of 16 KiB that a few lanes
/// take for the threads that use them, so that threads don't wait for each other. What is left of
/// a lane's stretch counts as in use.
///
/// As a [`Space`] it hands out blocks that count as arrays.
#[derive(Clone)]
pub struct BumperAllocator {
    pub(crate) shared: Arc<Shared>,
    scope: Scope,
}

/// What clones, and the scope, share.
pub(crate) struct Shared {
    /// Identity of the allocator.
    id: u64,
    /// None in a small buffer. Locked before the state.
    lanes: Box<[Alone<Stretch>]>,
    pub(crate) state: Alone<State>,
}

/// Alone on its cache lines, so that threads that use their lanes don't wait for what is beside
/// a lock that others take.
#[repr(align(128))]
pub(crate) struct Alone<T>(pub(crate) Mutex<T>);

impl BumperAllocator {
    /// An allocator over a buffer: an [`AllocBuffer`](crate::AllocBuffer), or an
    /// [`AutoscalingAllocBuffer`](crate::AutoscalingAllocBuffer) that grows.
    pub fn new(buffer: impl Buffer) -> Self {
        let (block, growth) = buffer.into_parts();
        let id = identity::next();
        let lanes = if block.bytes() < lane::FROM_BYTES {
            0
        } else {
            lane::LANES
        };
        let state = State::new(id, block, growth);
        let shared = Arc::new(Shared {
            id,
            lanes: (0..lanes)
                .map(|_| Alone(Mutex::new(Stretch::new(&state.region))))
                .collect(),
            state: Alone(Mutex::new(state)),
        });
        let scope = Scope::new(Source::Bumper(Arc::clone(&shared)));
        Self { shared, scope }
    }

    /// Identity of the allocator, as errors tell it. Never used again in this process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The generation that arrays are made in: how many resets there were, and times the memory
    /// was abandoned.
    #[must_use]
    pub fn generation(&self) -> u64 {
        lock(&self.shared.state.0).region.gate.generation()
    }

    /// Takes all memory back, at once. Checked arrays become invalid.
    ///
    /// # Errors
    ///
    /// [`ResetError::ArraysAlive`] while an [`AllocArray`](crate::AllocArray) of this allocator
    /// is alive; [`ResetError::ViewsAlive`] while a view of a checked one is held, by any thread,
    /// or one is being initialised. Then nothing changed and all of them are valid.
    pub fn reset(&self) -> Result<(), ResetError> {
        self.shared.lock().reset()
    }

    /// Takes all memory back, and waits at most `patience` for other threads to drop their views.
    ///
    /// # Errors
    ///
    /// [`ResetError::OwnViews`] at once when this thread itself holds a view, and
    /// [`ResetError::ArraysAlive`] at once too, since arrays have owners that may keep them for
    /// ever; [`ResetError::TimedOut`] when patience is over.
    pub fn reset_within(&self, patience: Duration) -> Result<(), ResetError> {
        self.shared.reset_within(patience)
    }

    /// Goes on with a fresh chunk of the same capacity, and leaves the memory to the arrays and
    /// views that are there: all stay valid, and the last of them frees it. What was forgotten
    /// keeps it for ever.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`]; nothing changed then.
    pub fn abandon(&self) -> Result<(), AllocError> {
        self.shared.lock().abandon()
    }

    /// What the allocator holds and has done.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.lock().statistics()
    }
}

impl Shared {
    /// All locks.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked {
            lanes: array::from_fn(|i| self.lanes.get(i).map(|lane| lock(&lane.0))),
            state: lock(&self.state.0),
        }
    }

    pub(crate) fn reset_within(&self, patience: Duration) -> Result<(), ResetError> {
        let start = Instant::now();
        loop {
            let region = {
                let mut locked = self.lock();
                match locked.reset() {
                    Err(ResetError::ViewsAlive { views, own: 0 }) => {
                        let waited = start.elapsed();
                        if waited >= patience {
                            return Err(ResetError::TimedOut { views, waited });
                        }
                        Arc::clone(&locked.state.region)
                    }
                    Err(ResetError::ViewsAlive { views, own }) => {
                        return Err(ResetError::OwnViews { views, own });
                    }
                    result => return result,
                }
            };
            region.gate.wait(patience.saturating_sub(start.elapsed()));
        }
    }

    /// The lane that serves this thread, if one serves such an array.
    #[inline]
    fn lane(&self, layout: Layout) -> Option<&Mutex<Stretch>> {
        if lane::serves(layout) {
            self.lanes.get(lane::of_this_thread()).map(|lane| &lane.0)
        } else {
            None
        }
    }

    /// Memory for an array of a lane, whose stretch has no room for it.
    #[cold]
    fn refill(&self, lane: &mut Stretch, layout: Layout) -> Result<NonNull<u8>, ArrayError> {
        let mut state = lock(&self.state.0);
        if let Some(stretch) = state.cursor.stretch(lane::STRETCH_BYTES) {
            lane.cursor = stretch;
            if let Some(address) = lane.carve(layout) {
                return Ok(address);
            }
        }
        state.carve(layout)
    }

    /// Memory for an array of this crate.
    #[inline]
    pub(crate) fn piece(&self, want: Want, layout: Layout) -> Result<Piece, ArrayError> {
        let (address, grip) = match want {
            Want::Counted => {
                let (address, hold) = self.counted(layout)?;
                (address, Grip::Settled(Store::Held { _hold: hold }))
            }
            Want::Checked => {
                let (address, pin) = self.checked(layout)?;
                (address, Grip::Pinned(pin))
            }
        };
        Ok(Piece { address, grip })
    }

    /// Memory for whoever takes a space.
    pub(crate) fn block(&self, layout: Layout) -> Result<AllocBlock, AllocError> {
        let (address, hold) = self.counted(layout).map_err(|error| match error {
            ArrayError::Alloc(error) => error,
            other => AllocError::other(other),
        })?;
        let store = Store::Held { _hold: hold };
        // SAFETY: Carved for this block alone; the hold keeps it.
        Ok(unsafe { AllocBlock::kept(address, layout.size(), store) })
    }

    #[inline]
    fn counted(&self, layout: Layout) -> Result<(NonNull<u8>, Arc<Hold>), ArrayError> {
        if let Some(lane) = self.lane(layout) {
            let mut lane = lock(lane);
            let address = match lane.carve(layout) {
                Some(address) => address,
                None => self.refill(&mut lane, layout)?,
            };
            return Ok((address, Arc::clone(&lane.hold)));
        }
        let mut state = lock(&self.state.0);
        let address = state.carve(layout)?;
        Ok((address, Arc::clone(&state.hold)))
    }

    fn checked(&self, layout: Layout) -> Result<(NonNull<u8>, OwnedPin), ArrayError> {
        // The pin comes before the carve, so that a failure changes nothing.
        if let Some(lane) = self.lane(layout) {
            let mut lane = lock(lane);
            let pin = OwnedPin::take(&lane.region)?;
            let address = match lane.carve(layout) {
                Some(address) => address,
                None => self.refill(&mut lane, layout)?,
            };
            return Ok((address, pin));
        }
        let mut state = lock(&self.state.0);
        let pin = OwnedPin::take(&state.region)?;
        let address = state.carve(layout)?;
        Ok((address, pin))
    }
}

impl Allocator for BumperAllocator {
    fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl Space for BumperAllocator {
    type Family = Host;
    type Block = AllocBlock;

    fn block(&self, layout: Layout) -> Result<AllocBlock, AllocError> {
        self.shared.block(layout)
    }
}

impl fmt::Debug for BumperAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BumperAllocator")
            .field("id", &self.id())
            .field("generation", &self.generation())
            .field("statistics", &self.statistics())
            .finish()
    }
}
