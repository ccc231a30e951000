//! Latency readings include the time that requests wait while their core rests.
//!
//! A plant that measures latency from the poll of a request instead of its arrival at the socket fails.

use pilotlight_plant::{Command, CompletionMode, Policy, ReadingId, ThreadId};

use crate::script::{Board, Script, Seen};

/// A plant with a host at queue depth 1.
pub trait Served {
    /// A suitable policy interval, in nanoseconds.
    fn interval_ns(&self) -> u64;

    /// The median latency of the server.
    fn median(&self) -> ReadingId;

    /// A rest much longer than the latency without it, in nanoseconds.
    fn rest_ns(&self) -> u32;

    /// Whether its CPUs are otherwise idle. If not, latency without a rest has no upper bound and is not checked.
    fn is_alone(&self) -> bool;

    /// Runs `policy` until [`Board::is_done`] or a timeout.
    fn run(&mut self, policy: Box<dyn Policy>, board: &Board);
}

/// Consecutive intervals that must show the rest: with other load on the CPUs a single one may be long by chance.
const IN_A_ROW: u32 = 3;

/// The core of I/O thread 0 rests after every empty poll, then polls again. A request arrives soon after a rest begins.
///
/// # Panics
/// If the plant fails the case.
pub fn a_rest_is_part_of_the_latency(plant: &mut dyn Served) {
    let (median, rest_ns, is_alone) = (plant.median(), plant.rest_ns(), plant.is_alone());
    let latency = move |seen: &Seen| seen.readings.iter().find(|reading| reading.id == median)?.value;
    let is_short = move |seen: &Seen| latency(seen).is_some_and(|ns| !is_alone || ns < u64::from(rest_ns) / 2);
    let is_long = move |seen: &Seen| latency(seen).is_some_and(|ns| ns > u64::from(rest_ns) / 10 * 9);
    let wait = |mode| [Command::Completions { thread: ThreadId(0), mode }];
    let script = Script::every(plant.interval_ns())
        .reads()
        .until("a latency without a rest", is_short)
        .command(&wait(CompletionMode::Hybrid { idle_ns: rest_ns, rest_ns: 0 }))
        .holds("the rest in the latency", IN_A_ROW, is_long)
        .command(&wait(CompletionMode::Poll))
        .until("a latency without a rest again", is_short);
    let awaited = script.awaited();
    let (policy, board) = script.policy();
    plant.run(policy, &board);
    let log = board.log().clone();
    let (step, last) = (log.steps, log.samples.last());
    assert!(board.is_done(), "timed out at step {step} ({:?}); the last sample is {last:#?}", awaited.get(step));
    assert!(log.errors.is_empty() && log.refused.is_empty(), "{:?} {:?}", log.errors, log.refused);
}
