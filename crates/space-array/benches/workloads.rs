//! `cargo bench -p space-array --bench workloads`: batched inference of a small network, a reduction
//! with three temporaries, and threads that allocate.

#[path = "network/mod.rs"]
mod network;

use std::{hint::black_box, thread};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array1, Ix1};
use network::{Network, Preallocated, Weights, batches, plain};
use space_array::{
    AllocArray, AllocBuffer, BumperAllocator, CheckedAllocArray, Counted, Kind, SpaceArray,
    with_allocator,
};

fn inference(c: &mut Criterion) {
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
    let bumper = BumperAllocator::new(AllocBuffer::new(1 << 20).unwrap());
    let mut group = c.benchmark_group("inference of 64 batches");
    group.bench_function("by hand, preallocated", |b| {
        b.iter(|| {
            for batch in &images {
                black_box(hand.logits(&weights, batch));
            }
        });
    });
    group.bench_function("AllocArray on a bumper", |b| {
        b.iter(|| {
            for batch in &arrays {
                with_allocator(&bumper, || drop(black_box(counted.logits(batch))));
                bumper.reset().unwrap();
            }
        });
    });
    group.bench_function("CheckedAllocArray on a bumper", |b| {
        b.iter(|| {
            for batch in &guarded {
                with_allocator(&bumper, || drop(black_box(checked.logits(batch))));
                bumper.reset().unwrap();
            }
        });
    });
    group.bench_function("ndarray", |b| {
        b.iter(|| {
            for batch in &images {
                black_box(plain(&weights, batch));
            }
        });
    });
}

fn reduce<K: Kind>(x: &SpaceArray<f64, Ix1, K>) -> f64 {
    let twice = x * 2.0;
    let more = &twice + x;
    (&more * x).sum()
}

fn reduction(c: &mut Criterion) {
    let mut group = c.benchmark_group("three temporaries and a sum");
    for len in [16, 4096, 1 << 20] {
        let plain = Array1::from_shape_fn(len, |i| i as f64);
        let x = AllocArray::from(plain.clone());
        let y = CheckedAllocArray::from(plain.clone());
        let bumper = BumperAllocator::new(AllocBuffer::new(3 * (len * 8 + 64)).unwrap());
        group.bench_function(
            BenchmarkId::new("CheckedAllocArray on a bumper", len),
            |b| {
                b.iter(|| {
                    let sum = with_allocator(&bumper, || reduce(black_box(&y)));
                    bumper.reset().unwrap();
                    sum
                });
            },
        );
        group.bench_function(BenchmarkId::new("AllocArray on a bumper", len), |b| {
            b.iter(|| {
                let sum = with_allocator(&bumper, || reduce(black_box(&x)));
                bumper.reset().unwrap();
                sum
            });
        });
        group.bench_function(BenchmarkId::new("ndarray", len), |b| {
            b.iter(|| {
                let x = black_box(&plain);
                let twice = x * 2.0;
                let more = &twice + x;
                (&more * x).sum()
            });
        });
    }
}

/// Arrays that each thread makes in a round.
const ARRAYS: u64 = 20_000;

fn allocation(c: &mut Criterion) {
    let mut group = c.benchmark_group("arrays of 256 bytes, allocated and written");
    for threads in [1, 2] {
        let bytes = (threads * ARRAYS * 256) as usize + (1 << 20);
        let bumper = BumperAllocator::new(AllocBuffer::new(bytes).unwrap());
        let job = || {
            with_allocator(&bumper, || {
                for i in 0..ARRAYS {
                    black_box(AllocArray::filled([32], i));
                }
            });
        };
        group.throughput(Throughput::Elements(threads * ARRAYS));
        group.bench_function(BenchmarkId::new("threads", threads), |b| {
            b.iter(|| {
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(job);
                    }
                });
                bumper.reset().unwrap();
            });
        });
    }
}

criterion_group!(benches, inference, reduction, allocation);
criterion_main!(benches);
