//! What a bumper's locks guard.

use std::{
    alloc::Layout,
    ptr::NonNull,
    time::{Duration, Instant},
};

use space_core::{AllocError, HostBlock};

use crate::{
    ArrayError, Exhausted, ResetError, Statistics,
    buffer::{Growth, chunk},
    bump::room_for,
    cursor::Cursor,
    gate::{Gate, NotAdvanced},
    identity,
    lane::{LANES, Stretch},
    own,
    region::{Hold, Region},
    sync::{Arc, Mutex, MutexGuard, lock},
    word::LAST_GENERATION,
};

/// Smallest chunk that a growing buffer adds.
const MIN_CHUNK: usize = 4096;

/// The state of a bumper. Arrays of it begin under its lock, or under that of a lane.
pub(crate) struct State {
    pub(crate) region: Arc<Region>,
    /// One more than arrays are alive that no lane made.
    pub(crate) hold: Arc<Hold>,
    pub(crate) cursor: Cursor,
    growth: Growth,
    tally: Tally,
}

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

impl State {
    pub(crate) fn new(allocator: u64, block: HostBlock, growth: Growth) -> Self {
        let (region, cursor) = region(allocator, 0, block);
        Self {
            hold: Hold::new(&region),
            tally: Tally {
                chunks: 1,
                capacity: cursor.bump.capacity,
                ..Tally::default()
            },
            region,
            cursor,
            growth,
        }
    }

    #[inline]
    pub(crate) fn carve(&mut self, layout: Layout) -> Result<NonNull<u8>, ArrayError> {
        match self.cursor.carve(layout) {
            Some(address) => Ok(address),
            None => self.grow(layout),
        }
    }

    /// Bytes handed out in this run.
    fn in_use(&self) -> usize {
        self.tally.spent + self.cursor.bump.used
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
            return Err(ArrayError::Exhausted(Exhausted {
                wanted_bytes: layout.size(),
                align: layout.align(),
                left_bytes: self.cursor.bump.left(),
                capacity_bytes: self.cursor.bump.capacity,
                peak_bytes: self.in_use().saturating_add(room),
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
}

/// All locks of a bumper: nobody allocates meanwhile. Lanes are locked before the state, in order.
pub(crate) struct Locked<'a> {
    /// None where the bumper has no lanes.
    pub(crate) lanes: [Option<MutexGuard<'a, Stretch>>; LANES],
    pub(crate) state: MutexGuard<'a, State>,
}

impl Locked<'_> {
    fn arrays(&self) -> usize {
        let of = |hold| Arc::strong_count(hold) - 1;
        let lanes = self.lanes.iter().flatten().map(|lane| of(&lane.hold));
        lanes.sum::<usize>() + of(&self.state.hold)
    }

    pub(crate) fn reset(&mut self) -> Result<(), ResetError> {
        // Exact, and ordered after the last use by whichever thread dropped the last array: all
        // that clone a hold do it under a lock that is held here.
        let mut unused = Arc::get_mut(&mut self.state.hold).is_some();
        for lane in self.lanes.iter_mut().flatten() {
            unused &= Arc::get_mut(&mut lane.hold).is_some();
        }
        if !unused {
            return Err(ResetError::ArraysAlive {
                arrays: self.arrays().max(1),
            });
        }
        match self.state.region.gate.advance() {
            Ok(()) => {
                self.state.rewind();
                for lane in self.lanes.iter_mut().flatten() {
                    lane.cursor = Cursor::empty();
                }
            }
            Err(NotAdvanced::Pinned { pins }) => {
                return Err(ResetError::ViewsAlive {
                    views: pins,
                    own: own::count(self.state.region.id),
                });
            }
            Err(NotAdvanced::Last) => {
                // Generations never wrap: the next one is the first of a region of its own.
                let bytes = self.state.tally.capacity;
                self.replace_region(0)
                    .map_err(|_| ResetError::OutOfMemory { bytes })?;
            }
        }
        self.state.tally.resets += 1;
        Ok(())
    }

    pub(crate) fn abandon(&mut self) -> Result<(), AllocError> {
        let generation = self.state.region.gate.generation() + 1;
        self.replace_region(generation.min(LAST_GENERATION))?;
        self.state.tally.abandoned += 1;
        Ok(())
    }

    /// Goes on with a region of its own.
    fn replace_region(&mut self, generation: u64) -> Result<(), AllocError> {
        let start = Instant::now();
        let state = &mut *self.state;
        let block = chunk(state.tally.capacity)?;
        let (region, cursor) = region(state.region.allocator, generation, block);
        for lane in self.lanes.iter_mut().flatten() {
            **lane = Stretch::new(&region);
        }
        state.tally.peak = state.tally.peak.max(state.in_use());
        state.hold = Hold::new(&region);
        state.region = region;
        state.cursor = cursor;
        state.tally.spent = 0;
        state.tally.chunks = 1;
        state.tally.growing += start.elapsed();
        Ok(())
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let (state, tally) = (&self.state, &self.state.tally);
        Statistics {
            in_use_bytes: state.in_use(),
            peak_bytes: tally.peak.max(state.in_use()),
            capacity_bytes: tally.capacity,
            arrays: self.arrays(),
            views: state.region.gate.pins(),
            chunks: tally.chunks,
            resets: tally.resets,
            abandoned: tally.abandoned,
            growing: tally.growing,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::LAST_GENERATION;
    use crate::{AllocArray, AllocBuffer, BumperAllocator, CheckedAllocArray, with_allocator};

    #[test]
    fn generations_do_not_wrap() {
        let bumper = BumperAllocator::new(AllocBuffer::new(4096).unwrap());
        let mut locked = bumper.shared.lock();
        locked.replace_region(LAST_GENERATION).unwrap();
        drop(locked);
        let old = with_allocator(&bumper, || CheckedAllocArray::filled([8], 7_u32));
        assert_eq!(bumper.reset(), Ok(()));
        assert_eq!(bumper.generation(), 0);
        let new = with_allocator(&bumper, || AllocArray::filled([8], 9_u32));
        // The old region is not used again, so that nothing of it is overwritten.
        assert_eq!((old.sum(), new.sum()), (56, 72));
    }
}
