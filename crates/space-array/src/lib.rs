//! Arrays whose memory comes from the allocator in scope.
//!
//! Code that knows nothing of allocators makes arrays by `similar` and arithmetic; its caller
//! decides where the memory comes from:
//!
//! ```
//! use space_array::{AllocArray, AllocBuffer, BumperAllocator, with_allocator};
//! use ndarray::Ix1;
//!
//! /// Two temporaries and a result, in plain array code.
//! fn smooth(x: &AllocArray<f64, Ix1>) -> AllocArray<f64, Ix1> {
//!     (x * 2.0 + x) / 3.0
//! }
//!
//! let x = AllocArray::from([1.0, 2.0, 3.0]);
//! let y = smooth(&x); // on the heap
//!
//! let bumper = BumperAllocator::new(AllocBuffer::new(1 << 16)?);
//! for _ in 0..10 {
//!     let sum = with_allocator(&bumper, || smooth(&x).sum()); // moves a cursor
//!     assert_eq!(sum, y.sum());
//!     bumper.reset()?; // an error if an array were still alive
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - Safe code can't read or write memory that was given back or reused, whatever it does with
//!   arrays, views, scopes, threads and resets. An [`AllocArray`] keeps its allocator from
//!   resetting; a [`CheckedAllocArray`] checks at each access, and pins its memory while a view is
//!   held. What is forgotten makes resets fail, and nothing else.
//! - No element that nobody wrote can be read: [`similar`](SpaceArray::similar) is uninitialised by
//!   type.
//! - Nothing is counted or checked for each element; a view costs one compare-and-swap on a
//!   checked array, and nothing on the other kind.
//! - The allocator in scope is the ambient space of `space-core`: there is one binding, whichever
//!   crate made it.
//!
//! # Who checks, and which errors cross
//!
//! Operations return [`ArrayError`]: shapes and sizes are checked here, and an allocator's or a
//! user's own [`space_core::AllocError`] comes through. Access to a checked array returns
//! [`InvalidMemory`], and a reset [`ResetError`]. Operators, and methods without `try_`, panic
//! with the error at their caller's location.
//!
//! # Map
//!
//! - arrays: [`AllocArray`], [`CheckedAllocArray`], both a [`SpaceArray`]; [`UninitArray`];
//!   [`View`] and [`ViewMut`], which pin; [`Operand`], [`Scalar`], [`ProductDim`],
//!   [`Broadcast`], [`Combined`]
//! - allocators: [`BumperAllocator`] over an [`AllocBuffer`] or an [`AutoscalingAllocBuffer`];
//!   [`UncheckedBumperAllocator`]; [`DefaultAllocator`]; [`Statistics`]
//! - scopes: [`with_allocator`], [`Allocator`]; across threads [`Scope`], [`current_scope`] and
//!   [`spawn_in_scope`]; for tasks [`InScope`]
//! - errors: [`ArrayError`], [`InvalidMemory`], [`ResetError`], [`Exhausted`]

mod alloc_block;
mod allocator;
mod array;
mod buffer;
mod bump;
mod bumper;
mod clone;
mod cursor;
mod element_access;
mod error;
mod gate;
mod heap;
mod identity;
mod kind;
mod lane;
#[cfg(all(test, loom))]
mod loom;
mod operand;
mod ops;
mod own;
mod region;
mod scaling;
#[cfg(feature = "serde")]
mod serde;
mod shape;
mod show;
mod source;
mod state;
mod statistics;
mod store;
mod sync;
mod unchecked;
mod uninit;
mod validity;
mod view;
mod word;

pub use alloc_block::AllocBlock;
pub use allocator::{Allocator, with_allocator};
pub use array::{AllocArray, CheckedAllocArray, SpaceArray};
pub use buffer::{AllocBuffer, AutoscalingAllocBuffer, Buffer};
pub use bumper::BumperAllocator;
pub use error::{ArrayError, Shape};
pub use heap::DefaultAllocator;
pub use kind::{Checked, Counted, Kind};
pub use operand::Operand;
pub use ops::{ProductDim, Scalar};
pub use shape::{Broadcast, Combined};
pub use space_core::{AllocError, Element, InScope, Scope, current_scope, spawn_in_scope};
pub use statistics::Statistics;
pub use unchecked::UncheckedBumperAllocator;
pub use uninit::UninitArray;
pub use validity::{Exhausted, InvalidMemory, ResetError};
pub use view::{View, ViewMut};
