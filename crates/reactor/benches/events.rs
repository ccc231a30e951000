//! Cost of a message through an inbox on one core, and of a clock reading for comparison.
//!
//! `cargo bench -p pilotlight-reactor --bench events`. The message is as large as a reactor's event (32 bytes). Send and receive alone are
//! measured over as many messages as the inbox holds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pilotlight_reactor::{Inbox, Sender, clock};

type Message = [u64; 4];

const ROOM: usize = 1024;
const MESSAGE: Message = [1, 2, 3, 4];

fn fill(sender: &Sender<Message>) {
    for _ in 0..ROOM {
        sender.send(black_box(MESSAGE)).expect("room");
    }
}

fn empty(inbox: &mut Inbox<Message>) {
    while let Some(message) = inbox.take() {
        black_box(message);
    }
}

/// Time of the measured side alone, over `batches` of filling and emptying.
fn time(batches: u64, mut fill: impl FnMut(), mut empty: impl FnMut(), fill_is_measured: bool) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..batches {
        let start = Instant::now();
        fill();
        let filled = Instant::now();
        empty();
        total += if fill_is_measured { filled - start } else { filled.elapsed() };
    }
    total
}

fn in_batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1024 messages");
    group.throughput(Throughput::Elements(ROOM as u64));
    for (name, fill_is_measured) in [("send", true), ("receive", false)] {
        let mut inbox = Inbox::new(ROOM);
        let sender = inbox.sender();
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|batches| time(batches, || fill(&sender), || empty(&mut inbox), fill_is_measured));
        });
    }
}

fn one_by_one(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one message");
    let mut inbox = Inbox::new(ROOM);
    let sender = inbox.sender();
    group.bench_function("send and receive", |bencher| {
        bencher.iter(|| {
            sender.send(black_box(MESSAGE)).expect("room");
            inbox.take()
        });
    });
    group.bench_function("take on empty", |bencher| bencher.iter(|| black_box(&mut inbox).take()));
    fill(&sender);
    group.bench_function("send to full", |bencher| bencher.iter(|| sender.send(black_box(MESSAGE))));
    group.bench_function("clock (for comparison)", |bencher| bencher.iter(clock::now_ns));
}

/// Cost to the owner of arming and disarming without a wait.
fn arming(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("owner");
    let mut inbox = Inbox::<Message>::new(ROOM);
    inbox.doorbell().expect("made");
    group.bench_function("arm and disarm the doorbell", |bencher| {
        bencher.iter(|| {
            black_box(inbox.arm());
            inbox.disarm();
        });
    });
}

criterion_group!(benches, in_batches, one_by_one, arming);
criterion_main!(benches);
