//! A hunt for a fault that needs an unlucky order: `cargo run -p cuda-sim --example hunt`
//!
//! A program hands a buffer from one stream to another and forgets to make the second wait. Three ways to find that: the
//! checker tells at once; without it, a search over seeds finds an order in which the result is wrong; and a sweep tells
//! whether the mended program survives each of its driver calls failing.

use cuda_driver::{
    Copies, CudaResult, DeviceId, DevicePtr, ErrorCode, EventFlags, Events, Memory, Pattern,
    RawEvent, RawStream, Streams,
};
use cuda_sim::{Checks, SimDriver};

const DEVICE: DeviceId = DeviceId(0);

/// What the program makes, which ends with it whatever fails.
struct Program<'a> {
    sim: &'a SimDriver,
    streams: Vec<RawStream>,
    events: Vec<RawEvent>,
    memory: Vec<DevicePtr>,
}

impl<'a> Program<'a> {
    /// Fills a buffer on one stream, copies it on another, and returns what arrived.
    fn run(sim: &'a SimDriver, waits: bool) -> CudaResult<u8> {
        let mut program = Self {
            sim,
            streams: Vec::new(),
            events: Vec::new(),
            memory: Vec::new(),
        };
        program.hand_over(waits)
    }

    fn hand_over(&mut self, waits: bool) -> CudaResult<u8> {
        let sim = self.sim;
        for _ in 0..2 {
            self.streams.push(sim.stream_create(DEVICE, 0)?);
            self.memory.push(sim.mem_alloc(DEVICE, 1)?);
        }
        let event = sim.event_create(DEVICE, EventFlags::default())?;
        self.events.push(event);
        let (writer, reader) = (self.streams[0], self.streams[1]);
        let (x, y) = (self.memory[0], self.memory[1]);
        // SAFETY: both buffers live until the streams are done; their order is what the example is about.
        unsafe { sim.fill_async(DEVICE, x, Pattern::U8(7), 1, writer) }?;
        sim.event_record(DEVICE, event, writer)?;
        if waits {
            sim.stream_wait_event(DEVICE, reader, event)?;
        }
        // SAFETY: as above.
        unsafe { sim.copy_device_async(DEVICE, y, x, 1, reader) }?;
        sim.stream_synchronize(DEVICE, reader)?;
        let mut result = 0;
        // SAFETY: `result` has room for one byte.
        unsafe { sim.copy_to_host(DEVICE, &raw mut result, y, 1) }?;
        Ok(result)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        let sim = self.sim;
        for stream in self.streams.drain(..) {
            // Once more if it fails: nothing may be freed that is in use.
            let _ = sim
                .stream_synchronize(DEVICE, stream)
                .or_else(|_| sim.stream_synchronize(DEVICE, stream));
            // SAFETY: the stream is not used again.
            let _ = unsafe { sim.stream_destroy(DEVICE, stream) };
        }
        for event in self.events.drain(..) {
            // SAFETY: the event is not used again.
            let _ = unsafe { sim.event_destroy(DEVICE, event) };
        }
        for memory in self.memory.drain(..) {
            // SAFETY: the work that used it is done.
            let _ = unsafe { sim.mem_free(DEVICE, memory) };
        }
    }
}

fn main() {
    println!("1. One run, with all checks:\n");
    let sim = SimDriver::builder().build();
    let _ = Program::run(&sim, false);
    for report in sim.take_reports() {
        println!("{report}\n");
    }

    println!("2. Many runs without checks, until a result is wrong:\n");
    let unchecked = SimDriver::builder().checks(Checks::NONE);
    let found = unchecked.explore(0..1000, |sim| {
        let arrived = Program::run(sim, false).expect("no call fails");
        assert_eq!(arrived, 7, "the copy came too early");
    });
    match found {
        Ok(()) => println!("every run was lucky"),
        Err(failure) => {
            println!("{failure}");
            println!("the operations ran in this order:");
            let spans: Vec<_> = failure.timeline.spans().collect();
            for index in failure.timeline.execution_order() {
                println!("  {}", spans[index].operation);
            }
        }
    }

    println!("\n3. The program with its wait, each of its calls failing once:\n");
    let mended = SimDriver::builder().sweep(0, ErrorCode::UNKNOWN, |sim| {
        if let Ok(arrived) = Program::run(sim, true) {
            assert_eq!(arrived, 7);
        }
    });
    match mended {
        Ok(runs) => println!("{runs} runs, and nothing to report"),
        Err(failure) => println!("{failure}"),
    }
}
