//! Threads that share values and streams, with guards that end in any way, also elsewhere and in a panic, and calls that unwind, while values
//! settle on streams and leave them: the device sees no race, and no token and no memory is lost.

use crate::fault_kit::in_time;
use crate::kit::{Kit, N, Rig, cases, elements};
use cuda_buffer::{
    AccessCompletion, BufferError, BufferResult, CudaBuffer, Launch, SharedCudaBuffer, acquire_all,
};
use cuda_driver::Call;
use cuda_runtime::{RuntimeError, Stream};
use cuda_sim::Unwound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

/// A small generator, so that a seed tells the program.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

struct OnPurpose;

type Shared = SharedCudaBuffer<u32>;

fn step(dice: &mut Dice, kit: &Kit, stream: &Stream, values: &[Shared]) -> BufferResult<()> {
    let pick = |dice: &mut Dice| &values[dice.roll(values.len() as u64) as usize];
    let (a, b) = (pick(dice), pick(dice));
    match dice.roll(12) {
        // The same stream again and again, so that the value settles there.
        0..=3 => (0..dice.roll(30)).try_for_each(|_| {
            let mut x = a.write().synchronized_with(stream)?;
            kit.step
                .launch(stream, elements(N), (N as u32, 1_u32, &mut x))?;
            if dice.roll(2) == 0 {
                x.release()?;
            }
            Ok(())
        }),
        4..=5 => {
            let (mut out, from) = acquire_all(stream, (a.write(), b.read()))?;
            kit.map
                .launch(stream, elements(N), (N as u32, 2_u32, &mut out, &from))?;
            AccessCompletion::new(stream).release((out, from))
        }
        6 => {
            let read = a.read().synchronized_with(stream)?;
            let _also = b.read().synchronized_with(stream)?;
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _held = read;
                resume_unwind(Box::new(OnPurpose));
            }));
            assert!(panicked.is_err());
            Ok(())
        }
        7 => a.read().blocking().map(drop),
        8 => a.write().blocking().map(drop),
        9 => {
            drop(a.clone());
            drop(stream.device().transfer_stream());
            b.read().to_vec().map(drop)
        }
        _ => {
            let own = CudaBuffer::<u32>::new_on(stream, N)?;
            drop(own);
            let read = a.read().synchronized_with(stream)?;
            std::thread::scope(|scope| scope.spawn(move || drop(read)).join()).unwrap();
            Ok(())
        }
    }
}

/// What unwinds at a time. What only the driver could give back would be lost with others.
const CALLS: [Call; 5] = [
    Call::StreamWaitEvent,
    Call::EventRecord,
    Call::EventCreate,
    Call::LaunchKernel,
    Call::MemAllocFromPoolAsync,
];

fn turmoil(seed: u64, faults: bool) {
    let rig = Rig::seeded(seed, 4);
    let kit = Kit::new(&rig.device());
    let streams = rig.streams::<3>();
    let values: Vec<Shared> = (0..4)
        .map(|_| {
            let mut value = CudaBuffer::<u32>::new_on(&streams[0], N).unwrap();
            cuda_buffer::DeviceData::fill(&mut value, &streams[0], 1).unwrap();
            value.into()
        })
        .collect();
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (kit, streams, values, done, sim) = (&kit, &streams, &values, &done, &rig.sim);
            scope.spawn(move || {
                let mut dice = Dice(seed * 8 + thread + 1);
                for turn in 0..40 {
                    if faults && dice.roll(4) == 0 {
                        let call = CALLS[dice.roll(CALLS.len() as u64) as usize];
                        sim.faults().unwind_nth(call, 1 + dice.roll(3));
                    }
                    // Mostly its own, sometimes another one's.
                    let at = match dice.roll(4) {
                        0 => dice.roll(3),
                        _ => thread,
                    };
                    let stream = &streams[at as usize];
                    let run = || step(&mut dice, kit, stream, values);
                    match catch_unwind(AssertUnwindSafe(run)) {
                        Ok(Ok(())) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Ok(Err(BufferError::Access(_))) => {}
                        Ok(Err(error)) => panic!("{seed} {thread} {turn}: {error}"),
                        Err(panic) => assert!(faults && panic.is::<Unwound>(), "{seed}"),
                    }
                }
            });
        }
    });
    rig.sim.faults().clear();
    assert!(done.into_inner() > 20, "most are refused");
    for (value, stream) in values.iter().zip(streams.iter().cycle()) {
        let all = value.write().synchronized_with(stream).unwrap();
        all.release().unwrap();
    }
    if let Err(error) = rig.device().check() {
        assert!(matches!(error, RuntimeError::Driver(_)), "{error}");
    }
    drop((values, kit, streams));
    rig.finish();
}

#[test]
fn threads_in_turmoil_lose_nothing() {
    for seed in 0..u64::from(cases(20)) {
        for faults in [false, true] {
            in_time(&format!("seed {seed}, faults {faults}"), move || {
                turmoil(seed, faults);
            });
        }
    }
}
