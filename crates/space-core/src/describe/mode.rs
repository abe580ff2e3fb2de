//! The roles of a described struct.

use std::{fmt, marker::PhantomData};

use super::{Entry, Undef};
use crate::{Block, Dims, Element};

/// The role that a struct of entries plays: it says what an entry is.
///
/// A struct over a mode, with `#[derive(Describe)]`, is a description in mode [`Spec`], the arrays
/// that come of it in mode [`In<B>`](In), and a partly given description in mode
/// [`Partial<B>`](Partial), with the same field names in each.
pub trait Mode {
    /// An entry: an array of `T` with extents `D`.
    type Of<T: Element, D: Dims>;
}

/// The mode of a description: an entry is an [`Undef`].
#[derive(Debug, Clone, Copy)]
pub enum Spec {}

impl Mode for Spec {
    type Of<T: Element, D: Dims> = Undef<T, D>;
}

/// The mode of arrays over blocks `B`, as a space whose leaf is `B` hands them out.
pub struct In<B>(PhantomData<fn() -> B>);

impl<B: Block> Mode for In<B> {
    type Of<T: Element, D: Dims> = B::Array<T, D>;
}

impl<B> fmt::Debug for In<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("In")
    }
}

/// The mode of a partly given description: an entry is an [`Entry`], to be made or there already.
pub struct Partial<B>(PhantomData<fn() -> B>);

impl<B: Block> Mode for Partial<B> {
    type Of<T: Element, D: Dims> = Entry<T, D, B>;
}

impl<B> fmt::Debug for Partial<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Partial")
    }
}

/// A description that can be turned into a partly given one, all of it to be made yet.
///
/// The derive uses this to write `From<Layer<Spec>> for Layer<Partial<B>>`, so that one names
/// what is given and takes the rest from a description: `Layer { y: Entry::Given(y),
/// ..description.into() }`.
pub trait ToPartial<B: Block> {
    /// The partly given description.
    type Partial;

    /// Turns the description into it.
    fn to_partial(self) -> Self::Partial;
}

impl<T: Element, D: Dims, B: Block> ToPartial<B> for Undef<T, D> {
    type Partial = Entry<T, D, B>;

    fn to_partial(self) -> Entry<T, D, B> {
        Entry::Make(self)
    }
}

impl<B: Block, X: ToPartial<B>> ToPartial<B> for Option<X> {
    type Partial = Option<X::Partial>;

    fn to_partial(self) -> Option<X::Partial> {
        self.map(X::to_partial)
    }
}

impl<B: Block, X: ToPartial<B>, const N: usize> ToPartial<B> for [X; N] {
    type Partial = [X::Partial; N];

    fn to_partial(self) -> [X::Partial; N] {
        self.map(X::to_partial)
    }
}

macro_rules! tuples {
    ($(($($entry:ident)*))+) => { $(
        impl<Leaf: Block, $($entry: ToPartial<Leaf>),*> ToPartial<Leaf> for ($($entry,)*) {
            type Partial = ($($entry::Partial,)*);

            #[allow(clippy::unused_unit, reason = "the empty tuple is one of them")]
            #[allow(non_snake_case, reason = "each entry goes by the name of its type")]
            fn to_partial(self) -> Self::Partial {
                let ($($entry,)*) = self;
                ($($entry.to_partial(),)*)
            }
        }
    )+ };
}

tuples! {
    ()
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E F)
    (A B C D E F G)
    (A B C D E F G H)
    (A B C D E F G H I)
    (A B C D E F G H I J)
    (A B C D E F G H I J K)
    (A B C D E F G H I J K L)
}
