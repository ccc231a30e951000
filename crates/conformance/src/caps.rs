//! Cases for bandwidth caps. They need a plant with storage, so they have their own trait and suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pilotlight_plant::{Command, KnobId, Policy, ReadingId, Refusal};

use crate::script::{Board, Log, Script, Seen};

/// A cap below the bandwidth of every plant, in bytes per second.
const CAP: u64 = 4_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A plant with a namespace from which a host reads continuously.
pub trait Storage {
    /// A suitable policy interval, in nanoseconds.
    fn interval_ns(&self) -> u64;

    /// Size of the largest request in bytes.
    fn largest_bytes(&self) -> u64;

    /// The namespace's cap.
    fn cap(&self) -> KnobId;

    /// The read bandwidth of the namespace.
    fn rate(&self) -> ReadingId;

    /// Runs `policy` until [`Board::is_done`] or a timeout; returns the admitted bytes over time.
    fn run(&mut self, policy: Box<dyn Policy>, board: &Board) -> Vec<Admitted>;
}

/// Total of admitted bytes at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Before the bytes were counted, in nanoseconds of the plant's clock.
    pub before_ns: u64,
    /// After the bytes were counted.
    pub after_ns: u64,
    /// The total.
    pub bytes: u64,
}

/// A test for each case; `$plant` creates a [`Storage`].
#[macro_export]
macro_rules! cap_suite {
    ($plant:expr) => {
        $crate::cap_suite!($plant;
            a_cap_holds_over_a_second
            a_lifted_cap_limits_nothing
            readings_show_the_cap
            a_cap_takes_the_nearest_value
            a_refused_cap_does_not_change_others
        );
    };
    ($plant:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::caps::$case(&mut $plant);
            }
        )*
    };
}

fn run(plant: &mut dyn Storage, script: Script) -> (Log, Vec<Admitted>) {
    let awaited = script.awaited();
    let (policy, board) = script.reads().policy();
    let admitted = plant.run(policy, &board);
    let log = board.log().clone();
    let (step, last) = (log.steps, log.samples.last());
    assert!(board.is_done(), "timed out at step {step} ({:?}); the last sample is {last:#?}", awaited.get(step));
    assert!(log.errors.is_empty(), "{:?}", log.errors);
    (log, admitted)
}

fn rate_of(seen: &Seen, id: ReadingId) -> Option<u64> {
    seen.readings.iter().find(|reading| reading.id == id)?.value
}

/// A script that starts once the host reads more than the caps of these cases allow.
fn uncapped(plant: &dyn Storage) -> Script {
    let rate = plant.rate();
    Script::every(plant.interval_ns())
        .until("reads beyond the cap", move |seen| rate_of(seen, rate).is_some_and(|rate| rate > 2 * CAP))
}

fn set(plant: &dyn Storage, value: u64) -> [Command; 1] {
    [Command::Set { knob: plant.cap(), value }]
}

/// In every second after it was set, at most 1.02 times the cap plus one largest request are admitted.
pub fn a_cap_holds_over_a_second(plant: &mut dyn Storage) {
    let set_ns = Arc::new(AtomicU64::new(0));
    let (note, since) = (Arc::clone(&set_ns), Arc::clone(&set_ns));
    let script = uncapped(plant)
        .when(
            "a sample",
            move |seen| {
                note.store(seen.now_ns, SeqCst);
                true
            },
            &set(plant, CAP),
        )
        .until("1.5 s under the cap", move |seen| seen.now_ns > since.load(SeqCst) + SECOND_NS * 3 / 2);
    let largest = plant.largest_bytes();
    let (log, admitted) = run(plant, script);
    assert!(log.refused.is_empty(), "{:?}", log.refused);
    let capped: Vec<_> = admitted.into_iter().filter(|one| one.before_ns >= set_ns.load(SeqCst)).collect();
    let mut seconds = 0;
    for (at, first) in capped.iter().enumerate() {
        let length_ns = |last: &&Admitted| last.after_ns - first.before_ns;
        let Some(last) = capped[at..].iter().find(|last| length_ns(last) >= SECOND_NS) else { break };
        let most = CAP as f64 * length_ns(&last) as f64 / 1e9 * 1.02 + largest as f64;
        let bytes = last.bytes - first.bytes;
        assert!(bytes > 0 && bytes as f64 <= most, "{bytes} bytes in {} ns, at most {most}", length_ns(&last));
        seconds += 1;
    }
    assert!(seconds > 0, "a second of the cap in {capped:?}");
}

/// The initial value is no cap.
pub fn a_lifted_cap_limits_nothing(plant: &mut dyn Storage) {
    let rate = plant.rate();
    let below = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate < CAP * 3 / 2);
    let beyond = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate > 2 * CAP);
    let script = uncapped(plant)
        .command(&set(plant, CAP))
        .until("fewer bytes", below)
        .command(&set(plant, u64::MAX))
        .until("more than the cap", beyond);
    let (log, _) = run(plant, script);
    assert!(log.refused.is_empty(), "{:?}", log.refused);
}

/// Readings of the bandwidth show the cap, and each later one.
pub fn readings_show_the_cap(plant: &mut dyn Storage) {
    let rate = plant.rate();
    let reads =
        move |cap: u64| move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate > cap / 2 && rate < cap * 5 / 4);
    let script = uncapped(plant)
        .command(&set(plant, CAP))
        .until("the cap", reads(CAP))
        .command(&set(plant, 3 * CAP / 8))
        .until("the lower cap", reads(3 * CAP / 8))
        .command(&set(plant, CAP))
        .until("the first cap again", reads(CAP));
    let (log, _) = run(plant, script);
    assert!(log.refused.is_empty(), "{:?}", log.refused);
}

/// A value below the lowest becomes the lowest.
pub fn a_cap_takes_the_nearest_value(plant: &mut dyn Storage) {
    let (rate, knob) = (plant.rate(), plant.cap());
    let reads = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate > CAP / 16 && rate < CAP / 2);
    let script = uncapped(plant).command(&set(plant, 0)).until("the lowest cap", reads);
    let (log, _) = run(plant, script);
    assert!(log.refused.is_empty(), "{:?}", log.refused);
    assert_eq!(log.capabilities.knob(knob).and_then(|knob| knob.values.lowest()), Some(CAP / 4));
}

/// An unknown knob is refused; the cap set before stays in force.
pub fn a_refused_cap_does_not_change_others(plant: &mut dyn Storage) {
    let rate = plant.rate();
    let below = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate < CAP * 3 / 2);
    let unknown = Command::Set { knob: KnobId(u16::MAX), value: u64::MAX };
    let script = uncapped(plant)
        .command(&set(plant, CAP))
        .until("fewer bytes", below)
        .command(&[unknown])
        .until("the refusal", |seen| seen.refused == 1)
        .holds("fewer bytes", 5, below);
    let (log, _) = run(plant, script);
    assert_eq!(log.refused, [(unknown, Refusal::Unknown)]);
}
