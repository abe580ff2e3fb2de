//! What overlaps, and what it is worth: `cargo run -p cuda-sim --example overlap [trace.json]`
//!
//! Eight batches are copied in, filled over and copied out, over one, two and three slots. Modelled time tells how much of
//! the copies is hidden; the trace, which ui.perfetto.dev opens, shows it.

use cuda_driver::{
    Copies, CudaResult, DeviceId, DevicePtr, EventFlags, Events, Memory, Pattern, Streams,
};
use cuda_sim::{SimDriver, TimeProfile};

const DEVICE: DeviceId = DeviceId(0);
const BYTES: usize = 4 << 20;

fn pipeline(sim: &SimDriver, slots: usize) -> CudaResult<()> {
    let copy_in = sim.stream_create(DEVICE, 0)?;
    let work = sim.stream_create(DEVICE, 0)?;
    let copy_out = sim.stream_create(DEVICE, 0)?;
    let (input, output) = (
        sim.host_alloc(DEVICE, BYTES)?,
        sim.host_alloc(DEVICE, BYTES)?,
    );
    let mut buffers: Vec<DevicePtr> = Vec::new();
    let mut events = Vec::new();
    for _ in 0..slots {
        buffers.push(sim.mem_alloc(DEVICE, BYTES)?);
        let event = || sim.event_create(DEVICE, EventFlags::default());
        events.push((event()?, event()?, event()?));
    }
    for batch in 0..8 {
        let (x, (loaded, done, saved)) = (buffers[batch % slots], events[batch % slots]);
        sim.stream_wait_event(DEVICE, copy_in, saved)?;
        // SAFETY: memory of host and device lives to the end, and events order its uses.
        unsafe { sim.copy_to_device_async(DEVICE, x, input.as_ptr(), BYTES, copy_in) }?;
        sim.event_record(DEVICE, loaded, copy_in)?;
        sim.stream_wait_event(DEVICE, work, loaded)?;
        for _ in 0..8 {
            // SAFETY: as above.
            unsafe { sim.fill_async(DEVICE, x, Pattern::U8(1), BYTES, work) }?;
        }
        sim.event_record(DEVICE, done, work)?;
        sim.stream_wait_event(DEVICE, copy_out, done)?;
        // SAFETY: as above.
        unsafe { sim.copy_to_host_async(DEVICE, output.as_ptr(), x, BYTES, copy_out) }?;
        sim.event_record(DEVICE, saved, copy_out)?;
    }
    sim.stream_synchronize(DEVICE, copy_out)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let trace = std::env::args().nth(1);
    for profile in [TimeProfile::h100_sxm(), TimeProfile::a100_sxm()] {
        println!("{}", profile.name);
        for slots in 1..=3 {
            let sim = SimDriver::builder()
                .profile(profile.clone())
                .timeline(true)
                .build();
            pipeline(&sim, slots)?;
            sim.assert_no_reports();
            let timeline = sim.timeline();
            println!("  {slots} slots: {:?}", timeline.makespan());
            for stream in timeline.busy() {
                println!(
                    "    busy {:?} with {} operations",
                    stream.busy, stream.operations
                );
            }
            println!(
                "    {} operations decide the length",
                timeline.critical_path().len()
            );
            if let Some(path) = &trace {
                timeline.write_perfetto(std::fs::File::create(path)?)?;
            }
        }
    }
    Ok(())
}
