//! Where in user code the current operation was asked for.
//!
//! A trait object forgets its caller, so layers above the port note the call site for this thread while they
//! work on behalf of a user: reports of a simulated device and poisoned devices then name the user's line, not ours.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

thread_local! {
    static SITE: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Holds the call site of an operation for this thread until it is dropped. The outermost one counts.
///
/// ```
/// use cuda_driver::CallSite;
/// #[track_caller]
/// fn operation() -> u32 {
///     let _site = CallSite::enter();
///     CallSite::current().map_or(0, |site| site.line())
/// }
/// assert_eq!(operation(), line!());
/// assert!(CallSite::current().is_none());
/// ```
#[derive(Debug)]
#[must_use = "the site is forgotten when this value drops"]
pub struct CallSite {
    outermost: bool,
    thread_bound: PhantomData<*const ()>,
}

impl CallSite {
    /// Notes the caller's location, unless an outer operation of this thread has noted its own.
    #[track_caller]
    #[inline]
    pub fn enter() -> Self {
        Self::at(Location::caller())
    }

    /// Notes a location that was kept earlier, unless an outer operation of this thread has noted its own.
    #[inline]
    pub fn at(location: &'static Location<'static>) -> Self {
        let outermost = SITE.get().is_none();
        if outermost {
            SITE.set(Some(location));
        }
        Self {
            outermost,
            thread_bound: PhantomData,
        }
    }

    /// The location that is noted for this thread.
    #[inline]
    #[must_use]
    pub fn current() -> Option<&'static Location<'static>> {
        SITE.get()
    }
}

impl Drop for CallSite {
    #[inline]
    fn drop(&mut self) {
        if self.outermost {
            SITE.set(None);
        }
    }
}
