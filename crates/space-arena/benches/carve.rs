//! Time per carve, of this crate and of others that do the same work in the same run.
//!
//! `cargo bench -p space-arena --bench carve`. One iteration is 1,000 carves and a reset.

mod work;

use std::{hint::black_box, time::Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn carve(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("carve");
    group.throughput(Throughput::Elements(work::LENS as u64));
    for case in work::OURS
        .iter()
        .chain(work::PARTS)
        .chain(work::peers::PEERS)
    {
        group.bench_function(case.name, |bencher| {
            bencher.iter_custom(|iterations| {
                let start = Instant::now();
                black_box((case.run)(iterations as u32));
                start.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, carve);
criterion_main!(benches);
