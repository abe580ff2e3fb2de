//! Handles of a completion or a stream that come and go together, counted in one step.

use crate::completion::Completion;
use crate::counted::{Counted, Last, Shares};
use crate::node::Node;
use crate::stream::{Lease, Stream};
use std::marker::PhantomData;

/// Handles of one completion, for several who keep one each.
#[derive(Debug)]
pub struct Handles(Shares<Node>);

/// Clones of one stream, for several who keep one each.
#[derive(Debug)]
pub struct Streams<'s> {
    clones: Shares<Lease>,
    stream: PhantomData<&'s Stream>,
}

impl Handles {
    #[inline]
    pub(crate) fn of(shares: Shares<Node>) -> Self {
        Self(shares)
    }

    /// One of them.
    ///
    /// # Panics
    /// When all that were asked for are taken.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Completion {
        let node = self.0.take();
        Completion::from_node(node.expect("no more are taken than were asked for"))
    }
}

impl<'s> Streams<'s> {
    #[inline]
    pub(crate) fn of(_: &'s Stream, clones: Shares<Lease>) -> Self {
        let stream = PhantomData;
        Self { clones, stream }
    }

    /// One of them; when all that were asked for are taken, one more.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Stream {
        Stream::of_lease(self.clones.take_or_more())
    }
}

/// Completions and streams that somebody needs no more. Those of one place, and of one lease, that come in a row are given
/// up in one step: completions by the time that this drops, streams when it does, so that no lease ends before.
#[derive(Debug, Default)]
pub struct Spent {
    nodes: Option<Shares<Node>>,
    leases: Option<Shares<Lease>>,
    others: Option<Box<Others>>,
}

/// Other leases than the last one: a stream of the device's own may have several.
#[derive(Debug, Default)]
struct Others(Vec<Shares<Lease>>);

/// Adds a reference to those of the same value, or replaces others, which it returns.
#[inline]
fn add<T: Last>(spent: &mut Option<Shares<T>>, one: Counted<T>) -> Option<Shares<T>> {
    let one = match spent {
        Some(shares) => match shares.join(one) {
            Ok(()) => return None,
            Err(one) => one,
        },
        None => one,
    };
    spent.replace(Shares::of(one))
}

impl Spent {
    /// Gives up a completion.
    #[inline]
    pub fn completion(&mut self, completion: Completion) {
        drop(add(&mut self.nodes, completion.into_node()));
    }

    /// Gives up those of a place that one of `earlier` refers to, if there is nobody else: it is then alone.
    #[inline]
    pub(crate) fn reuse_node(&mut self, earlier: &mut [Completion]) {
        if let Some(nodes) = &mut self.nodes {
            earlier.iter_mut().any(|place| place.take_back(nodes));
        }
    }

    /// Gives up a stream.
    #[inline]
    pub fn stream(&mut self, stream: Stream) {
        if let Some(other) = add(&mut self.leases, stream.into_lease()) {
            self.keep(other);
        }
    }

    #[cold]
    fn keep(&mut self, other: Shares<Lease>) {
        self.others.get_or_insert_default().0.push(other);
    }
}
