//! Bump arenas over slabs.
//!
//! An [`Arena`] carves arrays from one slab of memory: host memory of its own, bytes somebody
//! lends, or whatever implements [`Slab`](space_core::Slab), such as a device's buffer. Run a step
//! once, read the watermark, size the slab exactly, and from then on the step allocates nothing:
//!
//! ```
//! use space_arena::Arena;
//! use space_core::{AllocError, Space, Undef};
//!
//! fn step<S: Space>(space: &mut S, n: usize) -> Result<(), AllocError> {
//!     space.scratch(|frame| frame.alloc(Undef::<f32, _>::new([n, n])).map(drop))
//! }
//!
//! let mut warm = Arena::with_capacity(1 << 20)?;
//! step(&mut warm.frame(), 100)?;
//!
//! let mut exact = Arena::with_capacity(warm.watermark())?;
//! for _ in 0..10 {
//!     step(&mut exact.frame(), 100)?;
//! }
//! assert_eq!(exact.watermark(), warm.watermark());
//! # Ok::<(), AllocError>(())
//! ```
//!
//! # What it promises
//!
//! - Carves are disjoint, aligned and within the slab; the same sequence of requests gives the
//!   same offsets, and on the same slab the same addresses.
//! - No carve can be used after its bytes were given back: it borrows the arena.
//! - An arena never grows, takes no lock and calls no allocator. What fails changes nothing.
//!
//! The errors are those of `space-core`, and the checks are made there: this crate adds the
//! memory under the cursor and keeps it alive.
//!
//! # Map
//!
//! - [`Arena`] and [`ArenaBuilder`]; [`Meter`], which tells how large an arena has to be
//! - steps that declare what they need: [`Verb`], [`Mutate`], [`Allocating`], and the space-first
//!   [`outputs`], [`checkpoints`] and frame-first [`scratch`]; [`Shadow`], a primal with a gradient
//! - slabs in host memory: [`HostSlab`], [`BorrowedSlab`], and with feature `mmap`, which is on by
//!   default, `MappedSlab`

mod arena;
mod builder;
mod meter;
mod shadow;
mod slab;
mod verb;

pub use arena::Arena;
pub use builder::ArenaBuilder;
pub use meter::Meter;
pub use shadow::{Shadow, ShadowOf};
pub use slab::{BorrowedSlab, HostSlab, Lent, SlabOn};
#[cfg(feature = "mmap")]
pub use slab::{HugePages, MappedSlab, Mapping};
pub use verb::{Allocating, Made, MadeInFrame, Mutate, Verb, checkpoints, outputs, scratch};
