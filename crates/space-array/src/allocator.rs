//! Who says where arrays come from.

use space_core::Scope;

/// Something that can be bound as the place that arrays come from.
///
/// A space of one's own plugs in as a [`Scope`], which is an allocator too:
///
/// ```
/// use std::{alloc::Layout, sync::atomic::{AtomicUsize, Ordering}};
/// use space_array::{AllocArray, Scope, with_allocator};
/// use space_core::{AllocError, Heap, Host, HostBlock, Space};
///
/// /// Refuses what is large.
/// struct Small;
///
/// impl Space for Small {
///     type Family = Host;
///     type Block = HostBlock;
///     fn block(&self, layout: Layout) -> Result<HostBlock, AllocError> {
///         if layout.size() > 1000 {
///             return Err(AllocError::other("too large"));
///         }
///         Heap.block(layout)
///     }
/// }
///
/// with_allocator(&Scope::new(Small), || {
///     assert!(AllocArray::<f64, _>::try_uninit([10]).is_ok());
///     assert!(AllocArray::<f64, _>::try_uninit([1000]).is_err());
/// });
/// ```
pub trait Allocator {
    /// The scope that binds this allocator: the ambient space of `space-core`.
    fn scope(&self) -> &Scope;
}

impl Allocator for Scope {
    fn scope(&self) -> &Scope {
        self
    }
}

impl<A: Allocator + ?Sized> Allocator for &A {
    fn scope(&self) -> &Scope {
        (**self).scope()
    }
}

/// Runs `body` with `allocator` as the place that arrays of this thread come from.
///
/// Calls nest: the innermost counts, and when it ends, by a panic too, the one around it counts
/// again. It is the ambient space of `space-core` that is bound, so that its other forms bind the
/// allocator of arrays as well: `space_core::with_space` an arena, for instance.
///
/// Arrays may leave the closure; they keep their memory.
///
/// # Threads
///
/// The binding is this thread's. A thread that should have it is spawned with
/// [`spawn_in_scope`](crate::spawn_in_scope). Work for a pool of threads takes the scope along and
/// enters it inside each job. A thread of the pool that waits inside a scope, for the halves of a
/// `rayon::join` for instance, may do other jobs meanwhile: those that enter no scope make their
/// arrays in that one.
///
/// ```
/// use space_array::{AllocArray, AllocBuffer, BumperAllocator, current_scope, with_allocator};
///
/// let bumper = BumperAllocator::new(AllocBuffer::new(1 << 16)?);
/// let x = AllocArray::from([1, 2, 3]);
/// let total: i32 = with_allocator(&bumper, || {
///     let scope = current_scope()?;
///     // With rayon: `(1..=10).into_par_iter().map(|i| scope.enter(|| (&x + i).sum())).sum()`
///     let job = |i: i32| scope.enter(|| (&x + i).sum());
///     Ok::<_, space_core::AllocError>(std::thread::scope(|threads| {
///         let jobs: Vec<_> = (1..=10).map(|i| threads.spawn(move || job(i))).collect();
///         jobs.into_iter().map(|job| job.join().unwrap()).sum()
///     }))
/// })?;
/// assert_eq!(total, 225);
/// bumper.reset()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_allocator<A: Allocator + ?Sized, R>(allocator: &A, body: impl FnOnce() -> R) -> R {
    allocator.scope().enter(body)
}
