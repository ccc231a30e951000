//! Failed commands of a namespace by status and by operation, counted by I/O threads and read by OS threads.
//!
//! A fixed table of statuses, so that counting neither allocates nor locks. Others count as "another status". Compare
//! Failure and aborted commands are expected results and are not counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_nvme::Status;

use crate::operation::Operation;

/// The statuses with their own counter, and their cause.
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
/// Cause of LBA Out of Range for a command within the namespace.
const SHORT: &str = "the file or device is shorter than the namespace";
/// Name of the last counter.
const OTHERS: &str = "another status";
/// No LBA.
const NONE: u64 = u64::MAX;

/// Failed commands of one namespace. Clones share the counters.
#[derive(Clone, Default)]
pub struct Failures(Arc<Tables>);

#[derive(Default)]
struct Tables {
    counters: [Counter; CAUSES.len() + 1],
    /// By [`Operation`]; commands with an unknown operation are not included.
    operations: [AtomicU64; Operation::ALL.len()],
}

#[derive(Default)]
struct Counter {
    commands: AtomicU64,
    /// Commands already returned by [`Failures::take_new`].
    taken: AtomicU64,
    /// 1 + LBA of the first new one, 0 for none: an LBA is below 2^63.
    first: AtomicU64,
}

/// Commands that failed with one status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCount {
    /// The status's name in the specification.
    pub status: &'static str,
    /// The cause, if known; may be empty.
    pub cause: &'static str,
    /// Commands.
    pub commands: u64,
}

/// Commands that failed with one status since the last call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFailures {
    /// The commands, by status and cause.
    pub count: FailureCount,
    /// LBA of the first, if any.
    pub first_lba: Option<u64>,
}

impl Failures {
    /// Counts a command that failed with `status`, at `lba` if it has one. `is_short`: it was within the namespace but beyond
    /// the end of its medium. Returns whether the status is counted.
    pub fn note(&self, operation: Option<Operation>, status: Status, is_short: bool, lba: Option<u64>) -> bool {
        let status = status.code();
        if matches!(status, Status::COMPARE_FAILURE | Status::ABORT_REQUESTED | Status::ABORTED_SQ_DELETION) {
            return false;
        }
        let same = |cause: &(Status, &str)| cause.0 == status && is_short != cause.1.is_empty();
        if let Some(operation) = operation {
            self.0.operations[operation as usize].fetch_add(1, Relaxed);
        }
        let counter = &self.0.counters[CAUSES.iter().position(same).unwrap_or(CAUSES.len())];
        let first = lba.filter(|&lba| lba < NONE).map_or(0, |lba| lba + 1);
        let _ = counter.first.compare_exchange(0, first, Relaxed, Relaxed);
        counter.commands.fetch_add(1, Relaxed);
        true
    }

    /// The statuses with failed commands.
    #[must_use]
    pub fn counts(&self) -> Vec<FailureCount> {
        self.counters()
            .map(|(at, counter)| count(at, counter.commands.load(Relaxed)))
            .filter(|it| it.commands > 0)
            .collect()
    }

    /// Failed commands by operation, in the order of [`Operation::ALL`].
    #[must_use]
    pub fn by_operation(&self) -> [u64; Operation::ALL.len()] {
        self.0.operations.each_ref().map(|count| count.load(Relaxed))
    }

    /// Failures since the last call. One thread at a time.
    #[must_use]
    pub fn take_new(&self) -> Vec<NewFailures> {
        let new = |(at, counter): (usize, &Counter)| {
            let commands = counter.commands.load(Relaxed);
            let new = commands - counter.taken.swap(commands, Relaxed);
            // a failure between the two loads counts next time, but its LBA may be reported now
            let first_lba = if new > 0 { counter.first.swap(0, Relaxed).checked_sub(1) } else { None };
            NewFailures { count: count(at, new), first_lba }
        };
        self.counters().map(new).filter(|new| new.count.commands > 0).collect()
    }

    /// All counters with value 0.
    pub fn none() -> impl Iterator<Item = FailureCount> {
        (0..=CAUSES.len()).map(|at| count(at, 0))
    }

    fn counters(&self) -> impl Iterator<Item = (usize, &Counter)> {
        self.0.counters.iter().enumerate()
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
        /// Totals, new failures, and the first LBA of each.
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
    fn compare_failures_and_aborted_commands_are_not_counted() {
        let failures = Failures::default();
        for status in [Status::COMPARE_FAILURE, Status::ABORT_REQUESTED, Status::ABORTED_SQ_DELETION] {
            assert!(!failures.note(Some(Operation::Compare), status.dnr(), false, Some(0)));
        }
        assert!(failures.counts().is_empty() && failures.by_operation() == [0; Operation::ALL.len()]);
    }

    #[test]
    fn failures_are_counted_by_operation() {
        let failures = Failures::default();
        for operation in [Some(Operation::Write), Some(Operation::Write), Some(Operation::Flush), None] {
            assert!(failures.note(operation, Status::WRITE_FAULT, false, None));
        }
        let count = |operation: Operation| failures.by_operation()[operation as usize];
        assert_eq!([Operation::Read, Operation::Write, Operation::Flush].map(count), [0, 2, 1]);
    }
}
