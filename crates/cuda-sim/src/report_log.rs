//! The reports of a run, each kind of finding once per pair of places.

use crate::checks::Checks;
use crate::handles::Site;
use crate::report::{Finding, Report};
use std::collections::HashMap;

/// At most this many different reports are kept; further ones are only counted.
const MAX_REPORTS: usize = 1000;

#[derive(Debug)]
pub(crate) struct ReportLog {
    checks: Checks,
    reports: Vec<Report>,
    index: HashMap<Key, usize>,
}

type Key = (std::mem::Discriminant<Finding>, Site, Option<Site>);

impl ReportLog {
    pub(crate) fn new(checks: Checks) -> Self {
        Self {
            checks,
            reports: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// Notes a finding, unless nobody wants to know.
    pub(crate) fn add(&mut self, finding: Finding) {
        if !self.checks.cover(&finding) {
            return;
        }
        let key = key(&finding);
        if let Some(&index) = self.index.get(&key) {
            self.reports[index].occurrences += 1;
        } else if self.reports.len() < MAX_REPORTS {
            self.index.insert(key, self.reports.len());
            self.reports.push(Report {
                finding,
                occurrences: 1,
            });
        }
    }

    pub(crate) fn all(&self) -> &[Report] {
        &self.reports
    }

    pub(crate) fn take(&mut self) -> Vec<Report> {
        self.index.clear();
        std::mem::take(&mut self.reports)
    }
}

/// What makes two findings the same: kind and places.
fn key(finding: &Finding) -> Key {
    let (first, second) = match finding {
        Finding::Race { first, second, .. } => (second.operation.site, Some(first.site)),
        Finding::UseBeforeAllocation { used }
        | Finding::OutOfBounds { used }
        | Finding::NoPeerAccess { used, .. }
        | Finding::Uninitialised { used }
        | Finding::AliasedWrites { used, .. }
        | Finding::HostMemoryTouched { used } => (
            used.operation.site,
            used.allocation.map(|allocation| allocation.allocated.site),
        ),
        Finding::UseAfterFree { used, freed } => (used.operation.site, Some(freed.site)),
        Finding::FreeBeforeUseEnds { used, freed, .. } => (freed.operation.site, Some(used.site)),
        Finding::BadFree { freed, earlier, .. } => {
            (freed.site, earlier.map(|earlier| earlier.site))
        }
        Finding::DriverCallInHostFunction { site, .. }
        | Finding::BadLaunch { site, .. }
        | Finding::Deadlock { site, .. }
        | Finding::Leak { site, .. } => (*site, None),
        Finding::DestroyedHandle {
            site, destroyed_at, ..
        } => (*site, Some(*destroyed_at)),
        Finding::UnloadBeforeLaunchEnds {
            launched,
            unloaded_at,
            ..
        } => (*unloaded_at, Some(launched.site)),
        Finding::UnloadedModule { site, launch, .. } => (*site, Some(launch.site)),
        Finding::ConcurrentUse { site, other, .. } => (*site, Some(*other)),
        Finding::CaptureMisuse { site, begun_at, .. } => (*site, *begun_at),
        Finding::KernelFault { operation, .. } => (operation.site, None),
    };
    (std::mem::discriminant(finding), first, second)
}
