//! Failed commands of a namespace, counted by status and by operation: I/O threads count, ordinary OS threads read.
//!
//! The table has a place for each status that a command on a namespace can fail with, so that counting neither allocates nor locks. A
//! status without a place counts as "another status". Compare Failure and aborted commands are results that the host expects: they
//! do not count.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_nvme::Status;

use crate::usage::Operation;

/// What has a place of its own.
const CAUSES: [(Status, &str); 11] = [
    (Status::LBA_OUT_OF_RANGE, ""),
    (Status::LBA_OUT_OF_RANGE, SHORT),
    (Status::CAPACITY_EXCEEDED, ""),
    (Status::WRITE_PROTECTED, ""),
    (Status::UNRECOVERED_READ, ""),
    (Status::WRITE_FAULT, ""),
    (Status::INTERNAL, ""),
    (Status::INVALID_OPCODE, ""),
    (Status::INVALID_FIELD, ""),
    (Status::INVALID_NAMESPACE, ""),
    (Status::TRANSIENT_TRANSPORT, ""),
];
/// What LBA Out of Range means where the command was within the namespace.
const SHORT: &str = "the file or device is shorter than the namespace";
/// What counts in the last place.
const OTHERS: &str = "another status";
/// What stands for no LBA.
const NONE: u64 = u64::MAX;

/// Failed commands of one namespace. Clones count together.
#[derive(Clone, Default)]
pub struct Failures(Arc<Tables>);

#[derive(Default)]
struct Tables {
    places: [Place; CAUSES.len() + 1],
    /// By [`Operation`]; those whose operation is not known are in none.
    operations: [AtomicU64; Operation::ALL.len()],
}

#[derive(Default)]
struct Place {
    commands: AtomicU64,
    /// Of them, those that [`Failures::take_new`] has returned.
    taken: AtomicU64,
    /// 1 + LBA of the first that it has not, 0 for none: an LBA is below 2^63.
    first: AtomicU64,
}

/// How often commands failed with one status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCount {
    /// What the specification calls the status.
    pub status: &'static str,
    /// What else is known of the cause; may be empty.
    pub cause: &'static str,
    /// Commands.
    pub commands: u64,
}

/// Commands that have failed with one status since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFailures {
    /// The commands, by status and cause.
    pub count: FailureCount,
    /// LBA of the first, where it had one.
    pub first_lba: Option<u64>,
}

impl Failures {
    /// Notes a command with this operation that failed with `status`, at `lba` where it has one.
    /// `is_short`: the command was within the namespace and not within its medium. Returns whether it counts.
    pub(crate) fn note(&self, operation: Option<Operation>, status: Status, is_short: bool, lba: Option<u64>) -> bool {
        let status = status.code();
        if matches!(status, Status::COMPARE_FAILURE | Status::ABORT_REQUESTED | Status::ABORTED_SQ_DELETION) {
            return false;
        }
        let same = |cause: &(Status, &str)| cause.0 == status && is_short != cause.1.is_empty();
        if let Some(operation) = operation {
            self.0.operations[operation as usize].fetch_add(1, Relaxed);
        }
        let place = &self.0.places[CAUSES.iter().position(same).unwrap_or(CAUSES.len())];
        let first = lba.filter(|&lba| lba < NONE).map_or(0, |lba| lba + 1);
        let _ = place.first.compare_exchange(0, first, Relaxed, Relaxed);
        place.commands.fetch_add(1, Relaxed);
        true
    }

    /// Every status that commands have failed with.
    #[must_use]
    pub fn counts(&self) -> Vec<FailureCount> {
        self.places().map(|(at, place)| count(at, place.commands.load(Relaxed))).filter(|it| it.commands > 0).collect()
    }

    /// Failed commands by operation, as [`Operation::ALL`] has them.
    #[must_use]
    pub fn by_operation(&self) -> [u64; Operation::ALL.len()] {
        self.0.operations.each_ref().map(|count| count.load(Relaxed))
    }

    /// What has failed since the last call. For one thread at a time.
    #[must_use]
    pub fn take_new(&self) -> Vec<NewFailures> {
        let new = |(at, place): (usize, &Place)| {
            let commands = place.commands.load(Relaxed);
            let new = commands - place.taken.swap(commands, Relaxed);
            // one that fails between the two is counted next time, and may show its LBA now
            let first_lba = if new > 0 { place.first.swap(0, Relaxed).checked_sub(1) } else { None };
            NewFailures { count: count(at, new), first_lba }
        };
        self.places().map(new).filter(|new| new.count.commands > 0).collect()
    }

    /// Every status that is counted by itself, and what stands for all others; none has failed with any.
    pub fn none() -> impl Iterator<Item = FailureCount> {
        (0..=CAUSES.len()).map(|at| count(at, 0))
    }

    fn places(&self) -> impl Iterator<Item = (usize, &Place)> {
        self.0.places.iter().enumerate()
    }
}

fn count(at: usize, commands: u64) -> FailureCount {
    let (status, cause) =
        CAUSES.get(at).map_or((OTHERS, ""), |(status, cause)| (status.name().unwrap_or(OTHERS), *cause));
    FailureCount { status, cause, commands }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn statuses() -> impl Strategy<Value = Status> {
        let known = CAUSES.map(|(status, _)| status);
        prop_oneof![
            prop::sample::select(known.to_vec()),
            (0..8_u8, 1..=255_u8).prop_map(|(sct, sc)| Status::new(sct, sc))
        ]
    }

    proptest! {
        /// Against a map: counts since the start and since the last look, and the first LBA of each.
        #[test]
        fn failures_are_counted_as_in_a_map(
            events in prop::collection::vec(prop_oneof![
                4 => (statuses(), any::<bool>(), prop::option::of(0..1_000_u64)).prop_map(Some),
                1 => Just(None),
            ], 0..60),
        ) {
            let failures = Failures::default();
            let mut all = BTreeMap::<(&str, &str), u64>::new();
            let mut new = BTreeMap::<(&str, &str), (u64, Option<u64>)>::new();
            for event in events.into_iter().chain([None]) {
                if let Some((status, is_short, lba)) = event {
                    let is_short = is_short && status == Status::LBA_OUT_OF_RANGE;
                    if failures.note(Some(Operation::Read), status.dnr(), is_short, lba) {
                        let known = CAUSES.iter().any(|cause| cause.0 == status);
                        let key = match status.name() {
                            Some(name) if known => (name, if is_short { SHORT } else { "" }),
                            _ => (OTHERS, ""),
                        };
                        *all.entry(key).or_default() += 1;
                        let (count, first) = new.entry(key).or_insert((0, None));
                        *count += 1;
                        *first = first.or(lba);
                    }
                    continue;
                }
                let taken = failures.take_new();
                let taken: BTreeMap<_, _> = taken
                    .iter()
                    .map(|it| ((it.count.status, it.count.cause), (it.count.commands, it.first_lba)))
                    .collect();
                prop_assert_eq!(taken, std::mem::take(&mut new));
                let counts = failures.counts();
                let counts: BTreeMap<_, _> = counts.iter().map(|it| ((it.status, it.cause), it.commands)).collect();
                prop_assert_eq!(&counts, &all);
            }
        }
    }

    #[test]
    fn a_compare_that_found_a_difference_and_an_aborted_command_are_no_failures() {
        let failures = Failures::default();
        for status in [Status::COMPARE_FAILURE, Status::ABORT_REQUESTED, Status::ABORTED_SQ_DELETION] {
            assert!(!failures.note(Some(Operation::Compare), status.dnr(), false, Some(0)));
        }
        assert!(failures.counts().is_empty() && failures.by_operation() == [0; Operation::ALL.len()]);
    }

    #[test]
    fn failures_are_counted_by_operation_too() {
        let failures = Failures::default();
        for operation in [Some(Operation::Write), Some(Operation::Write), Some(Operation::Flush), None] {
            assert!(failures.note(operation, Status::WRITE_FAULT, false, None));
        }
        let count = |operation: Operation| failures.by_operation()[operation as usize];
        assert_eq!([Operation::Read, Operation::Write, Operation::Flush].map(count), [0, 2, 1]);
    }
}
