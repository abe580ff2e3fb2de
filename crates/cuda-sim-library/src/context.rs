//! Contexts, and which of them is current on a thread.
//!
//! All contexts of a device share its simulation; a context is a name for the device, with a legacy stream of its own.

use crate::export::library;
use crate::legacy::Legacy;
use crate::library::Library;
use crate::types::CUcontext;
use cuda_driver::{DeviceId, Driver, ErrorCode};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A context. It is never freed, so that a handle of a destroyed one can be told.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: DeviceId,
    pub(crate) flags: AtomicU32,
    pub(crate) alive: AtomicBool,
    pub(crate) legacy: Mutex<Legacy>,
}

/// All contexts that ever were, and the primary ones by device with their counts.
#[derive(Debug, Default)]
struct Contexts {
    all: Vec<&'static Context>,
    primary: Vec<(DeviceId, &'static Context, usize)>,
}

static CONTEXTS: Mutex<Contexts> = Mutex::new(Contexts {
    all: Vec::new(),
    primary: Vec::new(),
});

thread_local! {
    /// The contexts that are current on this thread, the one in force last.
    static STACK: RefCell<Vec<&'static Context>> = const { RefCell::new(Vec::new()) };
}

/// What a call needs: the library and the context in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub(crate) library: &'static Library,
    pub(crate) context: &'static Context,
}

impl Here {
    pub(crate) fn driver(&self) -> &'static dyn Driver {
        self.library.driver()
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.context.device
    }
}

/// The library and the current context.
pub(crate) fn here() -> Result<Here, ErrorCode> {
    let library = library()?;
    let context = current().ok_or(ErrorCode::INVALID_CONTEXT)?;
    match context.alive.load(Ordering::Relaxed) {
        true => Ok(Here { library, context }),
        false => Err(ErrorCode::INVALID_CONTEXT),
    }
}

pub(crate) fn current() -> Option<&'static Context> {
    STACK.with_borrow(|stack| stack.last().copied())
}

impl Context {
    fn new(device: DeviceId, flags: u32) -> &'static Self {
        let context: &'static Self = Box::leak(Box::new(Self {
            device,
            flags: AtomicU32::new(flags),
            alive: AtomicBool::new(true),
            legacy: Mutex::default(),
        }));
        CONTEXTS.lock().all.push(context);
        context
    }

    pub(crate) fn handle(&'static self) -> CUcontext {
        with_exposed_provenance_mut(std::ptr::from_ref(self).expose_provenance())
    }

    /// The living context of a handle.
    pub(crate) fn from_handle(handle: CUcontext) -> Result<&'static Self, ErrorCode> {
        let contexts = CONTEXTS.lock();
        let found = contexts
            .all
            .iter()
            .find(|context| std::ptr::from_ref(**context).addr() == handle.addr());
        match found {
            Some(context) if context.alive.load(Ordering::Relaxed) => Ok(context),
            _ => Err(ErrorCode::INVALID_CONTEXT),
        }
    }

    /// A context of its own, current on this thread.
    pub(crate) fn create(device: DeviceId, flags: u32) -> CUcontext {
        let context = Self::new(device, flags);
        push(context);
        context.handle()
    }

    /// Ends a context that is no primary one.
    pub(crate) fn destroy(handle: CUcontext) -> Result<(), ErrorCode> {
        let context = Self::from_handle(handle)?;
        let is_primary =
            |(_, primary, _): &(DeviceId, &Self, usize)| std::ptr::eq(*primary, context);
        if CONTEXTS.lock().primary.iter().any(is_primary) {
            return Err(ErrorCode::INVALID_CONTEXT);
        }
        context.alive.store(false, Ordering::Relaxed);
        STACK.with_borrow_mut(|stack| {
            if stack
                .last()
                .is_some_and(|last| std::ptr::eq(*last, context))
            {
                stack.pop();
            }
        });
        Ok(())
    }

    /// The primary context of a device, held once more.
    pub(crate) fn retain_primary(device: DeviceId) -> &'static Self {
        {
            let mut contexts = CONTEXTS.lock();
            let known = contexts.primary.iter_mut().find(|(of, ..)| *of == device);
            if let Some((_, context, count)) = known {
                *count += 1;
                context.alive.store(true, Ordering::Relaxed);
                return context;
            }
        }
        let context = Self::new(device, 0);
        CONTEXTS.lock().primary.push((device, context, 1));
        context
    }

    /// The primary context of a device is held once less; without anyone it ends.
    pub(crate) fn release_primary(device: DeviceId) -> Result<(), ErrorCode> {
        let mut contexts = CONTEXTS.lock();
        let known = contexts.primary.iter_mut().find(|(of, ..)| *of == device);
        match known {
            Some((_, context, count)) if *count > 0 => {
                *count -= 1;
                if *count == 0 {
                    context.alive.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
            _ => Err(ErrorCode::INVALID_CONTEXT),
        }
    }

    /// Whether the primary context of a device is alive, with its flags.
    pub(crate) fn primary_state(device: DeviceId) -> Option<u32> {
        let contexts = CONTEXTS.lock();
        let (_, context, count) = contexts.primary.iter().find(|(of, ..)| *of == device)?;
        (*count > 0).then(|| context.flags.load(Ordering::Relaxed))
    }
}

pub(crate) fn push(context: &'static Context) {
    STACK.with_borrow_mut(|stack| stack.push(context));
}

pub(crate) fn pop() -> Result<&'static Context, ErrorCode> {
    STACK
        .with_borrow_mut(Vec::pop)
        .ok_or(ErrorCode::INVALID_CONTEXT)
}

/// Puts a context, or none, in the place of the one in force.
pub(crate) fn set(context: Option<&'static Context>) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(context);
    });
}
