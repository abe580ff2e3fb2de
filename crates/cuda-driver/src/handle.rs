//! Plain handles: integers with a type, copied freely, proving nothing about the object they name.
//!
//! Safe code has only the handles that were given to it: making one from a number is `unsafe`.

use std::fmt;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The handle with this number.
            ///
            /// # Safety
            /// A driver has given the number out for an object of this kind, and the caller may use that object: whoever
            /// names an object that somebody else relies on can change its order with other work.
            #[must_use]
            pub const unsafe fn from_raw(number: u64) -> Self {
                Self(number)
            }

            /// The number.
            #[must_use]
            pub const fn raw(self) -> u64 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    )* };
}

handles! {
    /// A stream, as the driver names it. Raw values are reused after destruction.
    RawStream;
    /// An event, as the driver names it. Raw values are reused after destruction.
    RawEvent;
    /// A stream-ordered memory pool.
    RawPool;
    /// A loaded module.
    RawModule;
    /// A function of a loaded module.
    RawFunction;
    /// A graph: nodes and dependencies, not yet executable.
    RawGraph;
    /// An executable graph.
    RawGraphExec;
    /// A node of a graph, while the graph exists.
    RawGraphNode;
}

/// The ordinal of a device among those the driver enumerates, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct DeviceId(pub u32);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

/// An address in device memory. The host never dereferences it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The null address: what a zero-length buffer has.
    pub const NULL: Self = Self(0);

    /// The address `bytes` further on; `None` when it does not fit 64 bits.
    #[must_use]
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }
}

impl fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DevicePtr({:#x})", self.0)
    }
}
