//! Whether this process is a child of the one that opened a runtime: there the driver's state means nothing.
//!
//! A fork copies one thread. Locks that others held stay locked for ever, and the driver's own threads are gone. So in a child
//! nothing of an inherited runtime calls the driver or takes a lock: calls fail, and destructors do nothing.

use crate::{RuntimeError, RuntimeResult};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks this process is away from the first one that looked.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// When, by number of forks, and in which process something was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    forks: u32,
    pid: u32,
}

impl Origin {
    pub(crate) fn here() -> Self {
        watch();
        Self {
            forks: FORKS.load(Ordering::Relaxed),
            pid: std::process::id(),
        }
    }

    /// Whether this is a child of that process. One load: only the forking thread exists when the number changes.
    #[inline]
    pub(crate) fn is_elsewhere(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }

    #[cold]
    pub(crate) fn error(self) -> RuntimeError {
        RuntimeError::Forked {
            created_pid: self.pid,
            current_pid: std::process::id(),
        }
    }

    #[inline]
    pub(crate) fn check(self) -> RuntimeResult<()> {
        match self.is_elsewhere() {
            true => Err(self.error()),
            false => Ok(()),
        }
    }
}

/// Has forks counted from now on.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        {
            extern "C" fn forked() {
                FORKS.fetch_add(1, Ordering::Relaxed);
            }
            unsafe extern "C" {
                fn pthread_atfork(
                    prepare: Option<extern "C" fn()>,
                    parent: Option<extern "C" fn()>,
                    child: Option<extern "C" fn()>,
                ) -> std::ffi::c_int;
            }
            // SAFETY: the declaration is that of POSIX; the handler only adds to an atomic, as a child's handler may.
            let failed = unsafe { pthread_atfork(None, None, Some(forked)) };
            // It fails for want of memory alone; then a child is not recognised, as without it.
            debug_assert_eq!(failed, 0, "a handler of forks could not be installed");
        }
    });
}
