//! Which operation runs next.

use crate::clock::Clock;
use crate::graph::GraphRun;
use crate::lane::{Queued, Task};
use crate::report::Finding;
use crate::sim::Sim;
use crate::work::Body;
use cuda_driver::ErrorCode;
use smallvec::SmallVec;
use std::sync::Arc;

/// What one step did.
pub(crate) enum Step {
    /// An operation ran.
    Ran,
    /// A host function is to be called without the lock; then [`Sim::host_function_returned`].
    Call {
        lane: u32,
        function: Arc<dyn Fn() + Send + Sync>,
    },
    /// Nothing can run.
    Idle,
}

impl Sim {
    /// Whether the first entry of a lane could run. Host functions run on the calling thread, so only while it waits
    /// or asks (`may_call`): anywhere else it may hold locks that the function needs.
    fn is_runnable(&self, lane: u32, may_call: bool) -> bool {
        let lane = &self.lanes[lane as usize];
        if lane.held || lane.busy || lane.lost {
            return false;
        }
        match lane.queue.front().map(|queued| &queued.task) {
            None => false,
            Some(Task::Wait(epoch)) => self.is_done(*epoch),
            Some(Task::Graph(run)) => {
                run.previous.is_none_or(|epoch| self.is_done(epoch))
                    && (may_call
                        || run.remaining == 0
                        || run.ready.iter().any(|&node| !run.is_call(node)))
            }
            Some(Task::Run(pending)) => may_call || !pending.work.is_call(),
            Some(Task::Record) => true,
        }
    }

    /// Whether any operation could run.
    pub(crate) fn can_step(&self) -> bool {
        let mut active = self.active.iter();
        active.any(|&lane| self.is_runnable(lane, true))
    }

    /// Whether a worker will take the next step: nothing but its own pace keeps it.
    pub(crate) fn is_worked_on(&self) -> bool {
        let mut active = self.active.iter();
        let may_call = self.running_host_functions == 0;
        self.workers.is_alive() && active.any(|&lane| self.is_runnable(lane, may_call))
    }

    /// Whether a test holds any stream.
    pub(crate) fn is_held(&self) -> bool {
        self.lanes.iter().any(|lane| lane.held)
    }

    /// How many steps the device takes before the next driver call, at random.
    pub(crate) fn wants_step(&mut self) -> bool {
        if self.active.is_empty() {
            return false;
        }
        // The mood changes now and then, so that runs with an idle device and with a quick one both occur.
        if self.random.chance(16) {
            self.eagerness = [1, 32, 128, 250][self.random.below(4)];
        }
        let eagerness = self.eagerness;
        self.random.chance(eagerness)
    }

    /// Runs one operation: a random one that can run. Of lanes of different priority, the most urgent ones mostly.
    pub(crate) fn step_randomly(&mut self, may_call: bool) -> Step {
        let mut runnable: SmallVec<[u32; 16]> = self
            .active
            .iter()
            .copied()
            .filter(|&lane| self.is_runnable(lane, may_call))
            .collect();
        let priority = |&lane: &u32| self.lanes[lane as usize].priority;
        let (most, least) = (
            runnable.iter().map(priority).min(),
            runnable.iter().map(priority).max(),
        );
        if most != least && self.random.chance(128) {
            let lanes = &self.lanes;
            runnable.retain(|lane| Some(lanes[*lane as usize].priority) == most);
        }
        match runnable.len() {
            0 => Step::Idle,
            n => {
                let choice = self.random.below(n);
                self.run_front(runnable[choice], true, may_call)
            }
        }
    }

    /// Runs one operation: the most urgent that can run, of several the first in the order in which streams became busy.
    pub(crate) fn step_in_order(&mut self, may_call: bool) -> Step {
        match self
            .active
            .iter()
            .copied()
            .filter(|&lane| self.is_runnable(lane, may_call))
            .min_by_key(|&lane| self.lanes[lane as usize].priority)
        {
            Some(lane) => self.run_front(lane, false, may_call),
            None => Step::Idle,
        }
    }

    fn run_front(&mut self, lane: u32, random: bool, may_call: bool) -> Step {
        let Some(Queued { index, task }) = self.lane(lane).queue.pop_front() else {
            return Step::Idle;
        };
        match task {
            Task::Record | Task::Wait(_) => self.complete(lane, index),
            Task::Run(mut pending) => {
                self.timeline.executes(pending.span);
                if let Body::HostFunction(function) = &pending.work.body {
                    let function = Arc::clone(function);
                    let clock = pending.clock.take();
                    // It stays at the front until it returns.
                    self.lane(lane).queue.push_front(Queued {
                        index,
                        task: Task::Run(pending),
                    });
                    return self.call_host(lane, function, clock);
                }
                self.execute(&pending, lane, index, 0);
                self.complete(lane, index);
            }
            Task::Graph(mut run) => {
                let ready = run.ready_nodes(may_call);
                let choice = if random { self.random.below(ready) } else { 0 };
                let Some(node) = run.start(choice, may_call) else {
                    // An empty graph.
                    self.complete(lane, index);
                    return Step::Ran;
                };
                self.timeline.executes(run.pending[node as usize].span);
                if let Body::HostFunction(function) = &run.pending[node as usize].work.body {
                    let function = Arc::clone(function);
                    let clock = run.pending[node as usize].clock.take();
                    run.running = Some(node);
                    self.lane(lane).queue.push_front(Queued {
                        index,
                        task: Task::Graph(run),
                    });
                    return self.call_host(lane, function, clock);
                }
                self.execute(&run.pending[node as usize], lane, index, node);
                self.finish_node(lane, index, run, node);
            }
        }
        Step::Ran
    }

    fn finish_node(&mut self, lane: u32, index: u64, mut run: Box<GraphRun>, node: u32) {
        run.finish(node);
        let lost = self.lanes[lane as usize].completed >= index;
        if run.remaining > 0 && !lost {
            let task = Task::Graph(run);
            self.lane(lane).queue.push_front(Queued { index, task });
            return;
        }
        self.discarded.add(run);
        if !lost {
            self.complete(lane, index);
        }
    }

    fn complete(&mut self, lane: u32, index: u64) {
        let state = self.lane(lane);
        state.completed = state.completed.max(index);
        if state.queue.is_empty() {
            self.active.retain(|&active| active != lane);
        }
    }

    /// A host function is about to be called, in whose course the host may learn of all that is ordered before it.
    fn call_host(
        &mut self,
        lane: u32,
        function: Arc<dyn Fn() + Send + Sync>,
        clock: Option<Box<Clock>>,
    ) -> Step {
        if self.faults.loses_host_function() {
            self.lane(lane).lost = true;
            return Step::Ran;
        }
        if let Some(clock) = clock {
            self.host_joins(&clock, 0);
        }
        self.lane(lane).busy = true;
        self.running_host_functions += 1;
        Step::Call { lane, function }
    }

    /// A host function has panicked, which on hardware would end the process: the device is lost.
    pub(crate) fn host_function_panicked(&mut self, lane: u32, message: String) {
        let operation = match self.lane(lane).queue.front().map(|queued| &queued.task) {
            Some(Task::Run(pending)) => Some(pending.operation),
            Some(Task::Graph(run)) => run.running.map(|node| run.pending[node as usize].operation),
            _ => None,
        };
        if let Some(operation) = operation {
            let message = format!("the host function panicked: {message}");
            self.reports
                .add(Finding::KernelFault { operation, message });
        }
        let device = self.lane(lane).device;
        self.lose_device(device, ErrorCode::LAUNCH_FAILED);
    }

    /// A host function has returned.
    pub(crate) fn host_function_returned(&mut self, lane: u32) {
        self.running_host_functions -= 1;
        self.pending_host_functions -= 1;
        self.lane(lane).busy = false;
        let device = self.lanes[lane as usize].device;
        let fault = self.devices[device.0 as usize].fault;
        let Some(Queued { index, task }) = self.lane(lane).queue.pop_front() else {
            return;
        };
        if fault.is_some() {
            let (calls, queue) = self.lane(lane).abandon();
            self.pending_host_functions -= task.calls().saturating_sub(1) + calls;
            self.discarded.add((task, queue));
            self.active.retain(|&active| active != lane);
            return;
        }
        match task {
            Task::Run(pending) => {
                self.complete(lane, index);
                self.discarded.add(pending.work);
            }
            Task::Graph(mut run) => {
                run.calls -= 1;
                if let Some(node) = run.running.take() {
                    self.finish_node(lane, index, run, node);
                }
            }
            Task::Record | Task::Wait(_) => {}
        }
    }
}
