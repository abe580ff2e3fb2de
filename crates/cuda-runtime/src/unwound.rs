//! What is put right when a call unwinds: a driver may, before it has had any effect.

use std::fmt;

/// Does what it is given when it drops, which is when something unwinds: otherwise it is [disarmed](Self::disarm).
///
/// ```
/// use cuda_runtime::OnUnwind;
/// use std::cell::Cell;
///
/// let held = Cell::new(true);
/// let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
///     let given_back = OnUnwind::new(|| held.set(false));
///     if held.get() {
///         std::panic::resume_unwind(Box::new("a bug"));
///     }
///     given_back.disarm();
/// }));
/// assert!(unwound.is_err() && !held.get());
/// ```
#[must_use = "it does what it is given when it drops"]
pub struct OnUnwind<F: FnMut()>(F);

impl<F: FnMut()> OnUnwind<F> {
    /// From here on what unwinds is put right by `put_right`. What that owns is forgotten when it is not called.
    #[inline(always)]
    pub fn new(put_right: F) -> Self {
        Self(put_right)
    }

    /// Nothing has unwound.
    #[inline(always)]
    pub fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<F: FnMut()> Drop for OnUnwind<F> {
    #[cold]
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<F: FnMut()> fmt::Debug for OnUnwind<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnUnwind")
    }
}
