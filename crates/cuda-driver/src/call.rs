//! The driver calls of the port by name, for errors, counters and injected faults.

use crate::lane::{self, LANES};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! calls {
    ($($variant:ident $name:literal;)*) => {
        /// A driver call, named as in the CUDA driver API.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "each variant is the driver function of the same name")]
        pub enum Call { $($variant),* }

        impl Call {
            /// Every call, in declaration order.
            pub const ALL: &'static [Call] = &[$(Call::$variant),*];

            /// The name of the driver function, such as `cuEventRecord`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Call::$variant => $name),* }
            }
        }
    };
}

calls! {
    DeviceGetCount "cuDeviceGetCount";
    DeviceGetAttribute "cuDeviceGetAttribute";
    DeviceCanAccessPeer "cuDeviceCanAccessPeer";
    MemGetInfo "cuMemGetInfo";
    CtxSynchronize "cuCtxSynchronize";
    CtxSetCurrent "cuCtxSetCurrent";
    StreamCreate "cuStreamCreateWithPriority";
    StreamGetPriority "cuStreamGetPriority";
    StreamDestroy "cuStreamDestroy";
    StreamWaitEvent "cuStreamWaitEvent";
    StreamQuery "cuStreamQuery";
    StreamSynchronize "cuStreamSynchronize";
    EventCreate "cuEventCreate";
    EventDestroy "cuEventDestroy";
    EventRecord "cuEventRecord";
    EventQuery "cuEventQuery";
    EventSynchronize "cuEventSynchronize";
    EventElapsedTime "cuEventElapsedTime";
    MemAlloc "cuMemAlloc";
    MemFree "cuMemFree";
    MemPoolCreate "cuMemPoolCreate";
    MemPoolDestroy "cuMemPoolDestroy";
    MemPoolTrimTo "cuMemPoolTrimTo";
    MemPoolSetAttribute "cuMemPoolSetAttribute";
    MemPoolGetAttribute "cuMemPoolGetAttribute";
    MemPoolSetAccess "cuMemPoolSetAccess";
    MemAllocFromPoolAsync "cuMemAllocFromPoolAsync";
    MemFreeAsync "cuMemFreeAsync";
    MemHostAlloc "cuMemHostAlloc";
    MemFreeHost "cuMemFreeHost";
    MemHostRegister "cuMemHostRegister";
    MemHostUnregister "cuMemHostUnregister";
    MemcpyHtoD "cuMemcpyHtoD";
    MemcpyDtoH "cuMemcpyDtoH";
    MemcpyHtoDAsync "cuMemcpyHtoDAsync";
    MemcpyDtoHAsync "cuMemcpyDtoHAsync";
    MemcpyDtoDAsync "cuMemcpyDtoDAsync";
    MemcpyPeerAsync "cuMemcpyPeerAsync";
    Memcpy2DAsync "cuMemcpy2DAsync";
    Memcpy3DPeerAsync "cuMemcpy3DPeerAsync";
    MemsetD8Async "cuMemsetD8Async";
    MemsetD16Async "cuMemsetD16Async";
    MemsetD32Async "cuMemsetD32Async";
    MemsetD2D8Async "cuMemsetD2D8Async";
    MemsetD2D16Async "cuMemsetD2D16Async";
    MemsetD2D32Async "cuMemsetD2D32Async";
    ModuleLoadData "cuModuleLoadData";
    ModuleUnload "cuModuleUnload";
    ModuleGetFunction "cuModuleGetFunction";
    FuncSetAttribute "cuFuncSetAttribute";
    FuncLoad "cuFuncLoad";
    LaunchKernel "cuLaunchKernel";
    LaunchHostFunc "cuLaunchHostFunc";
    StreamBeginCapture "cuStreamBeginCapture";
    StreamEndCapture "cuStreamEndCapture";
    StreamGetCaptureInfo "cuStreamGetCaptureInfo";
    ThreadExchangeStreamCaptureMode "cuThreadExchangeStreamCaptureMode";
    GraphAddChildGraphNode "cuGraphAddChildGraphNode";
    GraphInstantiate "cuGraphInstantiate";
    GraphGetNodes "cuGraphGetNodes";
    GraphExecUpdate "cuGraphExecUpdate";
    GraphExecKernelNodeSetParams "cuGraphExecKernelNodeSetParams";
    GraphLaunch "cuGraphLaunch";
    GraphDestroy "cuGraphDestroy";
    GraphExecDestroy "cuGraphExecDestroy";
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

const CALLS: usize = Call::ALL.len();

/// Live counters of the calls that a driver received. Counting is a relaxed load and a store: threads that run at the same time
/// count in places of their own, but for the last of more than a few.
#[derive(Debug)]
pub struct CallCounters {
    lanes: Box<[Counts; LANES]>,
    /// Of threads without a lane.
    shared: Counts,
}

/// On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Counts([AtomicU64; CALLS]);

impl Default for Counts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Default for CallCounters {
    fn default() -> Self {
        Self {
            lanes: Box::new(std::array::from_fn(|_| Counts::default())),
            shared: Counts::default(),
        }
    }
}

impl CallCounters {
    /// Counts one call.
    #[inline]
    pub fn record(&self, call: Call) {
        let call = call as usize;
        match lane::of_thread() {
            Some(lane) => {
                let count = &self.lanes[lane].0[call];
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            None => {
                self.shared.0[call].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The counts at this moment.
    #[must_use]
    pub fn snapshot(&self) -> CallCounts {
        let all = || self.lanes.iter().chain([&self.shared]);
        let made = |call: usize| all().map(move |counts| counts.0[call].load(Ordering::Relaxed));
        CallCounts(std::array::from_fn(|call| made(call).sum()))
    }
}

/// How often each call was made, as a value: subtract an earlier one from a later one.
///
/// ```
/// use cuda_driver::{Call, CallCounters};
/// let live = CallCounters::default();
/// let before = live.snapshot();
/// live.record(Call::EventRecord);
/// let made = live.snapshot() - before;
/// assert_eq!((made.of(Call::EventRecord), made.total()), (1, 1));
/// assert_eq!(made.to_string(), "cuEventRecord: 1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CallCounts([u64; CALLS]);

impl CallCounts {
    /// How often `call` was made.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize]
    }

    /// All calls together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The calls that were made, with their counts, in declaration order.
    pub fn iter(&self) -> impl Iterator<Item = (Call, u64)> + '_ {
        Call::ALL
            .iter()
            .map(|&call| (call, self.of(call)))
            .filter(|&(_, count)| count > 0)
    }
}

impl std::ops::Sub for CallCounts {
    type Output = Self;

    /// The calls made between the snapshot `earlier` and this one.
    fn sub(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|i| {
            self.0[i].saturating_sub(earlier.0[i])
        }))
    }
}

impl fmt::Debug for CallCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Display for CallCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (call, count)) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{call}: {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// No call is lost, however many threads make them, and whether they have ended.
    #[test]
    fn all_threads_are_counted() {
        const THREADS: usize = 2 * LANES;
        const EACH: u64 = 1000;
        let live = CallCounters::default();
        let count = || (0..EACH).for_each(|_| live.record(Call::LaunchKernel));
        for round in 1..=3 {
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(count);
                }
            });
            let counts = live.snapshot();
            let all = round * EACH * THREADS as u64;
            assert_eq!((counts.of(Call::LaunchKernel), counts.total()), (all, all));
        }
    }
}
