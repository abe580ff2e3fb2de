//! How many pins this thread holds itself, so that it doesn't wait for itself.

#![forbid(unsafe_code)]

use std::cell::RefCell;

use crate::sync::per_thread;

// Regions by identity, with the pins that this thread took and has not let go. Few at a time, so
// that a search is short.
per_thread!(static OWN: RefCell<Vec<(u64, usize)>> = RefCell::new(Vec::new()));

/// A pin of `region` was taken.
#[inline]
pub(crate) fn took(region: u64) {
    // While the thread ends nobody waits on it any more.
    let _ = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        match own.iter_mut().find(|(id, _)| *id == region) {
            Some((_, pins)) => *pins += 1,
            None => own.push((region, 1)),
        }
    });
}

/// A pin of `region` was let go.
#[inline]
pub(crate) fn let_go(region: u64) {
    let _ = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        if let Some(at) = own.iter().position(|(id, _)| *id == region) {
            own[at].1 -= 1;
            if own[at].1 == 0 {
                own.swap_remove(at);
            }
        }
    });
}

/// How many pins of `region` this thread holds.
pub(crate) fn count(region: u64) -> usize {
    let find = |own: &RefCell<Vec<(u64, usize)>>| {
        let own = own.borrow();
        own.iter().find(|(id, _)| *id == region).map(|&(_, n)| n)
    };
    OWN.try_with(find).ok().flatten().unwrap_or(0)
}
