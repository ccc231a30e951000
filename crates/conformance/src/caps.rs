//! The cases of bandwidth caps. They need a plant with storage behind it, so they have a trait and a suite of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use pilotlight_plant::{Command, KnobId, Policy, ReadingId, Refusal};

use crate::script::{Board, Log, Script, Seen};

/// A cap that every plant exceeds without one, in bytes a second.
const CAP: u64 = 4_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A plant with a namespace from which a host reads without a pause.
pub trait Storage {
    /// Time between two intervals that is convenient, in nanoseconds.
    fn interval_ns(&self) -> u64;

    /// Bytes of the largest request.
    fn largest_bytes(&self) -> u64;

    /// The cap of the namespace.
    fn cap(&self) -> KnobId;

    /// The bytes a second that are read from it.
    fn rate(&self) -> ReadingId;

    /// Runs `policy` until [`Board::is_done`], or until it is clear that this will not come. What was admitted under a cap, as time went on.
    fn run(&mut self, policy: Box<dyn Policy>, board: &Board) -> Vec<Admitted>;
}

/// Bytes that were admitted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Just before they were counted, in nanoseconds of the plant's clock.
    pub before_ns: u64,
    /// Just after that.
    pub after_ns: u64,
    /// How many they were.
    pub bytes: u64,
}

/// One test for each case; `$plant` makes a [`Storage`].
#[macro_export]
macro_rules! cap_suite {
    ($plant:expr) => {
        $crate::cap_suite!($plant;
            a_cap_holds_over_a_second
            a_cap_that_is_lifted_holds_nothing_back
            a_cap_is_read_back
            a_cap_takes_the_nearest_value
            a_refused_cap_leaves_the_others_as_they_are
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

fn play(plant: &mut dyn Storage, script: Script) -> (Log, Vec<Admitted>) {
    let awaited = script.awaited();
    let (policy, board) = script.reads().policy();
    let admitted = plant.run(policy, &board);
    let log = board.log().clone();
    let (step, last) = (log.steps, log.samples.last());
    assert!(board.is_done(), "step {step} ({:?}) did not come about; the last sample is {last:#?}", awaited.get(step));
    assert!(log.wrong.is_empty(), "{:?}", log.wrong);
    (log, admitted)
}

fn rate_of(seen: &Seen, id: ReadingId) -> Option<u64> {
    seen.readings.iter().find(|reading| reading.id == id)?.value
}

/// A script that begins when the host reads more than the caps of these cases allow.
fn uncapped(plant: &dyn Storage) -> Script {
    let rate = plant.rate();
    Script::every(plant.interval_ns())
        .until("reads beyond the cap", move |seen| rate_of(seen, rate).is_some_and(|rate| rate > 2 * CAP))
}

fn set(plant: &dyn Storage, value: u64) -> [Command; 1] {
    [Command::Set { knob: plant.cap(), value }]
}

/// Over every second after it was set at most 1.02 times the cap and one largest request are admitted.
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
        .until("a second and a half of the cap", move |seen| seen.now_ns > since.load(SeqCst) + SECOND_NS * 3 / 2);
    let largest = plant.largest_bytes();
    let (log, admitted) = play(plant, script);
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

/// Set to what was found, a cap is none.
pub fn a_cap_that_is_lifted_holds_nothing_back(plant: &mut dyn Storage) {
    let rate = plant.rate();
    let below = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate < CAP * 3 / 2);
    let beyond = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate > 2 * CAP);
    let script = uncapped(plant)
        .say(&set(plant, CAP))
        .until("fewer bytes", below)
        .say(&set(plant, u64::MAX))
        .until("more than the cap", beyond);
    let (log, _) = play(plant, script);
    assert!(log.refused.is_empty(), "{:?}", log.refused);
}

/// The readings of what is capped show the cap, and the next one.
pub fn a_cap_is_read_back(plant: &mut dyn Storage) {
    let rate = plant.rate();
    let reads =
        move |cap: u64| move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate > cap / 2 && rate < cap * 5 / 4);
    let script = uncapped(plant)
        .say(&set(plant, CAP))
        .until("the cap", reads(CAP))
        .say(&set(plant, 3 * CAP / 8))
        .until("the lower cap", reads(3 * CAP / 8))
        .say(&set(plant, CAP))
        .until("the first cap again", reads(CAP));
    let (log, _) = play(plant, script);
    assert!(log.refused.is_empty(), "{:?}", log.refused);
}

/// A value below the lowest is the lowest.
pub fn a_cap_takes_the_nearest_value(plant: &mut dyn Storage) {
    let (rate, knob) = (plant.rate(), plant.cap());
    let reads = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate > CAP / 16 && rate < CAP / 2);
    let script = uncapped(plant).say(&set(plant, 0)).until("the lowest cap", reads);
    let (log, _) = play(plant, script);
    assert!(log.refused.is_empty(), "{:?}", log.refused);
    assert_eq!(log.capabilities.knob(knob).and_then(|knob| knob.values.lowest()), Some(CAP / 4));
}

/// What is not there is refused; the cap that was set before it holds.
pub fn a_refused_cap_leaves_the_others_as_they_are(plant: &mut dyn Storage) {
    let rate = plant.rate();
    let below = move |seen: &Seen| rate_of(seen, rate).is_some_and(|rate| rate < CAP * 3 / 2);
    let unknown = Command::Set { knob: KnobId(u16::MAX), value: u64::MAX };
    let script = uncapped(plant)
        .say(&set(plant, CAP))
        .until("fewer bytes", below)
        .say(&[unknown])
        .until("the refusal", |seen| seen.refused == 1)
        .holds("fewer bytes", 5, below);
    let (log, _) = play(plant, script);
    assert_eq!(log.refused, [(unknown, Refusal::Unknown)]);
}
