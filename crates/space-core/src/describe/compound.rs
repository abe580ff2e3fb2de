//! Descriptions of several arrays.

use super::{Carved, Describe, Flat, sealed::Sealed};
use crate::{AllocError, Block, Space};

impl Sealed for () {}

impl<B: Block> Flat<B> for () {
    type Arrays = ();
    const ENTRIES: usize = 0;

    #[inline(always)]
    fn carve<S: Space<Block = B>>(self, _: &S) -> Result<(), AllocError> {
        Ok(())
    }
}

impl<B: Block> Describe<B> for () {
    type Out = ();
    type Flat = ();
    type Held = ();

    #[inline(always)]
    fn flatten(self) -> ((), ()) {
        ((), ())
    }

    #[inline(always)]
    fn finish((): (), (): ()) {}
}

macro_rules! tuples {
    ($(($($entry:ident $held:ident)+))+) => { $(
        impl<$($entry: Sealed),+> Sealed for ($($entry,)+) {}

        impl<Leaf: Block, $($entry: Flat<Leaf>),+> Flat<Leaf> for ($($entry,)+) {
            type Arrays = ($($entry::Arrays,)+);
            const ENTRIES: usize = 0 $(+ $entry::ENTRIES)+;

            #[inline(always)]
            fn carve<S: Space<Block = Leaf>>(self, space: &S) -> Result<Self::Arrays, AllocError> {
                #[expect(non_snake_case, reason = "each entry goes by the name of its type")]
                let ($($entry,)+) = self;
                Ok(($($entry.carve(space)?,)+))
            }
        }

        impl<Leaf: Block, $($entry: Describe<Leaf>),+> Describe<Leaf> for ($($entry,)+) {
            type Out = ($($entry::Out,)+);
            type Flat = ($($entry::Flat,)+);
            type Held = ($($entry::Held,)+);

            #[inline(always)]
            #[expect(non_snake_case, reason = "each entry goes by the name of its type")]
            fn flatten(self) -> (Self::Flat, Self::Held) {
                let ($($entry,)+) = self;
                $(let ($entry, $held) = $entry.flatten();)+
                (($($entry,)+), ($($held,)+))
            }

            #[inline(always)]
            #[expect(non_snake_case, reason = "each entry goes by the name of its type")]
            fn finish(
                ($($entry,)+): Carved<Self, Leaf>,
                ($($held,)+): Self::Held,
            ) -> Self::Out {
                ($(<$entry as Describe<Leaf>>::finish($entry, $held),)+)
            }
        }
    )+ };
}

tuples! {
    (A a)
    (A a B b)
    (A a B b C c)
    (A a B b C c D d)
    (A a B b C c D d E e)
    (A a B b C c D d E e F f)
    (A a B b C c D d E e F f G g)
    (A a B b C c D d E e F f G g H h)
    (A a B b C c D d E e F f G g H h I i)
    (A a B b C c D d E e F f G g H h I i J j)
    (A a B b C c D d E e F f G g H h I i J j K k)
    (A a B b C c D d E e F f G g H h I i J j K k L l)
}

impl<X: Sealed> Sealed for Option<X> {}

impl<B: Block, X: Flat<B>> Flat<B> for Option<X> {
    type Arrays = Option<X::Arrays>;
    const ENTRIES: usize = X::ENTRIES;

    #[inline(always)]
    fn carve<S: Space<Block = B>>(self, space: &S) -> Result<Self::Arrays, AllocError> {
        match self {
            Some(entry) => entry.carve(space).map(Some),
            None => Ok(None),
        }
    }
}

impl<B: Block, X: Describe<B>> Describe<B> for Option<X> {
    type Out = Option<X::Out>;
    type Flat = Option<X::Flat>;
    type Held = Option<X::Held>;

    #[inline(always)]
    fn flatten(self) -> (Self::Flat, Self::Held) {
        self.map(X::flatten).unzip()
    }

    #[inline(always)]
    fn finish(arrays: Carved<Self, B>, held: Self::Held) -> Self::Out {
        arrays
            .zip(held)
            .map(|(arrays, held)| X::finish(arrays, held))
    }
}

impl<X: Sealed, const N: usize> Sealed for [X; N] {}

impl<B: Block, X: Flat<B>, const N: usize> Flat<B> for [X; N] {
    type Arrays = [X::Arrays; N];
    const ENTRIES: usize = N * X::ENTRIES;

    #[inline]
    fn carve<S: Space<Block = B>>(self, space: &S) -> Result<Self::Arrays, AllocError> {
        let mut failed = None;
        let arrays = self.map(|entry| match failed {
            Some(_) => None,
            None => match entry.carve(space) {
                Ok(array) => Some(array),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            },
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(arrays.map(|array| array.expect("no entry failed"))),
        }
    }
}

impl<B: Block, X: Describe<B>, const N: usize> Describe<B> for [X; N] {
    type Out = [X::Out; N];
    type Flat = [X::Flat; N];
    type Held = [X::Held; N];

    #[inline]
    fn flatten(self) -> (Self::Flat, Self::Held) {
        let mut held = [const { None }; N];
        let mut slots = held.iter_mut();
        let flat = self.map(|entry| {
            let (flat, passes) = entry.flatten();
            if let Some(slot) = slots.next() {
                *slot = Some(passes);
            }
            flat
        });
        (flat, held.map(|slot| slot.expect("one for each entry")))
    }

    #[inline]
    fn finish(arrays: Carved<Self, B>, held: Self::Held) -> Self::Out {
        let mut held = held.into_iter();
        arrays.map(|array| X::finish(array, held.next().expect("one for each entry")))
    }
}
