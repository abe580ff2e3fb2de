//! Where an array lives, and when it dies.
//!
//! A *space* is anywhere an uninitialised array can be materialised from: the heap, a device's
//! pool, an arena, a frame. A *description* ([`Undef`], a tuple, a struct of your own) says what
//! to make; the space says where. Code that takes any [`Space`] says where its results live and
//! where its scratch dies, and knows nothing of allocators:
//!
//! ```
//! use space_core::{AllocError, ArrayOf, Heap, Space, Undef};
//!
//! fn step<S: Space>(space: &mut S, n: usize) -> Result<ArrayOf<S, f32, [usize; 2]>, AllocError> {
//!     let y = space.alloc(Undef::<f32, _>::new([n, n]))?; // outlives the scratch below
//!     space.scratch(|frame| {
//!         let (_row, _mask) = frame.alloc((Undef::<f32, _>::new([n]), Undef::<u8, _>::new([n])))?;
//!         Ok::<(), AllocError>(())
//!     })?; // scratch ends here
//!     Ok(y)
//! }
//!
//! let y = step(&mut Heap, 4)?; // or an arena's frame: the same function, and no allocation
//! assert_eq!(y.len(), 16);
//! # Ok::<(), AllocError>(())
//! ```
//!
//! # What it promises
//!
//! - A carve can't outlive its frame or its arena, in safe code, whatever is forgotten, swapped or
//!   unwound: lifetimes say so, and only the end of a closure gives bytes back.
//! - A description of several arrays is materialised in full or not at all.
//! - Safe code reads no element that nobody wrote, and a space written by a user can't make two
//!   arrays overlap: what its leaf hands out is checked.
//! - A carve is one compare and a few moves; it takes no lock, calls no allocator, and gives the
//!   same addresses for the same sequence of requests.
//!
//! # Who checks, and which errors cross
//!
//! Sizes, alignments and marks are checked here; the checks that a family of device memory adds
//! (ledgers, capture) are its own and come back through [`AllocError`], the one error type. A
//! failed call changes nothing. Panics are bugs of this crate or of a caller's own space.
//!
//! # Map
//!
//! - where arrays come from: [`Space`], [`Heap`], [`Similar`], [`Frame`]
//! - what to make: [`trait@Describe`], [`Undef`], [`Given`], [`Entry`], [`Scratch`], [`Dims`],
//!   [`Element`]; structs in three roles: [`Mode`], [`Spec`], [`In`], [`Partial`]
//! - kinds of memory, for those who add one: [`Family`], [`Block`], [`FrameBlock`], [`IntoAmbient`]; the host's:
//!   [`Host`], [`HostBlock`], [`HostCarve`], [`HostArray`], [`HostLeaf`], [`Zeroed`]
//! - what arenas are made of: [`Slab`], [`Parts`], [`Alignment`], [`Cursor`], [`Mark`], [`Epoch`]; who counts
//!   for them: [`Tally`], [`Observer`]
//! - code that was given no space: [`with_space`], [`with_scratch`], [`ambient_space`],
//!   [`ambient_space_or`], [`ambient_alloc`], [`ambient_scratch`]; across threads and futures:
//!   [`Scope`], [`InScope`], [`spawn_in_scope`], [`current_scope`], [`with_current_scope`]; in another family's memory: [`AmbientOf`],
//!   [`AmbientFamily`]
//! - device captures: [`capturing`], [`CaptureViolation`]

mod alignment;
mod ambient;
mod block;
mod bump;
mod capture;
mod cursor;
mod describe;
mod dims;
mod element;
mod error;
mod family;
mod frame;
mod host;
mod lend;
mod mark;
mod observer;
mod pins;
mod similar;
mod slab;
mod space;
mod tally;

pub use alignment::Alignment;
pub use ambient::{
    Ambient, AmbientBlock, AmbientFamily, AmbientOf, AmbientOr, AmbientOrBlock, AmbientSlot,
    InScope, Scope, ambient_alloc, ambient_scratch, ambient_space, ambient_space_or, current_scope,
    spawn_in_scope, with_current_scope, with_scratch, with_space,
};
pub use block::{Block, FrameBlock, IntoAmbient};
pub use capture::{CaptureViolation, Capturing, capturing};
pub use cursor::Cursor;
pub use describe::{
    Carved, Describe, Entry, Flat, Given, In, Mode, Partial, Scratch, Shaped, Spec, ToPartial,
    Undef,
};
pub use dims::Dims;
pub use element::Element;
pub use error::{AllocError, OtherError};
pub use family::Family;
pub use frame::Frame;
pub use host::{
    CarvedArray, Heap, Host, HostArray, HostBlock, HostCarve, HostLeaf, Init, InitState,
    OwnedArray, Uninit, Zeroed,
};
pub use mark::{Epoch, Mark};
pub use observer::Observer;
pub use pins::Keeper;
pub use similar::{Exemplar, Similar};
pub use slab::{Parts, Slab};
pub use space::{ArrayOf, Checkpoint, Space};
#[cfg(feature = "derive")]
pub use space_derive::Describe;
pub use tally::Tally;
