//! What layers above keep per device, such as handles of libraries: made when it is first asked for.

use crate::device::Device;
use crate::primitive::{Condvar, Mutex};
use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;
use std::thread::ThreadId;

/// Objects by their type. They may hold the device: the runtime gives them up when its last handle drops.
///
/// | entry | asked for |
/// |---|---|
/// | none | the thread makes the object |
/// | being made by another thread | waits until that has ended, then looks again |
/// | being made by this thread, or by one that waits for this thread | would wait for itself: a panic |
/// | made | handed out |
#[derive(Default)]
pub(crate) struct Providers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: Vec<(TypeId, Entry)>,
    /// Threads that wait for an object, and which.
    waiting: Vec<(ThreadId, TypeId)>,
    /// The runtime is gone: what is made now is not kept, or it would keep the device alive for ever.
    closed: bool,
}

enum Entry {
    Making(ThreadId),
    Made(Arc<dyn Any + Send + Sync>),
}

impl State {
    fn find(&self, id: TypeId) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries.find(|(of, _)| *of == id).map(|(_, entry)| entry)
    }

    fn remove(&mut self, id: TypeId) {
        self.entries.retain(|(of, _)| *of != id);
    }

    /// Whether `maker` is this thread, or waits for it, directly or by way of others.
    fn waits_for(&self, mut maker: ThreadId, this: ThreadId) -> bool {
        // Each thread waits for one object at most, so the chain has an end, or this thread is in it.
        while maker != this {
            let waited = self.waiting.iter().find(|(thread, _)| *thread == maker);
            match waited.and_then(|(_, id)| self.find(*id)) {
                Some(Entry::Making(next)) => maker = *next,
                _ => return false,
            }
        }
        true
    }
}

/// An object that is being made. When that fails or panics, it is as if nobody had begun.
struct Making<'p> {
    providers: &'p Providers,
    id: TypeId,
    made: Option<Arc<dyn Any + Send + Sync>>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.providers.state.lock();
        state.remove(self.id);
        if let (Some(made), false) = (self.made.take(), state.closed) {
            state.entries.push((self.id, Entry::Made(made)));
        }
        self.providers.changed.notify_all();
    }
}

impl Device {
    /// The object of type `P` that is kept with the device, made by `make` when it is asked for first: once, also when
    /// several threads ask. An error is not kept: whoever asks next tries again.
    ///
    /// It lives until the last handle of the [`Runtime`](crate::Runtime) drops or the runtime is shut down, and as long as
    /// somebody uses it, and goes before the device's streams. It may hold the device. After the runtime is gone every
    /// call makes one of its own.
    ///
    /// # Errors
    /// Those of `make`.
    ///
    /// # Panics
    /// When `make` asks for the same object, itself or by way of another one: it would wait for itself for ever. A panic of
    /// `make` leaves the object unmade.
    ///
    /// ```
    /// use cuda_runtime::{Runtime, RuntimeError};
    ///
    /// struct Tables(Vec<u32>);
    ///
    /// # fn main() -> Result<(), RuntimeError> {
    /// let runtime = Runtime::builder().build()?;
    /// let device = runtime.default_device();
    /// let tables = device.provider(|_| Ok::<_, RuntimeError>(Tables(vec![1, 2, 3])))?;
    /// let again = device.provider::<Tables, RuntimeError>(|_| unreachable!("it is there"))?;
    /// assert_eq!(tables.0, again.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn provider<P: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce(&Device) -> Result<P, E>,
    ) -> Result<Arc<P>, E> {
        if self.is_forked() {
            return make(self).map(Arc::new);
        }
        let providers = self.providers();
        let (id, this) = (TypeId::of::<P>(), std::thread::current().id());
        let mut state = providers.state.lock();
        loop {
            match state.find(id) {
                None => break,
                Some(Entry::Made(object)) => return Ok(typed(object.clone())),
                Some(Entry::Making(maker)) => {
                    let cycle = state.waits_for(*maker, this);
                    assert!(
                        !cycle,
                        "making {} asks for itself: it would wait for ever",
                        type_name::<P>()
                    );
                    state.waiting.push((this, id));
                    providers.changed.wait(&mut state);
                    state.waiting.retain(|(thread, _)| *thread != this);
                }
            }
        }
        if !state.closed {
            state.entries.push((id, Entry::Making(this)));
        }
        let keep = !state.closed;
        drop(state);
        if !keep {
            return make(self).map(Arc::new);
        }
        let mut making = Making {
            providers,
            id,
            made: None,
        };
        // Outside the lock: it may use the device, and others that are kept with it.
        let made = Arc::new(make(self)?);
        making.made = Some(made.clone());
        Ok(made)
    }
}

fn typed<P: Any + Send + Sync>(object: Arc<dyn Any + Send + Sync>) -> Arc<P> {
    object
        .downcast()
        .unwrap_or_else(|_| unreachable!("objects are found by their type"))
}

impl Providers {
    /// Gives up what is kept, and keeps nothing from now on.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.clear();
    }

    /// Gives up what is kept.
    pub(crate) fn clear(&self) {
        let mut made = Vec::new();
        {
            let mut state = self.state.lock();
            for (id, entry) in std::mem::take(&mut state.entries) {
                match entry {
                    Entry::Made(object) => made.push(object),
                    // Its maker removes it.
                    Entry::Making(_) => state.entries.push((id, entry)),
                }
            }
        }
        // Outside the lock: their drop may use the device.
        drop(made);
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.state.lock().entries.len();
        write!(f, "Providers({count})")
    }
}
