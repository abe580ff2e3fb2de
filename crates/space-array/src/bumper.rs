//! The allocator that gives memory back all at once.

use std::{
    alloc::Layout,
    fmt,
    ptr::NonNull,
    time::{Duration, Instant},
};

use space_core::{AllocError, Block, Host, HostBlock, Scope, Space};

use crate::{
    ArrayError, Buffer, BumperBlock, Exhausted, ResetError, Statistics,
    allocator::Allocator,
    buffer::{Growth, chunk},
    bump::{Bump, room_for},
    desk::{self, Want},
    gate::{Gate, NotAdvanced},
    identity, own,
    piece::{Grip, Piece},
    region::{Hold, OwnedPin, Region},
    store::Store,
    sync::{Arc, Mutex, MutexGuard, lock},
    word::LAST_GENERATION,
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
    pub(crate) state: Mutex<State>,
}

/// What the lock guards. Arrays and generations begin and end under it.
pub(crate) struct State {
    region: Arc<Region>,
    /// One more than arrays are alive.
    hold: Arc<Hold>,
    cursor: Cursor,
    growth: Growth,
    tally: Tally,
}

/// The chunk that is carved, and how much of it is taken.
struct Cursor {
    memory: Memory,
    bump: Bump,
}

/// Address of a chunk, with the right to access it.
struct Memory(NonNull<u8>);

// SAFETY: A pointer that is only turned into blocks of bytes that nobody else was given.
unsafe impl Send for Memory {}

/// Numbers that only statistics need.
#[derive(Default)]
struct Tally {
    /// Chunks of the region.
    chunks: usize,
    /// Capacity of all of them.
    capacity: usize,
    /// Bytes used in chunks of this run other than the one that is carved.
    spent: usize,
    peak: usize,
    resets: u64,
    abandoned: u64,
    growing: Duration,
}

impl BumperAllocator {
    /// An allocator over a buffer: an [`AllocBuffer`](crate::AllocBuffer), or an
    /// [`AutoscalingAllocBuffer`](crate::AutoscalingAllocBuffer) that grows.
    pub fn new(buffer: impl Buffer) -> Self {
        let (block, growth) = buffer.into_parts();
        let id = identity::next();
        let (region, cursor) = region(id, 0, block);
        let state = State {
            hold: Arc::new(Hold {
                _region: Arc::clone(&region),
            }),
            tally: Tally {
                chunks: 1,
                capacity: cursor.bump.capacity,
                ..Tally::default()
            },
            region,
            cursor,
            growth,
        };
        let shared = Arc::new(Shared {
            id,
            state: Mutex::new(state),
        });
        let scope = Scope::new(Handle(Arc::clone(&shared)));
        Self { shared, scope }
    }

    /// Identity of the allocator, as errors tell it. Never used again in this process.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The generation that arrays are made in: how many resets there were, and times the memory
    /// was abandoned.
    pub fn generation(&self) -> u64 {
        self.shared.lock().region.gate.generation()
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
        let start = Instant::now();
        loop {
            let region = {
                let mut state = self.shared.lock();
                match state.reset() {
                    Err(ResetError::ViewsAlive { views, own: 0 }) => {
                        let waited = start.elapsed();
                        if waited >= patience {
                            return Err(ResetError::TimedOut { views, waited });
                        }
                        Arc::clone(&state.region)
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

    /// Goes on with a fresh chunk of the same capacity, and leaves the memory to the arrays and
    /// views that are there: all stay valid, and the last of them frees it. What was forgotten
    /// keeps it for ever.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfMemory`]; nothing changed then.
    pub fn abandon(&self) -> Result<(), AllocError> {
        let mut state = self.shared.lock();
        let generation = (state.region.gate.generation() + 1).min(LAST_GENERATION);
        state.replace_region(generation)?;
        state.tally.abandoned += 1;
        Ok(())
    }

    /// What the allocator holds and has done.
    pub fn statistics(&self) -> Statistics {
        let state = self.shared.lock();
        Statistics {
            in_use_bytes: state.in_use(),
            peak_bytes: state.tally.peak.max(state.in_use()),
            capacity_bytes: state.tally.capacity,
            arrays: state.arrays(),
            views: state.region.gate.pins(),
            chunks: state.tally.chunks,
            resets: state.tally.resets,
            abandoned: state.tally.abandoned,
            growing: state.tally.growing,
        }
    }
}

/// A region that starts at `generation` with one chunk, and a cursor at its start.
fn region(allocator: u64, generation: u64, block: HostBlock) -> (Arc<Region>, Cursor) {
    let cursor = Cursor::over(&block);
    let region = Arc::new(Region {
        id: identity::next(),
        allocator,
        gate: Gate::new(generation),
        chunks: Mutex::new(vec![block]),
    });
    (region, cursor)
}

impl Cursor {
    fn over(block: &HostBlock) -> Self {
        let address = block.address();
        Self {
            bump: Bump {
                base: address.addr().get(),
                capacity: block.bytes(),
                used: 0,
            },
            memory: Memory(address),
        }
    }

    #[inline]
    fn carve(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let offset = self.bump.carve(layout)?;
        if layout.size() == 0 {
            return Some(layout.dangling_ptr());
        }
        // SAFETY: The cursor's arithmetic keeps `offset` within the chunk.
        Some(unsafe { self.memory.0.add(offset) })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Memory for an array of this crate.
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
    fn block(&self, layout: Layout) -> Result<BumperBlock, AllocError> {
        let (address, hold) = self.counted(layout).map_err(|error| match error {
            ArrayError::Alloc(error) => error,
            other => AllocError::other(other),
        })?;
        // SAFETY: Carved for this block alone; the hold keeps it.
        Ok(unsafe { BumperBlock::held(address, layout.size(), hold) })
    }

    fn counted(&self, layout: Layout) -> Result<(NonNull<u8>, Arc<Hold>), ArrayError> {
        let mut state = self.lock();
        let address = state.carve(layout)?;
        Ok((address, Arc::clone(&state.hold)))
    }

    fn checked(&self, layout: Layout) -> Result<(NonNull<u8>, OwnedPin), ArrayError> {
        let mut state = self.lock();
        // Before the carve, so that a failure changes nothing.
        let pin = OwnedPin::take(&state.region)?;
        let address = state.carve(layout)?;
        Ok((address, pin))
    }
}

impl State {
    #[inline]
    fn carve(&mut self, layout: Layout) -> Result<NonNull<u8>, ArrayError> {
        match self.cursor.carve(layout) {
            Some(address) => Ok(address),
            None => self.grow(layout),
        }
    }

    /// Bytes handed out in this run.
    fn in_use(&self) -> usize {
        self.tally.spent + self.cursor.bump.used
    }

    fn arrays(&self) -> usize {
        Arc::strong_count(&self.hold) - 1
    }

    #[cold]
    fn grow(&mut self, layout: Layout) -> Result<NonNull<u8>, ArrayError> {
        let overflow = AllocError::SizeOverflow {
            len: layout.size(),
            elem_size: 1,
        };
        let Some(room) = room_for(layout) else {
            return Err(overflow.into());
        };
        if matches!(self.growth, Growth::Fixed) {
            let peak = self.in_use().saturating_add(room);
            self.tally.peak = self.tally.peak.max(self.in_use());
            return Err(ArrayError::Exhausted(Exhausted {
                wanted_bytes: layout.size(),
                align: layout.align(),
                left_bytes: self.cursor.bump.left(),
                capacity_bytes: self.cursor.bump.capacity,
                peak_bytes: peak,
            }));
        }
        let start = Instant::now();
        let bytes = room.max(self.cursor.bump.capacity).max(MIN_CHUNK);
        let block = chunk(bytes)?;
        let spent = self.cursor.bump.used;
        self.cursor = Cursor::over(&block);
        lock(&self.region.chunks).push(block);
        self.tally.spent += spent;
        self.tally.chunks += 1;
        self.tally.capacity += bytes;
        self.tally.growing += start.elapsed();
        self.cursor.carve(layout).ok_or_else(|| overflow.into())
    }

    pub(crate) fn reset(&mut self) -> Result<(), ResetError> {
        // Exact, and ordered after the last use by whichever thread dropped the last array: all
        // that clone a hold do it under the lock.
        if Arc::get_mut(&mut self.hold).is_none() {
            return Err(ResetError::ArraysAlive {
                arrays: self.arrays().max(1),
            });
        }
        match self.region.gate.advance() {
            Ok(()) => self.rewind(),
            Err(NotAdvanced::Pinned { pins }) => {
                return Err(ResetError::ViewsAlive {
                    views: pins,
                    own: own::count(self.region.id),
                });
            }
            Err(NotAdvanced::Last) => {
                // Generations never wrap: the next one is the first of a region of its own.
                let bytes = self.tally.capacity;
                self.replace_region(0)
                    .map_err(|_| ResetError::OutOfMemory { bytes })?;
            }
        }
        self.tally.resets += 1;
        Ok(())
    }

    /// After a generation has ended: back to the start, with one chunk.
    fn rewind(&mut self) {
        let used = self.in_use();
        self.tally.peak = self.tally.peak.max(used);
        self.tally.spent = 0;
        if let Growth::Autoscaling(scaling) = &mut self.growth
            && let Some(bytes) = scaling.after_run(used, self.tally.capacity, self.tally.chunks)
        {
            let start = Instant::now();
            // Without memory for another chunk the one that is carved goes on.
            let fresh = chunk(bytes).ok();
            let mut chunks = lock(&self.region.chunks);
            if let Some(block) = fresh {
                chunks.clear();
                chunks.push(block);
            } else {
                let last = chunks.len() - 1;
                chunks.swap(0, last);
                chunks.truncate(1);
            }
            self.cursor = Cursor::over(&chunks[0]);
            self.tally.chunks = 1;
            self.tally.capacity = self.cursor.bump.capacity;
            self.tally.growing += start.elapsed();
        }
        self.cursor.bump.used = 0;
    }

    /// Goes on with a region of its own.
    pub(crate) fn replace_region(&mut self, generation: u64) -> Result<(), AllocError> {
        let start = Instant::now();
        let block = chunk(self.tally.capacity)?;
        let (region, cursor) = region(self.region.allocator, generation, block);
        self.tally.peak = self.tally.peak.max(self.in_use());
        self.hold = Arc::new(Hold {
            _region: Arc::clone(&region),
        });
        self.region = region;
        self.cursor = cursor;
        self.tally.spent = 0;
        self.tally.chunks = 1;
        self.tally.growing += start.elapsed();
        Ok(())
    }
}

/// Smallest chunk that a growing buffer adds.
const MIN_CHUNK: usize = 4096;

impl Allocator for BumperAllocator {
    fn scope(&self) -> &Scope {
        &self.scope
    }
}

impl Space for BumperAllocator {
    type Family = Host;
    type Block = BumperBlock;

    fn block(&self, layout: Layout) -> Result<BumperBlock, AllocError> {
        self.shared.block(layout)
    }
}

/// The allocator as its scope sees it.
struct Handle(Arc<Shared>);

impl Space for Handle {
    type Family = Host;
    type Block = BumperBlock;

    fn block(&self, layout: Layout) -> Result<BumperBlock, AllocError> {
        desk::answer(layout, |want| self.0.piece(want, layout))?;
        self.0.block(layout)
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
