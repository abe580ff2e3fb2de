//! What is still alive at the end.

use crate::driver::SimDriver;
use crate::report::{Finding, LeakedObject, Report};
use crate::sim::Sim;

impl SimDriver {
    /// Ends a run: executes what is queued, then reports every object that is still alive, with the place where it
    /// was made. Objects of lost devices are not counted: nobody can destroy them. The driver stays usable.
    pub fn shutdown(&self) -> Vec<Report> {
        self.run_all();
        let mut sim = self.state();
        for finding in sim.leaks() {
            sim.reports.add(finding);
        }
        sim.reports.all().to_vec()
    }

    /// What is alive now, as leaks.
    #[must_use]
    pub fn leak_report(&self) -> Vec<Report> {
        self.state()
            .leaks()
            .into_iter()
            .map(|finding| Report {
                finding,
                occurrences: 1,
            })
            .collect()
    }
}

impl Sim {
    fn leaks(&self) -> Vec<Finding> {
        let lost = |device: cuda_driver::DeviceId| self.devices[device.0 as usize].fault.is_some();
        let leak = |object, site, bytes| Finding::Leak {
            object,
            site,
            bytes,
        };
        let mut leaks = Vec::new();
        for memory in self
            .allocations
            .live()
            .filter(|memory| !lost(memory.device))
        {
            let object = LeakedObject::DeviceMemory {
                address: memory.base,
            };
            leaks.push(leak(object, memory.allocated.site, Some(memory.bytes)));
        }
        for entry in self.pinned.values().filter(|entry| !lost(entry.device)) {
            let info = entry.info();
            leaks.push(leak(
                LeakedObject::HostMemory { address: info.base },
                entry.allocated.site,
                Some(info.bytes),
            ));
        }
        for (raw, id) in self.pool_handles.iter() {
            if let Some(pool) = self.pools.get(id).filter(|pool| !lost(pool.device)) {
                leaks.push(leak(LeakedObject::Pool { raw }, pool.site, None));
            }
        }
        for (raw, stream) in self
            .streams
            .iter()
            .filter(|(_, stream)| !lost(stream.device))
        {
            leaks.push(leak(LeakedObject::Stream { raw }, stream.site, None));
        }
        for (raw, event) in self.events.iter().filter(|(_, event)| !lost(event.device)) {
            leaks.push(leak(LeakedObject::Event { raw }, event.site, None));
        }
        for (raw, module) in self
            .modules
            .iter()
            .filter(|(_, module)| !lost(module.device))
        {
            leaks.push(leak(LeakedObject::Module { raw }, module.site, None));
        }
        for (raw, graph) in self.graphs.iter().filter(|(_, graph)| !lost(graph.device)) {
            leaks.push(leak(LeakedObject::Graph { raw }, graph.site, None));
        }
        for (raw, exec) in self.execs.iter().filter(|(_, exec)| !lost(exec.device)) {
            leaks.push(leak(LeakedObject::GraphExec { raw }, exec.site, None));
        }
        for (&id, capture) in self
            .captures
            .iter()
            .filter(|(_, capture)| !lost(capture.device))
        {
            leaks.push(leak(LeakedObject::Capture { id }, capture.site, None));
        }
        leaks
    }
}
