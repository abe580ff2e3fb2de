//! Arrays as data, in the form that `ndarray` has.

use ::serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use ndarray::{Array, Dimension};
use space_core::Element;

use crate::{Kind, SpaceArray, UninitArray};

/// # Errors
///
/// [`InvalidMemory`](crate::InvalidMemory), as the serialiser's own error.
impl<T, D, K> Serialize for SpaceArray<T, D, K>
where
    T: Element + Serialize,
    D: Dimension + Serialize,
    K: Kind,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = self.try_view().map_err(ser::Error::custom)?;
        view.view().serialize(serializer)
    }
}

/// Into memory of the allocator in scope, by way of an array of `ndarray` on the heap.
impl<'de, T, D, K> Deserialize<'de> for SpaceArray<T, D, K>
where
    T: Element + Deserialize<'de>,
    D: Dimension + Deserialize<'de>,
    K: Kind,
{
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        let array = Array::<T, D>::deserialize(deserializer)?;
        UninitArray::new(array.raw_dim())
            .and_then(|fresh| fresh.try_copied_from(array.view()))
            .map_err(de::Error::custom)
    }
}
