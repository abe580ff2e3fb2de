//! Objects of a program that graphs keep alive: counted, and destroyed by the program's own function.

use crate::types::CUuserObject;
use cuda_driver::ErrorCode;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

const KIND: usize = 11;
/// The kind of what stands for a launch among graphs.
const LAUNCH: usize = 12;

type Destroy = unsafe extern "C" fn(data: *mut c_void);

/// The program's data with its destructor.
#[derive(Debug)]
struct Data(*mut c_void, Destroy);

// SAFETY: a program that gives the driver data gives it to all of the driver's threads.
unsafe impl Send for Data {}

#[derive(Debug)]
struct Object {
    data: Data,
    count: u64,
}

#[derive(Debug)]
struct Objects {
    all: Vec<Option<Object>>,
    /// References that graphs hold: graph, object, how many.
    kept: Vec<(usize, usize, u64)>,
}

static OBJECTS: Mutex<Objects> = Mutex::new(Objects {
    all: Vec::new(),
    kept: Vec::new(),
});

impl Objects {
    fn index(&self, handle: CUuserObject) -> Result<usize, ErrorCode> {
        let index = (handle.addr() >> 4).wrapping_sub(1);
        match self.all.get(index) {
            Some(Some(_)) if handle.addr() & 15 == KIND => Ok(index),
            _ => Err(ErrorCode::INVALID_VALUE),
        }
    }

    /// Gives references up; the data when they were the last.
    fn give_up(&mut self, index: usize, count: u64) -> Option<Data> {
        let slot = self.all.get_mut(index)?;
        let object = slot.as_mut()?;
        object.count = object.count.saturating_sub(count);
        match object.count {
            0 => slot.take().map(|object| object.data),
            _ => None,
        }
    }
}

fn destroy(data: Data) {
    // SAFETY: the program gave both for this; the last reference is gone.
    unsafe { (data.1)(data.0) };
}

pub(crate) fn create(data: *mut c_void, destroy: Destroy, count: u32) -> CUuserObject {
    let mut objects = OBJECTS.lock();
    objects.all.push(Some(Object {
        data: Data(data, destroy),
        count: count.into(),
    }));
    without_provenance_mut((objects.all.len() << 4) | KIND)
}

pub(crate) fn retain(handle: CUuserObject, count: u32) -> Result<(), ErrorCode> {
    let mut objects = OBJECTS.lock();
    let index = objects.index(handle)?;
    if let Some(object) = &mut objects.all[index] {
        object.count += u64::from(count);
    }
    Ok(())
}

pub(crate) fn release(handle: CUuserObject, count: u32) -> Result<(), ErrorCode> {
    let last = {
        let mut objects = OBJECTS.lock();
        let index = objects.index(handle)?;
        objects.give_up(index, count.into())
    };
    last.into_iter().for_each(destroy);
    Ok(())
}

/// References that the caller has go to a graph.
pub(crate) fn keep(graph: usize, handle: CUuserObject, count: u32) -> Result<(), ErrorCode> {
    let mut objects = OBJECTS.lock();
    let index = objects.index(handle)?;
    objects.kept.push((graph, index, count.into()));
    Ok(())
}

/// What one graph keeps, another one keeps as well from now on.
pub(crate) fn share(from: usize, to: usize) {
    let mut objects = OBJECTS.lock();
    let shared: Vec<(usize, u64)> = objects
        .kept
        .iter()
        .filter(|(graph, ..)| *graph == from)
        .map(|&(_, index, count)| (index, count))
        .collect();
    for (index, count) in shared {
        if let Some(Some(object)) = objects.all.get_mut(index) {
            object.count += count;
        }
        objects.kept.push((to, index, count));
    }
}

/// A graph got another handle.
pub(crate) fn rename(from: usize, to: usize) {
    let mut objects = OBJECTS.lock();
    for (graph, ..) in objects.kept.iter_mut().filter(|(graph, ..)| *graph == from) {
        *graph = to;
    }
}

/// References of one replay under way.
pub(crate) struct Held(usize);

impl Held {
    pub(crate) fn release(&self) {
        release_all(self.0);
    }
}

/// References for one launch of a graph; `None` when it keeps nothing.
pub(crate) fn hold_for_launch(graph: usize) -> Option<Held> {
    if !OBJECTS.lock().kept.iter().any(|(of, ..)| *of == graph) {
        return None;
    }
    static LAUNCHES: AtomicUsize = AtomicUsize::new(0);
    let launch = (LAUNCHES.fetch_add(1, Ordering::Relaxed) << 4) | LAUNCH;
    share(graph, launch);
    Some(Held(launch))
}

/// A graph is gone.
pub(crate) fn release_all(graph: usize) {
    let last: Vec<Data> = {
        let mut objects = OBJECTS.lock();
        let (gone, kept) = std::mem::take(&mut objects.kept)
            .into_iter()
            .partition(|(of, ..)| *of == graph);
        objects.kept = kept;
        let gone: Vec<(usize, usize, u64)> = gone;
        gone.iter()
            .filter_map(|&(_, index, count)| objects.give_up(index, count))
            .collect()
    };
    last.into_iter().for_each(destroy);
}
