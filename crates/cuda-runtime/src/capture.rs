//! Capture sessions: bound to their thread, one per thread, owning every stream that joins.

use crate::core::DeviceCore;
use crate::device::Device;
use crate::gate::GlobalCapture;
use crate::graph::Graph;
use crate::stream::Stream;
use crate::unwound::OnUnwind;
use crate::{RuntimeError, RuntimeResult};
use cuda_driver::{
    CallSite, CaptureMode, CaptureStatus, Driver, EventFlags, GraphUpdate, RawEvent, RawGraph,
};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static CURRENT: Current = const { Current(RefCell::new(None)) };
    /// Whether `CURRENT` is set: the check on every hot path.
    static OPEN: Cell<bool> = const { Cell::new(false) };
}

/// The session that is open on a thread. A capture that was forgotten ends with its thread, here.
struct Current(RefCell<Option<Rc<Session>>>);

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(session) = self.0.take() {
            OPEN.set(false);
            close(&session, false);
        }
    }
}

/// The session that is open on this thread.
#[must_use]
pub fn current() -> Option<Rc<Session>> {
    if !OPEN.get() {
        return None;
    }
    CURRENT.with(|current| current.0.borrow().clone())
}

/// Whether a capture is open on this thread.
pub(crate) fn is_open() -> bool {
    OPEN.get()
}

/// Fails when a capture is open on this thread.
///
/// # Errors
/// [`RuntimeError::CaptureActive`], which names what was refused.
#[inline]
pub fn refuse(what: &'static str) -> RuntimeResult<()> {
    match OPEN.get() {
        false => Ok(()),
        true => Err(refused(what)),
    }
}

#[cold]
fn refused(what: &'static str) -> RuntimeError {
    // A forked child has inherited a capture that is none of its own.
    let elsewhere = current().and_then(|session| session.core().origin.check().err());
    elsewhere.unwrap_or(RuntimeError::CaptureActive { what })
}

/// What an open capture knows: its streams, what its graph must keep alive, and the first failure.
pub struct Session {
    number: u64,
    device: Device,
    streams: RefCell<Vec<Stream>>,
    events: RefCell<Vec<RawEvent>>,
    keep: RefCell<Vec<Arc<dyn Any + Send + Sync>>>,
    attachment: RefCell<Option<Box<dyn Any + Send>>>,
    failure: RefCell<Option<RuntimeError>>,
    global: RefCell<Option<GlobalCapture>>,
    /// Whether somebody knows a node of the graph, which then has to be kept beside its executable form.
    keeps_source: Cell<bool>,
}

impl Session {
    /// The number of the capture, never reused.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The device that captures.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes the graph keep `object` alive.
    pub fn keep(&self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.borrow_mut().push(object);
    }

    /// Works on the value of type `A` that the layer above keeps in the session, made on first use.
    ///
    /// # Panics
    /// When the session holds a value of another type: one layer owns it.
    pub fn with_attachment<A: Any + Send + Default, R>(&self, f: impl FnOnce(&mut A) -> R) -> R {
        let mut attachment = self.attachment.borrow_mut();
        let value = attachment.get_or_insert_with(|| Box::new(A::default()));
        f(value
            .downcast_mut()
            .expect("the attachment of a capture has one type"))
    }

    /// Dooms the capture: its end returns the first failure.
    pub fn doom(&self, error: &RuntimeError) {
        self.failure
            .borrow_mut()
            .get_or_insert_with(|| error.clone());
    }

    pub(crate) fn keep_source(&self) {
        self.keeps_source.set(true);
    }

    pub(crate) fn new_event(&self) -> RuntimeResult<RawEvent> {
        let core = self.core();
        let create = |driver: &dyn Driver| driver.event_create(core.id, EventFlags::default());
        let event = core.call_in_cleanup(create)?;
        self.events.borrow_mut().push(event);
        Ok(event)
    }

    fn core(&self) -> &Arc<DeviceCore> {
        self.device.core()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("number", &self.number)
            .field("streams", &self.streams)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// An open capture. It belongs to the thread that began it; dropping it without an end discards what was captured
/// and leaves every stream usable.
#[derive(Debug)]
pub struct Capture {
    /// `None` once ended.
    session: Option<Rc<Session>>,
}

impl Capture {
    /// Begins to capture what is queued on `stream`.
    ///
    /// A global capture is one that unsafe calls of any thread invalidate. Those of Carve don't, whatever thread they are made
    /// on; those of other code do.
    ///
    /// # Errors
    /// [`RuntimeError::CaptureActive`] when this thread has a capture open; the driver's own.
    #[track_caller]
    pub fn begin(stream: &Stream, mode: CaptureMode) -> RuntimeResult<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        refuse("beginning another capture")?;
        let _site = CallSite::enter();
        let device = stream.device().clone();
        let core = device.core();
        core.check()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let global = GlobalCapture::announce(core, mode);
        stream.slot().begin_capture(number, |driver, raw| {
            driver.capture_begin(core.id, raw, mode)
        })?;
        core.capture_opened();
        let session = Rc::new(Session {
            number,
            device: device.clone(),
            streams: RefCell::new(vec![stream.clone()]),
            events: RefCell::default(),
            keep: RefCell::default(),
            attachment: RefCell::default(),
            failure: RefCell::default(),
            global: RefCell::new(global),
            keeps_source: Cell::new(false),
        });
        CURRENT.with(|current| current.0.replace(Some(session.clone())));
        OPEN.set(true);
        Ok(Self {
            session: Some(session),
        })
    }

    /// The session, where layers above keep what they need for the graph.
    ///
    /// # Panics
    /// Never before the end.
    #[must_use]
    pub fn session(&self) -> &Rc<Session> {
        self.session.as_ref().expect("open until its end")
    }

    /// Makes `stream` part of the capture: its work is captured too, until the end, after what the capture's first
    /// stream holds so far.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDevice`]; [`RuntimeError::CaptureWrongThread`] when another capture has it; the
    /// driver's own, which doom the capture.
    #[track_caller]
    pub fn join(&self, stream: &Stream) -> RuntimeResult<()> {
        let _site = CallSite::enter();
        let session = self.session();
        stream.check_device(&session.device)?;
        if session.streams.borrow().contains(stream) {
            return Ok(());
        }
        let fork = session.streams.borrow()[0].slot().record()?;
        stream.slot().join_capture(session, &fork)?;
        session.streams.borrow_mut().push(stream.clone());
        Ok(())
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// The first failure of the capture; the driver's own.
    #[track_caller]
    pub fn end(mut self) -> RuntimeResult<Captured> {
        let _site = CallSite::enter();
        // What unwinds on the way is discarded, as when this drops.
        let session = self.session().clone();
        let failure = session.failure.borrow().clone();
        let result = match failure {
            Some(first) => Err(first),
            None => join_back(&session).and_then(|()| finish(&session)),
        };
        self.session = None;
        close(&session, result.is_ok());
        let attachment = session.attachment.borrow_mut().take();
        result.map(|graph| Captured { graph, attachment })
    }

    /// Ends the capture and makes `graph` do what was captured, from its next replay on: replays under way go on as they were.
    /// Where the driver can't update the executable graph, because the work differs in more than its parameters, it is made anew.
    ///
    /// # Errors
    /// [`RuntimeError::WrongDevice`]; the first failure of the capture; the driver's own. Then the graph is as it was.
    #[track_caller]
    pub fn end_into(mut self, graph: &mut Graph) -> RuntimeResult<Recaptured> {
        let _site = CallSite::enter();
        let session = self.session().clone();
        let failure = session.failure.borrow().clone();
        let result = match failure {
            Some(first) => Err(first),
            None => session.streams.borrow()[0]
                .check_device(graph.device())
                .and_then(|()| join_back(&session))
                .and_then(|()| finish_into(&session, graph)),
        };
        self.session = None;
        close(&session, result.is_ok());
        let attachment = session.attachment.borrow_mut().take();
        result.map(|update| Recaptured { update, attachment })
    }
}

/// What a capture leaves.
#[derive(Debug)]
pub struct Captured {
    /// The executable graph.
    pub graph: Graph,
    attachment: Option<Box<dyn Any + Send>>,
}

impl Captured {
    /// Takes what the layer above kept in the session apart from the graph.
    #[must_use]
    pub fn into_parts<A: Any + Send + Default>(self) -> (Graph, A) {
        (self.graph, attachment(self.attachment))
    }
}

/// What a capture leaves that changed a graph which was there.
#[derive(Debug)]
pub struct Recaptured {
    /// Whether the executable graph could be updated; with any other answer it was made anew.
    pub update: GraphUpdate,
    attachment: Option<Box<dyn Any + Send>>,
}

impl Recaptured {
    /// Takes what the layer above kept in the session apart from the driver's answer.
    pub fn into_parts<A: Any + Send + Default>(self) -> (GraphUpdate, A) {
        (self.update, attachment(self.attachment))
    }
}

fn attachment<A: Any + Default>(value: Option<Box<dyn Any + Send>>) -> A {
    value
        .and_then(|value| value.downcast().ok())
        .map_or_else(A::default, |value| *value)
}

/// Orders the first stream after all others, as the driver wants it before the end.
fn join_back(session: &Session) -> RuntimeResult<()> {
    let streams = session.streams.borrow().clone();
    let (origin, others) = streams.split_first().expect("a capture has a first stream");
    for other in others {
        origin.slot().wait_for(&other.slot().record()?)?;
    }
    Ok(())
}

/// Ends the capture at the driver, and uses its graph once. The graph itself is there no more, unless nodes of it are known.
fn with_graph<T>(
    session: &Session,
    using: impl FnOnce(&DeviceCore, RawGraph) -> RuntimeResult<T>,
) -> RuntimeResult<(T, Option<RawGraph>, RuntimeResult<()>)> {
    let core = session.core();
    let raw = session.streams.borrow()[0].slot().raw;
    // After an error `close` asks the driver whether the capture is over.
    let graph = core.call_in_cleanup(|driver| driver.capture_end(core.id, raw))?;
    session.streams.borrow()[0]
        .slot()
        .leave_capture(session.number());
    let thrown_away = OnUnwind::new(|| throw_away(core, graph));
    let used = using(core, graph);
    thrown_away.disarm();
    let source = (used.is_ok() && session.keeps_source.get()).then_some(graph);
    let destroyed = match source {
        Some(_) => Ok(()),
        // SAFETY: the handle is known here alone, and the executable form does not need it.
        None => core.call_in_cleanup(|driver| unsafe { driver.graph_destroy(core.id, graph) }),
    };
    Ok((used?, source, destroyed))
}

/// Ends the capture at the driver and makes its graph executable.
fn finish(session: &Session) -> RuntimeResult<Graph> {
    let ((nodes, exec), source, destroyed) = with_graph(session, |core, graph| {
        let nodes = core.call(|driver| driver.graph_node_count(core.id, graph))?;
        let exec = core.call(|driver| driver.graph_instantiate(core.id, graph))?;
        Ok((nodes, exec))
    })?;
    let keep = std::mem::take(&mut *session.keep.borrow_mut());
    let graph = Graph::new(session.device.clone(), exec, source, nodes, keep);
    destroyed.map(|()| graph)
}

/// Ends the capture at the driver and gives its work to a graph that is executable.
fn finish_into(session: &Session, target: &mut Graph) -> RuntimeResult<GraphUpdate> {
    let keep = std::mem::take(&mut *session.keep.borrow_mut());
    // Nodes are of the graph that the executable form was made of.
    let anew = session.keeps_source.get();
    let (update, source, destroyed) = with_graph(session, |core, graph| {
        target.become_graph(core, graph, anew, keep)
    })?;
    target.replace_source(source);
    // The update is done: what could not be destroyed is for the next call that begins something.
    if let Err(error) = destroyed {
        session.core().park(error);
    }
    Ok(update)
}

/// Ends the capture at the driver, if it is not over there, and throws its graph away.
fn discard(session: &Session, origin: &Stream) {
    let core = session.core();
    let raw = origin.slot().raw;
    let status = core.call_in_cleanup(|driver| driver.capture_status(core.id, raw));
    if let Ok(CaptureStatus::None) = status {
        return;
    }
    // Where the capture is broken this fails, and the driver ends it as it is.
    let _ = join_back(session);
    let ended = core.call_in_cleanup(|driver| {
        let ended = driver.capture_end(core.id, raw);
        match (&ended, driver.capture_status(core.id, raw)) {
            (Err(error), Ok(CaptureStatus::Active(_) | CaptureStatus::Invalidated)) => Err(*error),
            _ => Ok(ended.ok()),
        }
    });
    match ended {
        Ok(None) => {}
        Ok(Some(graph)) => throw_away(core, graph),
        // Whatever is queued there from now on would be captured instead of run.
        Err(RuntimeError::Driver(error)) => core.poison(error),
        Err(_) => {}
    }
}

/// Destroys a graph that the caller alone knows, and uses no more.
fn throw_away(core: &DeviceCore, graph: RawGraph) {
    // SAFETY: nobody else knows the handle.
    let gone = core.call_in_cleanup(|driver| unsafe { driver.graph_destroy(core.id, graph) });
    if let Err(error) = gone {
        core.park(error);
    }
}

/// Leaves every stream of the session usable and forgets the session, also when the driver unwinds on the way.
fn close(session: &Session, ended: bool) {
    let core = session.core();
    if core.is_elsewhere() {
        // The parent's capture is the parent's to end.
        OPEN.set(false);
        let _ = CURRENT.try_with(|current| drop(current.0.take()));
        return;
    }
    let origin = session.streams.borrow().first().cloned();
    let left = Leaving(session);
    if let Some(origin) = origin
        && !ended
        && origin.slot().is_captured_in(session.number())
    {
        discard(session, &origin);
    }
    drop(left);
    for event in session.events.take() {
        core.destroy_event(event);
    }
}

/// A session that is left when this drops.
struct Leaving<'s>(&'s Session);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let Self(session) = self;
        for stream in &session.streams.take() {
            stream.slot().leave_capture(session.number());
        }
        OPEN.set(false);
        drop(session.global.take());
        // At the end of a thread the place is gone; what it held is this session.
        let _ = CURRENT.try_with(|current| drop(current.0.take()));
        session.core().capture_closed();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            close(&session, false);
        }
    }
}

/// Whether this thread is capturing work of `device`: asks the driver when a session is open.
///
/// # Errors
/// The driver's own.
pub(crate) fn capturing(device: &Device) -> RuntimeResult<bool> {
    let Some(session) = current() else {
        return Ok(false);
    };
    if !session.device.same(device) {
        return Ok(false);
    }
    let core = session.core();
    let raw = session.streams.borrow()[0].slot().raw;
    let status = core.call_in_cleanup(|driver| driver.capture_status(core.id, raw))?;
    Ok(status != CaptureStatus::None)
}
