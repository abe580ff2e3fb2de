//! `cargo bench -p space-array --bench ratios`: the claims of the crate as ratios. The forms that
//! are compared take turns, and the fastest round of each counts, so that a busy machine disturbs
//! them alike.

#[path = "network/mod.rs"]
mod network;

use std::{hint::black_box, thread, time::Instant};

use ndarray::{Array1, Ix1};
use network::{BATCHES, Network, Preallocated, Weights, batches, plain};
use space_array::{
    AllocArray, AllocBuffer, AutoscalingAllocBuffer, BumperAllocator, CheckedAllocArray, Counted,
    Kind, SpaceArray, UncheckedBumperAllocator, with_allocator,
};

/// Runs the forms in turn and prints the fastest time of each, per item.
fn compare(what: &str, rounds: usize, items: usize, forms: &mut [(&str, &mut dyn FnMut())]) {
    let mut best = vec![f64::INFINITY; forms.len()];
    for _ in 0..rounds {
        for ((_, form), best) in forms.iter_mut().zip(&mut best) {
            let start = Instant::now();
            form();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    println!("{what}");
    for ((name, _), time) in forms.iter().zip(&best) {
        let (each, ratio) = (time / items as f64 * 1e9, time / best[0]);
        println!("  {name:<34} {each:>12.0} ns  {ratio:>6.3}");
    }
}

fn infer<K: Kind>(network: &Network<K>, batches: &[SpaceArray<f32, ndarray::Ix3, K>]) {
    for batch in batches {
        black_box(network.logits(batch));
    }
}

fn network_ratios() {
    let (weights, images) = (Weights::new(), batches());
    let counted = Network::<Counted>::new(&weights);
    let checked = Network::new(&weights);
    let arrays: Vec<_> = images.iter().cloned().map(AllocArray::from).collect();
    let guarded: Vec<_> = images
        .iter()
        .cloned()
        .map(CheckedAllocArray::from)
        .collect();
    let mut hand = Preallocated::new(images[0].shape()[0]);
    assert_eq!(
        counted.logits(&arrays[3]),
        *hand.logits(&weights, &images[3])
    );
    let bumper = BumperAllocator::new(AllocBuffer::new(1 << 20).unwrap());
    let growing = BumperAllocator::new(AutoscalingAllocBuffer::new(0).unwrap());
    // SAFETY: One thread, and the logits are dropped before each reset.
    let unchecked = unsafe { UncheckedBumperAllocator::new(AllocBuffer::new(1 << 20).unwrap()) };
    let on = |bumper: &BumperAllocator| {
        for batch in &arrays {
            with_allocator(bumper, || drop(black_box(counted.logits(batch))));
            bumper.reset().unwrap();
        }
    };
    compare(
        &format!(
            "network, {BATCHES} batches of {} images; per batch",
            images[0].shape()[0]
        ),
        150,
        BATCHES,
        &mut [
            ("by hand, preallocated", &mut || {
                for batch in &images {
                    black_box(hand.logits(&weights, batch));
                }
            }),
            ("AllocArray, bumper", &mut || on(&bumper)),
            ("AllocArray, growing bumper", &mut || on(&growing)),
            ("AllocArray, unchecked bumper", &mut || {
                for batch in &arrays {
                    with_allocator(&unchecked, || drop(black_box(counted.logits(batch))));
                    unchecked.reset();
                }
            }),
            ("CheckedAllocArray, bumper", &mut || {
                for batch in &guarded {
                    with_allocator(&bumper, || drop(black_box(checked.logits(batch))));
                    bumper.reset().unwrap();
                }
            }),
            ("AllocArray, heap", &mut || infer(&counted, &arrays)),
            ("ndarray", &mut || {
                for batch in &images {
                    black_box(plain(&weights, batch));
                }
            }),
        ],
    );
}

/// Three temporaries and a sum.
fn reduce<K: Kind>(x: &SpaceArray<f64, Ix1, K>) -> f64 {
    let twice = x * 2.0;
    let more = &twice + x;
    let product = &more * x;
    product.sum()
}

fn reduce_plain(x: &Array1<f64>) -> f64 {
    let twice = x * 2.0;
    let more = &twice + x;
    let product = &more * x;
    product.sum()
}

fn reduce_by_hand(x: &Array1<f64>, [twice, more, product]: &mut [Array1<f64>; 3]) -> f64 {
    use ndarray::Zip;
    Zip::from(&mut *twice)
        .and(x)
        .for_each(|out, &x| *out = x * 2.0);
    Zip::from(&mut *more)
        .and(&*twice)
        .and(x)
        .for_each(|out, &a, &b| *out = a + b);
    Zip::from(&mut *product)
        .and(&*more)
        .and(x)
        .for_each(|out, &a, &b| *out = a * b);
    product.sum()
}

fn reduction_ratios() {
    for len in [16, 256, 4096, 1 << 16, 1 << 20, 1 << 23] {
        let plain = Array1::from_shape_fn(len, |i| i as f64);
        let x = AllocArray::from(plain.clone());
        let y = CheckedAllocArray::from(plain.clone());
        let mut hand = std::array::from_fn(|_| Array1::zeros(len));
        let bumper = BumperAllocator::new(AllocBuffer::new(3 * (len * 8 + 64)).unwrap());
        let times = ((1 << 21) / len).clamp(1, 4096);
        let rounds = if len > 1 << 21 { 8 } else { 60 };
        compare(
            &format!("three temporaries of {len} f64 and a sum; each"),
            rounds,
            times,
            &mut [
                ("by hand, preallocated", &mut || {
                    for _ in 0..times {
                        black_box(reduce_by_hand(black_box(&plain), &mut hand));
                    }
                }),
                ("AllocArray, bumper", &mut || {
                    for _ in 0..times {
                        black_box(with_allocator(&bumper, || reduce(black_box(&x))));
                        bumper.reset().unwrap();
                    }
                }),
                ("CheckedAllocArray, bumper", &mut || {
                    for _ in 0..times {
                        black_box(with_allocator(&bumper, || reduce(black_box(&y))));
                        bumper.reset().unwrap();
                    }
                }),
                ("AllocArray, heap", &mut || {
                    for _ in 0..times {
                        black_box(reduce(black_box(&x)));
                    }
                }),
                ("ndarray", &mut || {
                    for _ in 0..times {
                        black_box(reduce_plain(black_box(&plain)));
                    }
                }),
            ],
        );
    }
}

/// Nanoseconds that this thread has run for, where the system tells. On a machine that does other
/// things too, they show whether threads hold each other up, which elapsed time can't.
fn own_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Millions of arrays that so many threads allocate in a second, and write if told to: by the
/// clock, and by the time that the threads ran.
fn throughput(threads: usize, write: bool) -> [f64; 2] {
    const ARRAYS: usize = 200_000;
    let bumper =
        BumperAllocator::new(AllocBuffer::new(threads * ARRAYS * 256 + (1 << 20)).unwrap());
    let job = || {
        let start = own_time();
        with_allocator(&bumper, || {
            for i in 0..ARRAYS {
                let fresh = AllocArray::<u64, Ix1>::uninit([32]);
                if write {
                    black_box(fresh.filled(i as u64));
                } else {
                    drop(black_box(fresh));
                }
            }
        });
        start
            .zip(own_time())
            .map_or(f64::NAN, |(start, end)| end - start)
    };
    let mut best = [0.0_f64; 2];
    for _ in 0..20 {
        let start = Instant::now();
        let ran: Vec<f64> = thread::scope(|scope| {
            let jobs: Vec<_> = (0..threads).map(|_| scope.spawn(job)).collect();
            jobs.into_iter().map(|job| job.join().unwrap()).collect()
        });
        let elapsed = start.elapsed().as_secs_f64();
        let by_own: f64 = ran.iter().map(|ran| ARRAYS as f64 / ran * 1e3).sum();
        best[0] = best[0].max((threads * ARRAYS) as f64 / elapsed / 1e6);
        best[1] = best[1].max(by_own);
        bumper.reset().unwrap();
    }
    best
}

fn main() {
    network_ratios();
    reduction_ratios();
    println!("arrays of 256 bytes, millions a second");
    for (what, write) in [("allocated", false), ("allocated and written", true)] {
        let (one, two) = (throughput(1, write), throughput(2, write));
        for (by, which) in [("by the clock", 0), ("by the threads' own time", 1)] {
            let (one, two) = (one[which], two[which]);
            let (what, ratio) = (format!("{what}, {by}"), two / one);
            println!("  {what:<48} 1 thread {one:>6.1}   2 threads {two:>6.1}   {ratio:>5.2}");
        }
    }
}
