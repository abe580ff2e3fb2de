//! How much overlap programs get without knowing their whole task graph, in modelled time.
//!
//! `cargo bench -p cuda-buffer --bench overlap` runs random graphs of 500 tasks on a device that runs eight at a time, and prints
//! how long they take in proportion to a list scheduler that knows the whole graph: with streams assigned at random beforehand,
//! with streams leased by `acquire` for each task, and with `acquire_after` the task's latest predecessor.

mod tasks;

use cuda_buffer::BufferResult;
use cuda_runtime::Completion;
use std::time::Duration;
use tasks::{STREAMS, Task, World, dependencies, exact_ends, list_schedule, random};

fn main() -> BufferResult<()> {
    println!(
        "{:>8}{:>10}{:>10}{:>10}{:>15}   {:>8}{:>15}",
        "buffers", "assigned", "exact", "acquire", "acquire_after", "waits", "waits after"
    );
    for buffers in [4, 8, 24, 64, 200] {
        let graphs: Vec<_> = (0..5).map(|seed| random(seed, 500, buffers)).collect();
        let mut sums = [0.0; 6];
        for tasks in &graphs {
            let best = list_schedule(tasks) as f64;
            let exact = exact_ends(tasks).into_iter().max().unwrap_or(0) as f64;
            let assigned = assigned(tasks, buffers)? as f64;
            let (acquired, waits) = leased(tasks, buffers, false)?;
            let (after, waits_after) = leased(tasks, buffers, true)?;
            let figures = [
                assigned / best,
                exact / best,
                acquired as f64 / best,
                after as f64 / best,
                waits as f64,
                waits_after as f64,
            ];
            sums.iter_mut()
                .zip(figures)
                .for_each(|(sum, figure)| *sum += figure);
        }
        let [assigned, exact, acquire, after, waits, waits_after] =
            sums.map(|sum| sum / graphs.len() as f64);
        println!(
            "{buffers:>8}{assigned:>10.3}{exact:>10.3}{acquire:>10.3}{after:>15.3}   {waits:>8.0}{waits_after:>15.0}"
        );
    }
    Ok(())
}

/// The makespan with the streams that the tasks name.
fn assigned(tasks: &[Task], buffers: usize) -> BufferResult<u64> {
    let world = World::new(STREAMS, buffers, Duration::ZERO)?;
    let streams = world.device.streams().try_acquire_many(STREAMS)?;
    for task in tasks {
        world.queue(&streams[task.stream], task)?;
    }
    Ok(world.makespan())
}

/// The makespan with a lease for each task, and the waits issued.
fn leased(tasks: &[Task], buffers: usize, after: bool) -> BufferResult<(u64, u64)> {
    let world = World::new(STREAMS, buffers, Duration::ZERO)?;
    let before = world.device.order_counts();
    let mut done: Vec<Completion> = Vec::with_capacity(tasks.len());
    for (task, first) in tasks.iter().zip(dependencies(tasks)) {
        let latest = first.last().filter(|_| after);
        let stream = match latest {
            Some(&latest) => world.device.streams().acquire_after(&done[latest])?,
            None => world.device.streams().acquire()?,
        };
        world.queue(&stream, task)?;
        done.push(stream.record()?);
    }
    let made = world.device.order_counts() - before;
    Ok((world.makespan(), made.waits_issued))
}
