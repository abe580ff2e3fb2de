//! Arguments of a launch: device addresses and plain scalars.

use crate::DevicePtr;
use bytemuck::{AnyBitPattern, NoUninit};
use std::fmt;

const SCALAR_BYTES: usize = 16;

/// A plain value of at most 16 bytes, passed to a kernel by value.
#[derive(Clone, Copy, PartialEq)]
#[repr(C, align(16))]
pub struct Scalar {
    bytes: [u8; SCALAR_BYTES],
    len: u8,
}

impl Scalar {
    /// The bytes of `value`. A type of more than 16 bytes does not compile.
    #[inline]
    #[must_use]
    pub fn new<T: NoUninit>(value: T) -> Self {
        const { assert!(size_of::<T>() <= SCALAR_BYTES && align_of::<T>() <= SCALAR_BYTES) };
        let mut bytes = [0; SCALAR_BYTES];
        bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        Self {
            bytes,
            len: size_of::<T>() as u8,
        }
    }

    /// A value of these bytes; `None` when there are more than 16.
    #[must_use]
    pub fn from_bytes(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; SCALAR_BYTES];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self {
            bytes,
            len: value.len() as u8,
        })
    }

    /// The value, when `T` has the size of what was stored.
    #[inline]
    #[must_use]
    pub fn get<T: AnyBitPattern>(&self) -> Option<T> {
        (size_of::<T>() == self.as_bytes().len())
            .then(|| bytemuck::pod_read_unaligned(self.as_bytes()))
    }

    /// The stored bytes; their address is 16-byte aligned.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scalar({:02x?})", self.as_bytes())
    }
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// An address in device memory.
    Pointer(DevicePtr),
    /// A value.
    Scalar(Scalar),
}

impl Argument {
    /// A scalar argument. A type of more than 16 bytes does not compile.
    #[inline]
    #[must_use]
    pub fn scalar<T: NoUninit>(value: T) -> Self {
        Self::Scalar(Scalar::new(value))
    }
}

/// The arguments of one launch, read by position.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(pub &'a [Argument]);

impl Arguments<'_> {
    /// The address at `index`; `None` when there is none.
    #[inline]
    #[must_use]
    pub fn pointer(&self, index: usize) -> Option<DevicePtr> {
        match self.0.get(index)? {
            Argument::Pointer(address) => Some(*address),
            Argument::Scalar(_) => None,
        }
    }

    /// The scalar at `index`; `None` when there is none of this size.
    #[inline]
    #[must_use]
    pub fn scalar<T: AnyBitPattern>(&self, index: usize) -> Option<T> {
        match self.0.get(index)? {
            Argument::Scalar(value) => value.get(),
            Argument::Pointer(_) => None,
        }
    }
}
