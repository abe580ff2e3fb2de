//! The driver that is tested, and one device of it with what tests need.

use crate::kernels;
use cuda_driver::{
    Argument, CudaResult, DeviceId, DeviceProperties, DevicePtr, Driver, EventFlags, LaunchConfig,
    RawEvent, RawFunction, RawModule, RawStream,
};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// What a test can need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Stream-ordered memory pools on the first device.
    Pools,
    /// A second device.
    TwoDevices,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pools => "memory pools",
            Self::TwoDevices => "second device",
        })
    }
}

/// The driver that is tested.
#[derive(Clone, Debug)]
pub struct Subject {
    driver: Arc<dyn Driver>,
    exclusive: bool,
}

impl Subject {
    /// Tests this driver.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            driver,
            exclusive: false,
        }
    }

    /// Runs no two tests at a time: they share the devices with each other, and a capture in one forbids what another does.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Whether a test with this need can run.
    #[must_use]
    pub fn has(&self, need: Need) -> bool {
        match need {
            Need::Pools => self.properties(DeviceId(0)).memory_pools,
            Need::TwoDevices => self.driver.device_count().is_ok_and(|count| count > 1),
        }
    }

    /// The properties of a device.
    ///
    /// # Panics
    /// When the driver does not tell them.
    #[must_use]
    pub fn properties(&self, device: DeviceId) -> DeviceProperties {
        let properties = self.driver.device_properties(device);
        properties.unwrap_or_else(|error| panic!("a driver tells its properties: {error}"))
    }

    /// The first device, to work with.
    #[must_use]
    pub fn bench(&self) -> Bench<'_> {
        self.bench_on(DeviceId(0))
    }

    /// A device, to work with.
    #[must_use]
    pub fn bench_on(&self, device: DeviceId) -> Bench<'_> {
        Bench {
            driver: self.driver(),
            device,
            made: RefCell::default(),
        }
    }
}

/// What was made, to be destroyed in the end.
#[derive(Debug, Default)]
struct Made {
    streams: Vec<RawStream>,
    events: Vec<RawEvent>,
    memory: Vec<DevicePtr>,
    modules: Vec<RawModule>,
}

/// A device with shorthands for tests. What is made through it is destroyed when it is dropped, after all of the work.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The driver.
    pub driver: &'a dyn Driver,
    /// The device.
    pub device: DeviceId,
    made: RefCell<Made>,
}

/// The result of a call that has to succeed.
#[track_caller]
pub(crate) fn ok<T>(result: CudaResult<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

impl Bench<'_> {
    /// A stream.
    #[track_caller]
    pub fn stream(&self) -> RawStream {
        let stream = ok(self.driver.stream_create(self.device, 0));
        self.made.borrow_mut().streams.push(stream);
        stream
    }

    /// An event without timing.
    #[track_caller]
    pub fn event(&self) -> RawEvent {
        let event = ok(self.driver.event_create(self.device, EventFlags::default()));
        self.made.borrow_mut().events.push(event);
        event
    }

    /// So many numbers, all of them zero.
    #[track_caller]
    pub fn zeros(&self, count: usize) -> DevicePtr {
        let memory = ok(self.driver.mem_alloc(self.device, 4 * count));
        self.made.borrow_mut().memory.push(memory);
        self.write(memory, &vec![0; count]);
        memory
    }

    /// Writes numbers, and waits.
    #[track_caller]
    pub fn write(&self, to: DevicePtr, numbers: &[u32]) {
        // SAFETY: tests write within their memory, when no work uses it.
        ok(unsafe {
            let (from, bytes) = (numbers.as_ptr().cast(), size_of_val(numbers));
            self.driver.copy_to_device(self.device, to, from, bytes)
        });
        // The last of a pageable transfer may be under way.
        ok(self.driver.device_synchronize(self.device));
    }

    /// Reads numbers, when all work is done.
    #[track_caller]
    pub fn read(&self, from: DevicePtr, count: usize) -> Vec<u32> {
        ok(self.driver.device_synchronize(self.device));
        let mut numbers = vec![0_u32; count];
        // SAFETY: tests read within their memory; nothing uses it now.
        ok(unsafe {
            let to = numbers.as_mut_ptr().cast();
            self.driver.copy_to_host(self.device, to, from, 4 * count)
        });
        numbers
    }

    /// Queues a fill with a number.
    pub fn fill(&self, to: DevicePtr, number: u32, count: usize, on: RawStream) -> CudaResult<()> {
        let pattern = cuda_driver::Pattern::U32(number);
        // SAFETY: tests fill within their memory.
        unsafe { self.driver.fill_async(self.device, to, pattern, count, on) }
    }

    /// Queues a copy of numbers.
    pub fn copy(
        &self,
        to: DevicePtr,
        from: DevicePtr,
        count: usize,
        on: RawStream,
    ) -> CudaResult<()> {
        // SAFETY: tests copy within their memory.
        unsafe {
            self.driver
                .copy_device_async(self.device, to, from, 4 * count, on)
        }
    }

    /// The kernel of this name, loaded by a launch, as it must be before a capture.
    #[track_caller]
    pub fn kernel(&self, name: &'static str) -> RawFunction {
        let module = ok(self.driver.module_load(self.device, &kernels::MODULE));
        self.made.borrow_mut().modules.push(module);
        ok(self.driver.module_function(self.device, module, name))
    }

    /// Queues `x[i] += step` for `n` numbers.
    pub fn count_up(
        &self,
        kernel: RawFunction,
        x: DevicePtr,
        n: usize,
        step: u16,
        on: RawStream,
    ) -> CudaResult<()> {
        let args = kernels::count_arguments(x, n, step);
        self.launch(kernel, n, &args, on)
    }

    /// Queues a launch with a thread for each element.
    pub fn launch(
        &self,
        kernel: RawFunction,
        elements: usize,
        args: &[Argument],
        on: RawStream,
    ) -> CudaResult<()> {
        let config = LaunchConfig::for_elements(elements)
            .unwrap_or_else(|error| panic!("tests are small: {error}"));
        // SAFETY: tests pass the arguments that their kernels declare, and order what they touch.
        unsafe { self.driver.launch(self.device, kernel, &config, on, args) }
    }

    /// Waits for a stream.
    #[track_caller]
    pub fn wait(&self, stream: RawStream) {
        ok(self.driver.stream_synchronize(self.device, stream));
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // After a failed test, the rest is left to the end of the process.
        if std::thread::panicking() || self.driver.device_synchronize(self.device).is_err() {
            return;
        }
        let (driver, device, made) = (self.driver, self.device, self.made.take());
        for stream in made.streams {
            // SAFETY: all work is done, and the test is over.
            let _ = unsafe { driver.stream_destroy(device, stream) };
        }
        for event in made.events {
            // SAFETY: as above.
            let _ = unsafe { driver.event_destroy(device, event) };
        }
        for memory in made.memory {
            // SAFETY: as above.
            let _ = unsafe { driver.mem_free(device, memory) };
        }
        for module in made.modules {
            // SAFETY: as above.
            let _ = unsafe { driver.module_unload(device, module) };
        }
    }
}
