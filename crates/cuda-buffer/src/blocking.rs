//! Accesses without a stream: for synchronous driver calls, after a wait on the host.

use crate::acquire::{ReadRequest, WriteRequest};
use crate::domain::Domain;
use crate::ledger::{AccessKind, Holder, Predecessors, Token};
use crate::{BufferError, BufferResult};
use cuda_driver::{CallSite, DevicePtr};
use cuda_runtime::Completion;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

/// A live access of the host, after everything that it must come after.
#[derive(Debug)]
pub(crate) struct BlockingAccess {
    domain: Domain,
    token: Option<Token>,
}

/// The token of an access without a stream.
pub(crate) fn host_token(kind: AccessKind, since: &'static Location<'static>) -> Token {
    let stream = None;
    let holder = Holder { stream, since };
    Token { kind, holder }
}

impl BlockingAccess {
    /// Takes the token, then waits on the host. When the wait fails, the token is back.
    #[track_caller]
    pub(crate) fn begin(domain: &Domain, kind: AccessKind) -> BufferResult<Self> {
        let _site = CallSite::enter();
        let since = CallSite::current().unwrap_or_else(Location::caller);
        cuda_runtime::refuse_in_capture("access by synchronous calls")?;
        domain.device().check_poison()?;
        let (token, mut before) = (host_token(kind, since), Predecessors::new());
        domain.open();
        domain.begin(token, &mut |completion| before.push(completion.clone()))?;
        let access = Self {
            domain: domain.clone(),
            token: Some(token),
        };
        Completion::wait_all(&before)?;
        Ok(access)
    }

    fn end(&mut self, done: Option<Completion>) {
        // A child leaves the parent's ledgers, and who may have locked them, alone.
        if let Some(token) = self.token.take()
            && !self.domain.device().is_forked()
        {
            self.domain.end(token, done);
        }
    }
}

impl Drop for BlockingAccess {
    fn drop(&mut self) {
        self.end(None);
    }
}

macro_rules! accesses {
    ($($(#[$doc:meta])* $name:ident, $request:ident, $kind:expr, $borrow:ty;)+) => { $(
        $(#[$doc])*
        ///
        /// The call must be over when the access ends; no event is recorded. It is refused while the thread captures.
        #[must_use = "the access ends when this value drops"]
        pub struct $name<'a, T> {
            access: BlockingAccess,
            offset_bytes: u64,
            len: usize,
            borrow: PhantomData<$borrow>,
        }

        impl<'a, T> $name<'a, T> {
            #[track_caller]
            pub(crate) fn acquire(request: $request<'a, T>) -> BufferResult<Self> {
                Ok(Self {
                    access: BlockingAccess::begin(request.domain, $kind)?,
                    offset_bytes: request.offset_bytes,
                    len: request.len,
                    borrow: PhantomData,
                })
            }

            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// The address, for synchronous driver calls of one's own while the access lives. It is null for no
            /// elements.
            #[must_use]
            pub fn address(&self) -> DevicePtr {
                match self.access.domain.address() {
                    DevicePtr::NULL => DevicePtr::NULL,
                    // Within an allocation, so it does not wrap.
                    base => DevicePtr(base.0 + self.offset_bytes),
                }
            }

            /// Ends the access, as dropping does.
            pub fn release(self) {
                drop(self);
            }

            /// Ends the access while work that was begun under it goes on until `done`, such as a copy from ordinary memory
            /// that has returned after staging: later accesses come after `done`.
            ///
            /// # Errors
            /// [`BufferError::Captured`] for a completion that was recorded in a capture; the access has ended, which is
            /// right only if its work is over.
            ///
            /// # Safety
            /// All work that was begun under the access is over once `done` is complete.
            pub unsafe fn release_with_completion(mut self, done: Completion) -> BufferResult<()> {
                if done.is_captured() {
                    return Err(BufferError::Captured);
                }
                self.access.end(Some(done));
                Ok(())
            }
        }

        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("domain", &self.access.domain.id())
                    .field("len", &self.len)
                    .finish_non_exhaustive()
            }
        }
    )+ };
}

accesses! {
    /// A read access for synchronous driver calls, after the latest write was waited for on the host.
    BlockingReadAccess, ReadRequest, AccessKind::Read, &'a T;

    /// A write access for synchronous driver calls, after everything that uses the value was waited for on the host.
    BlockingWriteAccess, WriteRequest, AccessKind::Write, &'a mut T;
}
