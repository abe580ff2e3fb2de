//! What layers above keep per device, such as handles of libraries: made when it is first asked for.

use crate::device::Device;
use crate::primitive::{Condvar, Mutex};
use parking_lot::Mutex as StaticMutex;
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
}

/// A thread that waits for an object that another one makes.
struct Wait {
    waiter: ThreadId,
    maker: ThreadId,
    /// The device's providers, by address, and the object.
    object: (usize, TypeId),
}

/// Who waits for whom, on all devices: the objects of one may need those of another. Locked after the state of one device.
static WAITS: StaticMutex<Vec<Wait>> = StaticMutex::new(Vec::new());

/// Notes that this thread waits; unless `maker` is this thread, or waits for it, directly or by way of others.
fn may_wait(wait: Wait) -> bool {
    let mut waits = WAITS.lock();
    let mut maker = wait.maker;
    // Each thread waits for one object at most, and none that is noted waits for itself, so the chain has an end.
    while maker != wait.waiter {
        match waits.iter().find(|other| other.waiter == maker) {
            Some(next) => maker = next.maker,
            None => {
                waits.push(wait);
                return true;
            }
        }
    }
    false
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
        // Whoever waited looks again; meanwhile it waits for nobody.
        let object = (self.providers.address(), self.id);
        WAITS.lock().retain(|wait| wait.object != object);
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
    /// When `make` asks for the same object, itself or by way of others, of this device or of another: it would wait for itself for ever. A panic of
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
                    let wait = Wait {
                        waiter: this,
                        maker: *maker,
                        object: (providers.address(), id),
                    };
                    assert!(
                        may_wait(wait),
                        "making {} asks for itself on {}: it would wait for ever",
                        type_name::<P>(),
                        self.id()
                    );
                    providers.changed.wait(&mut state);
                    WAITS.lock().retain(|wait| wait.waiter != this);
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
    /// Which ones they are.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

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
