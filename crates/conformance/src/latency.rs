//! The case of latencies: a policy sees the time for which requests wait while their core rests.
//!
//! A plant whose latencies start when a request is polled, and not when its bytes are at the socket, fails it.

use pilotlight_plant::{Command, CompletionMode, Policy, ReadingId, ThreadId};

use crate::script::{Board, Script, Seen};

/// A plant with a host that sends one request after the other, each as soon as the one before is answered.
pub trait Served {
    /// Time between two intervals that is convenient, in nanoseconds.
    fn interval_ns(&self) -> u64;

    /// The median latency of the server.
    fn median(&self) -> ReadingId;

    /// A rest that is far longer than a request takes without it, in nanoseconds.
    fn rest_ns(&self) -> u32;

    /// Whether nothing else uses its CPUs. Otherwise latency without a rest has no upper bound, and none is checked.
    fn is_alone(&self) -> bool;

    /// Runs `policy` until [`Board::is_done`], or until it is clear that this will not come.
    fn run(&mut self, policy: Box<dyn Policy>, board: &Board);
}

/// Intervals in a row that show the rest: where others use the CPUs one of them may show a long latency by chance.
const IN_A_ROW: u32 = 3;

/// The core of I/O thread 0 rests whenever it finds nothing, and then no longer. A request comes soon after a rest has begun.
///
/// # Panics
/// If the plant fails it.
pub fn a_rest_is_part_of_the_latency(plant: &mut dyn Served) {
    let (median, rest_ns, is_alone) = (plant.median(), plant.rest_ns(), plant.is_alone());
    let latency = move |seen: &Seen| seen.readings.iter().find(|reading| reading.id == median)?.value;
    let is_short = move |seen: &Seen| latency(seen).is_some_and(|ns| !is_alone || ns < u64::from(rest_ns) / 2);
    let is_long = move |seen: &Seen| latency(seen).is_some_and(|ns| ns > u64::from(rest_ns) / 10 * 9);
    let wait = |mode| [Command::Completions { thread: ThreadId(0), mode }];
    let script = Script::every(plant.interval_ns())
        .reads()
        .until("a latency without a rest", is_short)
        .say(&wait(CompletionMode::Hybrid { idle_ns: rest_ns, rest_ns: 0 }))
        .holds("the rest in the latency", IN_A_ROW, is_long)
        .say(&wait(CompletionMode::Poll))
        .until("a latency without a rest again", is_short);
    let awaited = script.awaited();
    let (policy, board) = script.policy();
    plant.run(policy, &board);
    let log = board.log().clone();
    let (step, last) = (log.steps, log.samples.last());
    assert!(board.is_done(), "step {step} ({:?}) did not come about; the last sample is {last:#?}", awaited.get(step));
    assert!(log.wrong.is_empty() && log.refused.is_empty(), "{:?} {:?}", log.wrong, log.refused);
}
