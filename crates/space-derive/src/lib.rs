//! `#[derive(Describe)]`: one struct as description, as arrays, and as a partly given description.
//!
//! Used through `space-core`, which re-exports it next to the trait. The struct takes its entries'
//! types from a *mode*, so the same field names serve in all three roles:
//!
//! ```
//! use space_core::{AllocError, Describe, Entry, Heap, HostBlock, In, Mode, Partial, Space, Spec, Undef};
//!
//! #[derive(Describe)]
//! struct Layer<M: Mode> {
//!     y: M::Of<f32, [usize; 2]>,
//!     mask: M::Of<u8, [usize; 1]>,
//!     inner: Inner<M>,   // nested
//!     width: usize,      // no entry: passes through
//! }
//!
//! #[derive(Describe)]
//! struct Inner<M: Mode> {
//!     h: Option<M::Of<f64, Vec<usize>>>,
//! }
//!
//! fn describe(n: usize) -> Layer<Spec> {
//!     Layer {
//!         y: Undef::new([n, 3]),
//!         mask: Undef::new([n]),
//!         inner: Inner { h: Some(Undef::new(vec![2, n])) },
//!         width: n,
//!     }
//! }
//!
//! // As a description: all entries or none.
//! let made: Layer<In<HostBlock>> = Heap.alloc(describe(5))?;
//! assert_eq!((made.y.len(), made.mask.len(), made.width), (15, 5, 5));
//!
//! // Partly given: what is there already passes through untouched.
//! let mine = made.mask;
//! let address = mine.as_ptr();
//! let partly: Layer<Partial<HostBlock>> = Layer { mask: Entry::Given(mine), ..describe(5).into() };
//! let again: Layer<In<HostBlock>> = Heap.alloc(partly)?;
//! assert_eq!(again.mask.as_ptr(), address);
//! # Ok::<(), AllocError>(())
//! ```
//!
//! # What it promises
//!
//! It writes conversions between the struct and a tuple of its fields, and nothing else: no
//! `unsafe`, and no carving. What the conversions mean is checked by the traits of `space-core`,
//! and its errors are the only ones that can come of using them.
//!
//! # Map
//!
//! - `lib.rs` has the entry point, `expand` what it writes, and `mode` the search for the mode
//!   parameter and its replacement in types.

#![forbid(unsafe_code)]

mod expand;
mod mode;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Describe` for a struct over a mode, in its modes `Spec` and `Partial<B>`, the
/// conversion from the first to the second, and `ToPartial`.
///
/// The struct has one type parameter bounded by `Mode`, and named fields. Fields whose types
/// mention the parameter are entries: `M::Of<T, D>`, a struct over `M`, or options, arrays and
/// tuples of those. The other fields pass through. Further parameters are allowed.
///
/// # Errors
///
/// Compile errors for enums, unions and tuple structs, and for structs without a mode parameter.
#[proc_macro_derive(Describe)]
pub fn derive_describe(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::describe(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
