//! A deterministic executor for tests: one thread, and an order that a seed chooses.

use crate::blocking::thread_waker;
use crate::dump::Dump;
use crate::sync::{Arc, Mutex, MutexGuard, Wake, Weak, lock, reach, waker};
use crate::task::TaskInfo;
use crate::{AsyncError, Spawn, Task};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

/// An executor on one thread that picks the next of the tasks which can go on as its seed says. The same seed gives the same
/// order, as long as nothing outside of it wakes tasks.
///
/// Clones share the tasks. Tasks run inside of [`run`](Self::run) and its like alone, on the thread that calls it.
#[derive(Clone)]
pub struct SeededExecutor(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    random: u64,
    /// Tasks that have not ended.
    tasks: BTreeMap<u64, Arc<Parked>>,
    /// Those that were woken.
    ready: Vec<Arc<Parked>>,
    polls: u64,
    /// Who runs the executor, parked while nothing can go on. All of them are woken: any may end before it looks again.
    runners: Vec<Waker>,
}

/// A task between its polls.
struct Parked {
    info: Arc<TaskInfo>,
    place: Mutex<Place>,
    queued: AtomicBool,
    executor: Weak<Inner>,
}

#[derive(Default)]
struct Place {
    /// `None` while it is polled, and once it has ended.
    task: Option<Task>,
    /// Whether another thread wanted to poll it meanwhile.
    again: bool,
}

impl Parked {
    fn lock(&self) -> MutexGuard<'_, Place> {
        lock(&self.place)
    }
}

/// The number of a task of a [`SeededExecutor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// A number below `bound`, which is not 0. After SplitMix64 by Sebastiano Vigna.
    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(executor) = self.executor.upgrade() else {
            return;
        };
        let mut state = executor.lock();
        state.ready.push(self);
        let runners = std::mem::take(&mut state.runners);
        drop(state);
        runners.into_iter().for_each(Waker::wake);
    }
}

impl SeededExecutor {
    /// An executor without tasks.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: seed,
            ..State::default()
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
        }))
    }

    /// Polls one of the tasks that can go on; false when there is none.
    pub fn step(&self) -> bool {
        let mut state = self.0.lock();
        if state.ready.is_empty() {
            return false;
        }
        let count = state.ready.len();
        let at = state.below(count);
        let parked = state.ready.swap_remove(at);
        state.polls += 1;
        drop(state);
        self.poll(&parked);
        true
    }

    fn poll(&self, parked: &Arc<Parked>) {
        parked.queued.store(false, Ordering::Release);
        let taken = {
            let mut place = parked.lock();
            place.again = place.task.is_none();
            place.task.take()
        };
        let Some(mut task) = taken else { return };
        let waker = waker(parked.clone());
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut task).poll(&mut context)));
        if matches!(polled, Ok(Poll::Pending)) {
            let mut place = parked.lock();
            place.task = Some(task);
            let again = std::mem::take(&mut place.again);
            drop(place);
            if again {
                parked.clone().wake();
            }
            return;
        }
        let ended = self.0.lock().tasks.remove(&parked.info.number);
        drop(ended);
        if let Err(payload) = polled {
            resume_unwind(payload);
        }
    }

    /// Runs until all tasks have ended.
    ///
    /// # Errors
    /// [`AsyncError::Stalled`] when none of those that are left can go on. They stay, and can once somebody wakes them.
    pub fn run(&self) -> Result<(), AsyncError> {
        while self.step() {}
        if self.is_empty() {
            return Ok(());
        }
        Err(AsyncError::stalled(self.dump()))
    }

    /// Runs `future` and the tasks until the future is ready; tasks may be left. When nothing can go on, it waits on this thread
    /// until something outside wakes one of them.
    ///
    /// # Errors
    /// [`AsyncError::Stalled`] when nothing can go on and tasks wait for each other in a circle; [`AsyncError::InsideTask`] and
    /// [`AsyncError::InsideExecutor`].
    #[track_caller]
    pub fn run_until<F: Future>(&self, future: F) -> Result<F::Output, AsyncError> {
        let info = TaskInfo::new("run_until", Location::caller());
        self.run_future(future, &info)
    }

    fn run_future<F: Future>(
        &self,
        future: F,
        info: &Arc<TaskInfo>,
    ) -> Result<F::Output, AsyncError> {
        crate::task::refuse_inside()?;
        let mut future = pin!(future);
        let woken = Arc::new(Woken {
            now: AtomicBool::new(true),
            thread: thread_waker(),
        });
        let waker = waker(woken.clone());
        loop {
            let mut state = self.0.lock();
            let others = state.ready.len();
            // The future takes its chance like a task.
            let turn = woken.now.load(Ordering::Acquire) && state.below(others + 1) == others;
            let idle = !turn && others == 0;
            if idle {
                let own = |runner: &Waker| runner.will_wake(&woken.thread);
                if !state.runners.iter().any(own) {
                    state.runners.push(woken.thread.clone());
                }
            }
            drop(state);
            if turn {
                woken.now.store(false, Ordering::Release);
                info.begin_poll();
                let mut context = Context::from_waker(&waker);
                let polled = crate::task::scoped(info, || future.as_mut().poll(&mut context));
                if let Poll::Ready(output) = polled {
                    self.stop(&woken.thread);
                    return Ok(output);
                }
            } else if !idle {
                self.step();
            } else if !woken.now.load(Ordering::Acquire) {
                let tasks = self.infos().into_iter().chain([info.clone()]);
                let dump = Dump::of([], tasks);
                if !dump.circle.is_empty() {
                    self.stop(&woken.thread);
                    return Err(AsyncError::stalled(dump));
                }
                std::thread::park();
            }
        }
    }

    /// A thread runs the tasks no more.
    fn stop(&self, runner: &Waker) {
        let mut state = self.0.lock();
        state.runners.retain(|other| !other.will_wake(runner));
    }

    /// Drops a task as an executor does that is told to abort it; whether it was there. One that is polled just now, such as the caller itself, is not.
    pub fn abort(&self, task: TaskId) -> bool {
        let parked = self.0.lock().tasks.get(&task.0).cloned();
        let Some(parked) = parked else { return false };
        let Some(aborted) = parked.lock().task.take() else {
            return false;
        };
        self.0.lock().tasks.remove(&task.0);
        drop(aborted);
        true
    }

    /// The tasks that have not ended, in the order in which they came.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskId> {
        self.0.lock().tasks.keys().copied().map(TaskId).collect()
    }

    /// How many tasks have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().tasks.len()
    }

    /// Whether all tasks have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().tasks.is_empty()
    }

    /// How often tasks were polled.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.0.lock().polls
    }

    /// The tasks that have not ended, and whom they wait for.
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::of([], self.infos())
    }

    fn infos(&self) -> Vec<Arc<TaskInfo>> {
        let state = self.0.lock();
        state
            .tasks
            .values()
            .map(|parked| parked.info.clone())
            .collect()
    }
}

/// Whether the future that the executor runs was woken.
struct Woken {
    now: AtomicBool,
    thread: Waker,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.now.store(true, Ordering::Release);
        self.thread.wake_by_ref();
    }
}

impl Spawn for SeededExecutor {
    fn spawn(&self, task: Task) {
        let parked = Arc::new(Parked {
            info: task.info().clone(),
            place: Mutex::new(Place {
                task: Some(task),
                again: false,
            }),
            queued: AtomicBool::new(true),
            executor: Arc::downgrade(&self.0),
        });
        let mut state = self.0.lock();
        state.tasks.insert(parked.info.number, parked.clone());
        state.ready.push(parked);
        let runners = std::mem::take(&mut state.runners);
        drop(state);
        runners.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = reach(&mut self.state);
        state.ready.clear();
        // A task that waits for itself keeps its waker, and so itself. Those that this wakes find their executor gone.
        for (_, parked) in std::mem::take(&mut state.tasks) {
            let task = parked.lock().task.take();
            drop(task);
        }
    }
}

impl fmt::Debug for SeededExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("SeededExecutor")
            .field("tasks", &state.tasks.len())
            .field("ready", &state.ready.len())
            .field("polls", &state.polls)
            .finish_non_exhaustive()
    }
}
