//! Handles: what each is set to, and the context that it works in.

use crate::driver::{Driver, Handle, check, driver};
use crate::kernels::NAMES;
use crate::loading::{self, Batch, Kind};
use crate::types::{Status, cublasHandle_t, refused};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// The kernel of arrays of pointers.
const POINTERS: Kind = Kind {
    model: NAMES.len() - 1,
    operations: [0; 2],
    batch: Batch::Pointers,
};

/// Bytes of the workspace that a handle has by itself.
const OWN_BYTES: usize = 4096;

/// What a handle is set to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) stream: Handle,
    /// Address and bytes of the program's workspace; the handle's own is used without one.
    pub(crate) workspace: Option<(u64, usize)>,
    pub(crate) device_scalars: bool,
    pub(crate) atomics: bool,
    pub(crate) math: u32,
}

/// A handle.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) context: Handle,
    /// What looks at arrays of pointers, which cuBLAS has not: so it is always loaded.
    pub(crate) pointers: Handle,
    own_workspace: u64,
    settings: Mutex<Settings>,
}

/// The last number of a handle, and live handles by number; numbers are not used again.
#[derive(Debug)]
struct Handles(usize, Vec<(usize, Arc<State>)>);

static HANDLES: Mutex<Handles> = Mutex::new(Handles(0, Vec::new()));

impl State {
    fn new(driver: &'static Driver) -> Result<Self, Status> {
        let context = driver.current()?;
        let pointers = loading::function(context, POINTERS)?;
        loading::load(driver, pointers)?;
        let mut own_workspace = 0;
        // SAFETY: the pointer is to a number of ours.
        let allocated = unsafe { (driver.alloc)(&mut own_workspace, OWN_BYTES) };
        check(allocated, "cuMemAlloc")?;
        Ok(Self {
            context,
            pointers,
            own_workspace,
            settings: Mutex::new(Settings {
                stream: 0,
                workspace: None,
                device_scalars: false,
                atomics: false,
                math: 0,
            }),
        })
    }

    /// The settings, for one call: calls of a handle must not overlap, and need its context.
    pub(crate) fn settings(&self) -> Result<MutexGuard<'_, Settings>, Status> {
        let current = driver()?.current()?;
        if current != self.context {
            return Err(refused!(
                NotInitialized,
                "a handle of context {:#x} was used while {current:#x} is current",
                self.context
            ));
        }
        self.settings.try_lock().ok_or_else(|| {
            refused!(
                InternalError,
                "two threads use one handle at once: its settings are shared, so lease it"
            )
        })
    }

    /// Where scratch goes: address and bytes.
    pub(crate) fn workspace(&self, settings: &Settings) -> (u64, usize) {
        settings
            .workspace
            .unwrap_or((self.own_workspace, OWN_BYTES))
    }
}

/// A new handle in the current context.
pub(crate) fn create() -> Result<cublasHandle_t, Status> {
    let state = Arc::new(State::new(driver()?)?);
    let mut handles = HANDLES.lock();
    handles.0 += 1;
    // No address of anything, and not null.
    let number = 0xcb1a_0000 + 16 * handles.0;
    handles.1.push((number, state));
    Ok(std::ptr::without_provenance_mut(number))
}

/// The handle of this name.
pub(crate) fn find(handle: cublasHandle_t) -> Result<Arc<State>, Status> {
    let handles = HANDLES.lock();
    let found = handles
        .1
        .iter()
        .find(|(number, _)| *number == handle.addr());
    found.map(|(_, state)| state.clone()).ok_or_else(|| {
        refused!(
            NotInitialized,
            "{:#x} is no handle, or one that was destroyed",
            handle.addr()
        )
    })
}

/// Ends a handle, after all work of the device. After an error it is as before.
pub(crate) fn destroy(handle: cublasHandle_t) -> Result<(), Status> {
    let (driver, state) = (driver()?, find(handle)?);
    let _alone = state.settings()?;
    // SAFETY: the call takes no pointers.
    check(unsafe { (driver.synchronize)() }, "cuCtxSynchronize")?;
    // SAFETY: all work is over, and nobody else knows the memory.
    check(unsafe { (driver.free)(state.own_workspace) }, "cuMemFree")?;
    HANDLES
        .lock()
        .1
        .retain(|(number, _)| *number != handle.addr());
    Ok(())
}

/// How many handles there are.
pub(crate) fn alive() -> usize {
    HANDLES.lock().1.len()
}
