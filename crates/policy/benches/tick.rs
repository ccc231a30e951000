//! Cost of the decisions of `sandman`: the fine tick (promise: under 0.2 us with 48 active threads, and at most linear growth), and the
//! coarse interval.
//!
//! `cargo bench -p pilotlight-policy`. Gathering the counts from other cores is not included.

#[path = "../examples/ticks/load.rs"]
mod load;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use load::Load;

fn fine(c: &mut Criterion) {
    let mut group = c.benchmark_group("fine tick");
    for (guards, settings) in [("printed", &[("guards", "printed")]), ("recommended", &[("guards", "recommended")])] {
        for threads in [48, 480, 4_800] {
            for active in [threads, 1] {
                let mut load = Load::new(threads, active, settings);
                group.throughput(Throughput::Elements(u64::from(active)));
                let id = BenchmarkId::new(guards, format!("{threads} threads, {active} active"));
                group.bench_function(id, |b| b.iter(|| load.tick()));
            }
        }
    }
}

fn coarse(c: &mut Criterion) {
    let mut group = c.benchmark_group("coarse interval, 48 cores");
    for (name, percent) in [("all idle", 0), ("all at 10 %", 10), ("all at 60 %", 60)] {
        let mut load = Load::new(48, 48, &[]);
        group.bench_function(name, |b| b.iter(|| load.interval(percent)));
    }
}

criterion_group!(benches, fine, coarse);
criterion_main!(benches);
