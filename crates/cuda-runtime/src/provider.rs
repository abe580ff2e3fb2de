//! What layers above keep per device, such as handles of libraries: made when it is first asked for.

use crate::device::Device;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

/// Objects by their type. They may hold the device: the runtime gives them up when its last handle drops.
#[derive(Default)]
pub(crate) struct Providers(Mutex<State>);

#[derive(Default)]
struct State {
    objects: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    /// The runtime is gone: what is made now is not kept, or it would keep the device alive for ever.
    closed: bool,
}

impl Device {
    /// The object of type `P` that is kept with the device, made by `make` when it is asked for first.
    ///
    /// It lives until the last handle of the [`Runtime`](crate::Runtime) drops or the runtime is shut down, and as long as
    /// somebody uses it. It may hold the device. After the runtime is gone every call makes one of its own.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn provider<P: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce(&Device) -> Result<P, E>,
    ) -> Result<Arc<P>, E> {
        let find = |state: &State| {
            let mut objects = state.objects.iter();
            objects
                .find(|(id, _)| *id == TypeId::of::<P>())
                .map(|(_, object)| object.clone())
        };
        let providers = self.providers();
        if let Some(known) = find(&providers.0.lock()) {
            return Ok(typed(known));
        }
        // Outside the lock: making one may use the device, and others that are kept with it.
        let made: Arc<dyn Any + Send + Sync> = Arc::new(make(self)?);
        let mut state = providers.0.lock();
        let kept = match find(&state) {
            // Another thread was faster.
            Some(known) => known,
            None if state.closed => made.clone(),
            None => {
                state.objects.push((TypeId::of::<P>(), made.clone()));
                made.clone()
            }
        };
        drop(state);
        Ok(typed(kept))
    }
}

fn typed<P: Any + Send + Sync>(object: Arc<dyn Any + Send + Sync>) -> Arc<P> {
    object
        .downcast()
        .unwrap_or_else(|_| unreachable!("objects are found by their type"))
}

impl Providers {
    /// Gives up what is kept; and what is made from now on, when `closed`.
    pub(crate) fn clear(&self, closed: bool) {
        let objects = {
            let mut state = self.0.lock();
            state.closed |= closed;
            std::mem::take(&mut state.objects)
        };
        // Outside the lock: their drop may use the device.
        drop(objects);
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.lock().objects.len();
        write!(f, "Providers({count})")
    }
}
