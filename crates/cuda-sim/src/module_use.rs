//! Which launches need a module, and which come too late for it.

use crate::clock::{Clock, Epoch};
use crate::graph::GraphData;
use crate::handles::Site;
use crate::report::{Finding, Operation};
use crate::sim::{Caller, Sim};
use crate::work::{Body, Work};
use cuda_driver::ErrorCode;
use smallvec::SmallVec;

/// How many unloads reports can still name.
const REMEMBERED_UNLOADS: usize = 4096;

/// A loaded module: its handle, and a number that is never used again, unlike the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleId {
    pub(crate) raw: u64,
    pub(crate) number: u64,
}

/// The latest launch of a module on each lane.
#[derive(Debug, Default)]
pub(crate) struct Launches(SmallVec<[(Epoch, Operation); 1]>);

impl Launches {
    fn note(&mut self, epoch: Epoch, operation: Operation, host: &Clock) {
        let known = self.0.iter_mut().find(|(of, _)| of.lane == epoch.lane);
        if let Some(latest) = known {
            *latest = (epoch, operation);
            return;
        }
        // Those that the host knows to be over matter no more.
        self.0.retain(|(of, _)| !host.has_passed(*of));
        self.0.push((epoch, operation));
    }
}

impl Sim {
    /// Notes that entry `epoch` of its lane needs the module of its kernel.
    pub(crate) fn note_launch(&mut self, work: &Work, operation: Operation, epoch: Epoch) {
        let Body::Kernel { module, .. } = &work.body else {
            return;
        };
        // Launches of what is gone were refused.
        if let Some(entry) = self.modules.get_mut(module.raw) {
            debug_assert_eq!(entry.number, module.number);
            entry.launches.note(epoch, operation, &self.host_clock);
        }
    }

    /// Ends a module that exists; launches that may still run are reported.
    pub(crate) fn unload_module(&mut self, raw: u64, site: Site) {
        let Some(entry) = self.modules.remove(raw, site) else {
            return;
        };
        for (epoch, launched) in entry.launches.0 {
            if !self.host_clock.has_passed(epoch) {
                self.reports.add(Finding::UnloadBeforeLaunchEnds {
                    launched,
                    module: entry.image.name,
                    unloaded_at: site,
                });
            }
        }
        for function in entry.functions {
            self.functions.remove(function, site);
        }
        self.unloaded.insert(entry.number, (entry.image.name, site));
        if self.unloaded.len() > REMEMBERED_UNLOADS {
            self.unloaded.pop_first();
        }
    }

    /// Refuses a graph that holds a launch of a module that was unloaded.
    pub(crate) fn check_modules(
        &mut self,
        graph: &GraphData,
        caller: Caller,
    ) -> Result<(), ErrorCode> {
        if self.unloaded.is_empty() {
            return Ok(());
        }
        for node in &graph.nodes {
            let Body::Kernel { module, .. } = &node.work.body else {
                continue;
            };
            let entry = self.modules.get(module.raw);
            if entry.is_some_and(|entry| entry.number == module.number) {
                continue;
            }
            if let Some(&(module, unloaded_at)) = self.unloaded.get(&module.number) {
                let (kind, device) = (node.work.kind, node.work.device);
                self.reports.add(Finding::UnloadedModule {
                    call: caller.call,
                    site: caller.site,
                    launch: self.operation(kind, device, Some(node.stream), node.site),
                    module,
                    unloaded_at,
                });
            }
            return Err(ErrorCode::INVALID_HANDLE);
        }
        Ok(())
    }
}
