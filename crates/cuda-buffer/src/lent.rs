//! A completion that a ledger keeps, for who has one of the ledger's tokens.

use cuda_runtime::Completion;
use std::borrow::Borrow;
use std::mem::ManuallyDrop;

/// A handle that is not counted: it costs no locked operation, and keeps nothing alive.
pub(crate) struct Lent(ManuallyDrop<Completion>);

impl Lent {
    /// Another handle of `completion`.
    ///
    /// # Safety
    /// A counted handle of the same completion lives for at least as long as this.
    #[inline]
    pub(crate) unsafe fn of(completion: &Completion) -> Self {
        // SAFETY: the copy is only borrowed and never dropped, and the caller keeps alive what it refers to.
        let copy = unsafe { std::ptr::read(completion) };
        Self(ManuallyDrop::new(copy))
    }
}

impl Borrow<Completion> for Lent {
    #[inline]
    fn borrow(&self) -> &Completion {
        &self.0
    }
}
