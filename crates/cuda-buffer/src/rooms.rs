//! Memory of values that have ended, which each thread keeps for those that it makes next.

use crate::domain::OwnedDomain;
use cuda_runtime::Room;
use std::cell::RefCell;

/// Rooms that a thread keeps at most, some hundred bytes each.
const MOST: usize = 256;

thread_local! {
    static ROOMS: RefCell<Vec<Room<OwnedDomain>>> = const { RefCell::new(Vec::new()) };
}

/// Room for a value.
#[inline]
pub(crate) fn take() -> Room<OwnedDomain> {
    let kept = ROOMS.try_with(|rooms| rooms.borrow_mut().pop());
    kept.ok().flatten().unwrap_or_default()
}

/// Takes the room of a value that has ended. At the end of a thread it is given up.
#[inline]
pub(crate) fn keep(room: Room<OwnedDomain>) {
    let _ = ROOMS.try_with(|rooms| {
        let mut rooms = rooms.borrow_mut();
        if rooms.len() < MOST {
            rooms.push(room);
        }
    });
}
