//! The two kinds of arrays.

use crate::{
    InvalidMemory,
    region::Pin,
    source::{Grip, Want},
    store::Store,
};

/// How an array's memory is kept valid: [`Counted`] or [`Checked`].
pub trait Kind: sealed::Access {}

/// The array counts with its allocator, which isn't reset while it lives.
#[derive(Debug, Clone, Copy)]
pub enum Counted {}

/// The array doesn't count; each access checks that its memory is still there, and pins it.
#[derive(Debug, Clone, Copy)]
pub enum Checked {}

impl Kind for Counted {}
impl Kind for Checked {}

pub(crate) mod sealed {
    use super::{Grip, InvalidMemory, Store, Want};

    /// What a counted array holds until it is initialised.
    #[derive(Debug)]
    pub struct Kept(pub(super) Store);

    /// What a checked array holds until it is initialised.
    #[derive(Debug)]
    pub struct Pending(pub(super) Grip);

    /// What the kinds do differently.
    #[expect(private_interfaces, reason = "nobody else can name this trait")]
    pub trait Access: Sized + 'static {
        /// What a view holds.
        type Pin<'a>;
        /// What an array holds until it is initialised.
        type Fresh;
        const WANT: Want;

        /// Keeps the memory valid for as long as the result lives.
        fn pin(store: &Store) -> Result<Self::Pin<'_>, InvalidMemory>;
        /// For memory that is kept valid otherwise.
        fn unpinned<'a>() -> Self::Pin<'a>;
        fn fresh(grip: Grip) -> Self::Fresh;
        fn settle(fresh: Self::Fresh) -> Store;
    }
}

#[expect(private_interfaces, reason = "nobody else can name the trait")]
impl sealed::Access for Counted {
    type Pin<'a> = ();
    type Fresh = sealed::Kept;
    const WANT: Want = Want::Counted;

    #[inline]
    fn pin(_: &Store) -> Result<(), InvalidMemory> {
        Ok(())
    }

    #[inline]
    fn unpinned<'a>() -> Self::Pin<'a> {}

    #[inline]
    fn fresh(grip: Grip) -> sealed::Kept {
        match grip {
            Grip::Settled(store) => sealed::Kept(store),
            Grip::Pinned(_) => unreachable!("counted memory was asked for"),
        }
    }

    #[inline]
    fn settle(fresh: sealed::Kept) -> Store {
        fresh.0
    }
}

#[expect(private_interfaces, reason = "nobody else can name the trait")]
impl sealed::Access for Checked {
    type Pin<'a> = Pin<'a>;
    type Fresh = sealed::Pending;
    const WANT: Want = Want::Checked;

    #[inline]
    fn pin(store: &Store) -> Result<Pin<'_>, InvalidMemory> {
        match store {
            Store::Checked { region, made } => Pin::take(region, *made),
            _ => Ok(Pin::none()),
        }
    }

    #[inline]
    fn unpinned<'a>() -> Pin<'a> {
        Pin::none()
    }

    #[inline]
    fn fresh(grip: Grip) -> sealed::Pending {
        sealed::Pending(grip)
    }

    #[inline]
    fn settle(fresh: sealed::Pending) -> Store {
        match fresh.0 {
            Grip::Settled(store) => store,
            Grip::Pinned(pin) => {
                let (region, made) = pin.let_go();
                Store::Checked { region, made }
            }
        }
    }
}
