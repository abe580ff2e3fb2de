//! Ambient spaces that can cross threads.

use std::{
    alloc::Layout,
    any::Any,
    fmt,
    pin::Pin,
    ptr::NonNull,
    sync::Arc,
    task::{Context, Poll},
    thread::{self, JoinHandle},
};

use super::{AmbientBlock, AmbientFamily, AmbientOf, Bound, Restore};
use crate::{AllocError, Host, Space, block};

/// A shared space to be bound as the ambient one, on any thread.
///
/// An arena is of one thread and no scope; a space that threads can share is: the heap, or a pool
/// behind a lock.
///
/// ```
/// use space_core::{AllocError, Heap, Scope, Undef, ambient_alloc, spawn_in_scope};
///
/// let scope = Scope::new(Heap);
/// let there = scope.enter(|| {
///     let here = ambient_alloc(Undef::<u32, _>::new([3]))?;
///     // Handed over explicitly; a plain `thread::spawn` starts unbound.
///     let other = spawn_in_scope(|| ambient_alloc(Undef::<u32, _>::new([4])))?;
///     assert_eq!(here.len(), 3);
///     Ok::<_, AllocError>(other)
/// })?;
/// assert_eq!(there.join().unwrap()?.len(), 4);
/// # Ok::<(), AllocError>(())
/// ```
pub struct Scope<F: AmbientFamily = Host>(Arc<dyn Shared<F>>);

impl<F: AmbientFamily> Clone for Scope<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A shared space, seen without its type.
trait Shared<F: AmbientFamily>: Send + Sync {
    fn block(&self, layout: Layout) -> Result<AmbientBlock<F>, AllocError>;
    fn space(&self) -> &dyn Any;
}

struct Sharing<S>(S);

impl<F: AmbientFamily, S> Shared<F> for Sharing<S>
where
    S: Space<Family = F, Block: Send + Sync + 'static> + Send + Sync + 'static,
{
    fn block(&self, layout: Layout) -> Result<AmbientBlock<F>, AllocError> {
        let block = self.0.block(layout)?;
        block::check(&block, layout)?;
        Ok(AmbientBlock::of(block))
    }

    fn space(&self) -> &dyn Any {
        &self.0
    }
}

impl<F: AmbientFamily> Scope<F> {
    /// The scope of a space. Where the scope is bound, the space must not allocate ambiently when it
    /// is asked: it would ask itself, without end.
    pub fn new<S>(space: S) -> Self
    where
        S: Space<Family = F, Block: Send + Sync + 'static> + Send + Sync + 'static,
    {
        Self(Arc::new(Sharing(space)))
    }

    /// Runs `body` with this as the ambient space of the thread.
    pub fn enter<R>(&self, body: impl FnOnce() -> R) -> R {
        let _restore = Restore::after(Some(Bound::Shared(NonNull::from(self))));
        body()
    }

    /// The space of this scope, if it is an `S`: for code that serves spaces it knows in a way of
    /// its own.
    ///
    /// ```
    /// use space_core::{Heap, Scope};
    /// let scope: Scope = Scope::new(Heap);
    /// assert_eq!(scope.downcast_ref(), Some(&Heap));
    /// assert_eq!(scope.downcast_ref::<u8>(), None);
    /// ```
    #[inline]
    #[must_use]
    pub fn downcast_ref<S: 'static>(&self) -> Option<&S> {
        self.0.space().downcast_ref()
    }
}

/// A scope is a space by itself, bound or not.
impl<F: AmbientFamily> Space for Scope<F> {
    type Family = F;
    type Block = AmbientBlock<F>;

    #[inline]
    fn block(&self, layout: Layout) -> Result<AmbientBlock<F>, AllocError> {
        self.0.block(layout)
    }
}

impl<F: AmbientFamily> fmt::Debug for Scope<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// The scope that this thread is in, to be handed to another one.
///
/// # Errors
///
/// [`AllocError::Unbound`], and [`AllocError::TaskLocalScope`] if an arena is bound.
pub fn current_scope() -> Result<Scope, AllocError> {
    AmbientOf::<Host>::new().scope()
}

/// Runs `look` with the scope that this thread is in, which isn't cloned for that; with `None` if
/// nothing is bound, or an arena.
///
/// ```
/// use space_core::{Heap, Scope, with_current_scope};
/// let heap = || with_current_scope(|scope| scope.and_then(Scope::downcast_ref::<Heap>).is_some());
/// assert!(!heap());
/// assert!(Scope::new(Heap).enter(heap));
/// ```
#[inline]
pub fn with_current_scope<R>(look: impl FnOnce(Option<&Scope>) -> R) -> R {
    AmbientOf::<Host>::new().with_scope(look)
}

/// Spawns a thread that runs `body` in the scope that this one is in.
///
/// # Errors
///
/// Those of [`current_scope`], and [`AllocError::Other`] if the system can't make a thread. Then
/// nothing was spawned.
pub fn spawn_in_scope<R: Send + 'static>(
    body: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>, AllocError> {
    AmbientOf::<Host>::new().spawn(body)
}

impl<F: AmbientFamily> AmbientOf<F> {
    /// The scope that this thread is in, to be handed to another one: [`current_scope`] for any
    /// family.
    ///
    /// # Errors
    ///
    /// [`AllocError::Unbound`], and [`AllocError::TaskLocalScope`] if an arena is bound.
    pub fn scope(self) -> Result<Scope<F>, AllocError> {
        match super::bound() {
            None => Err(AllocError::Unbound),
            Some(Bound::Local(_)) => Err(AllocError::TaskLocalScope),
            Some(Bound::Shared(scope)) => {
                // SAFETY: The binding holds the scope until it ends, which is after this call.
                Ok(unsafe { scope.as_ref() }.clone())
            }
        }
    }

    /// Runs `look` with the scope that this thread is in: [`with_current_scope`] for any family.
    #[inline]
    pub fn with_scope<R>(self, look: impl FnOnce(Option<&Scope<F>>) -> R) -> R {
        match super::bound() {
            // SAFETY: The binding holds the scope until it ends, which is after this call:
            // bindings made and ended in `look` leave it.
            Some(Bound::Shared(scope)) => look(Some(unsafe { scope.as_ref() })),
            None | Some(Bound::Local(_)) => look(None),
        }
    }

    /// Spawns a thread that runs `body` in the scope that this one is in: [`spawn_in_scope`] for
    /// any family.
    ///
    /// # Errors
    ///
    /// As for [`spawn_in_scope`].
    pub fn spawn<R: Send + 'static>(
        self,
        body: impl FnOnce() -> R + Send + 'static,
    ) -> Result<JoinHandle<R>, AllocError> {
        let scope = self.scope()?;
        let spawned = thread::Builder::new().spawn(move || scope.enter(body));
        spawned.map_err(AllocError::other)
    }
}

/// A future that is in a scope wherever it is polled.
///
/// ```
/// use space_core::{AllocError, Heap, InScope, Scope, Undef, ambient_alloc};
///
/// async fn step() -> Result<usize, AllocError> {
///     let before = ambient_alloc(Undef::<u8, _>::new([2]))?;
///     std::future::ready(()).await; // other tasks run here, in scopes of their own
///     let after = ambient_alloc(Undef::like(&before))?;
///     Ok(after.len())
/// }
///
/// let future = InScope::new(Scope::new(Heap), step());
/// # let mut future = std::pin::pin!(future);
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # let std::task::Poll::Ready(len) = future.as_mut().poll(&mut context) else { unreachable!() };
/// # assert_eq!(len?, 2);
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct InScope<T, F: AmbientFamily = Host> {
    scope: Scope<F>,
    future: T,
}

impl<T, F: AmbientFamily> InScope<T, F> {
    /// Puts `future` in `scope`.
    pub fn new(scope: Scope<F>, future: T) -> Self {
        Self { scope, future }
    }
}

impl<T: Future, F: AmbientFamily> Future for InScope<T, F> {
    type Output = T::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T::Output> {
        // SAFETY: The future is only reached through the pin again, never moved, and the scope is
        // not pinned; there is no `Drop` and no `Unpin` impl that says otherwise.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: As above: `this` came out of a pin.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        this.scope.enter(|| future.poll(context))
    }
}
