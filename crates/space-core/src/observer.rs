//! Who is told of what frames do.

use crate::Keeper;

/// Is told what frames over a space do, so that the space can count what an arena would have
/// taken. See [`Space::observer`](crate::Space::observer) and [`Tally`](crate::Tally).
///
/// Calls of opening and closing pair and nest.
pub trait Observer {
    /// A frame over the space opened.
    fn frame_opened(&self);

    /// The innermost frame over the space ended, and its blocks were given back.
    fn frame_closed(&self);

    /// Ambient arrays that are made from now on belong together: in an arena they would be pinned
    /// together.
    fn ambient_opened(&self) {}

    /// Ambient arrays belong with those again that were made before the matching
    /// [`ambient_opened`](Observer::ambient_opened).
    fn ambient_closed(&self) {}

    /// The latest block, of `bytes`, became that of an ambient array, which holds what is returned
    /// as long as it lives.
    fn ambient_made(&self, bytes: usize) -> Option<Keeper> {
        let _ = bytes;
        None
    }
}
