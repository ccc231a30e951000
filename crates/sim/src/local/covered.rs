//! Time that is counted once, however many ways it is covered.
//!
//! *Problem.* Two threads of a core rest and work each for itself, and a package is awake while any of its cores is; what each does becomes
//! known late (how long somebody rested is known when he is woken) and out of order. Power is of the core and the package, so that
//! stretches that overlap must count once. *Algorithm.* A set of stretches that do not touch; adding one tells the parts that are new.
//! *Properties.* The parts told add up to the measure of the union, in whichever order stretches come ([`Covered::add`]).

use std::collections::BTreeMap;

use super::tally::Tally;

/// A set of moments, as stretches by their begin.
#[derive(Clone, Debug, Default)]
pub struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds a stretch; `fresh` is told each part of it that was not covered.
    pub fn add(&mut self, from: u64, to: u64, mut fresh: impl FnMut(u64, u64)) {
        if from >= to {
            return;
        }
        // Nearly always it goes on where the last one ends.
        if let Some(mut entry) = self.0.last_entry().filter(|entry| *entry.key() <= from && from <= *entry.get()) {
            let end = *entry.get();
            if end < to {
                fresh(end, to);
                entry.insert(to);
            }
            return;
        }
        // From the back: `open` is where what has not been looked at ends.
        let (mut first, mut last, mut open) = (from, to, to);
        while let Some((&begin, &end)) = self.0.range(..=to).next_back().filter(|(_, end)| **end >= from) {
            self.0.remove(&begin);
            (first, last) = (first.min(begin), last.max(end));
            if end < open {
                fresh(end, open);
            }
            open = open.min(begin.max(from));
        }
        if from < open {
            fresh(from, open);
        }
        self.0.insert(first, last);
    }

    /// Forgets what ended before a moment: nothing will be added there any more.
    pub fn forget(&mut self, before: u64) {
        while let Some(entry) = self.0.first_entry().filter(|entry| *entry.get() < before) {
            entry.remove();
        }
    }
}

/// What a hardware thread does with its time, the dearest first; else it is deeply asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It works.
    Works,
    /// It looks at a queue.
    Looks,
    /// It sleeps lightly.
    Rests,
}

/// A core with two threads that are both in use: it takes what the dearer of the two takes.
#[derive(Clone, Debug, Default)]
pub struct Core {
    /// Where some thread works; works or looks; works, looks or rests.
    at_least: [Covered; 3],
}

impl Core {
    /// A thread of it does something for a while.
    pub fn add(&mut self, does: Does, from: u64, to: u64, tally: &mut Tally) {
        for level in does as usize..self.at_least.len() {
            self.at_least[level].add(from, to, |from, to| {
                tally.over(from, to, |slot, ns| {
                    slot.core_ns[level] += ns;
                    if let Some(cheaper) = slot.core_ns.get_mut(level + 1) {
                        *cheaper -= ns;
                    }
                });
            });
        }
    }

    /// No thread of it will add anything before this moment.
    pub fn forget(&mut self, before: u64) {
        self.at_least.iter_mut().for_each(|covered| covered.forget(before));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a line of moments that are ticked one by one.
        #[test]
        fn each_moment_is_fresh_once(stretches in prop::collection::vec((0_u64..200, 0_u64..30), 0..40)) {
            let (mut covered, mut ticked) = (Covered::default(), [false; 240]);
            for (from, length) in stretches {
                let to = from + length;
                let mut told = Vec::new();
                covered.add(from, to, |from, to| told.extend(from..to));
                told.sort_unstable();
                let expected: Vec<u64> = (from..to).filter(|at| !ticked[*at as usize]).collect();
                prop_assert_eq!(told, expected);
                (from..to).for_each(|at| ticked[at as usize] = true);
                // Stretches do not touch, so that a thread that never stops is one.
                let kept: Vec<(u64, u64)> = covered.0.iter().map(|(from, to)| (*from, *to)).collect();
                prop_assert!(kept.windows(2).all(|two| two[0].1 < two[1].0), "{:?}", kept);
            }
        }

        /// A core is, moment by moment, what the dearer of its threads is, in whichever order that becomes known.
        #[test]
        fn a_core_is_what_its_dearer_thread_is(
            threads in prop::array::uniform2(prop::collection::vec((0_usize..4, 1_u64..20), 0..20)),
            turns in prop::collection::vec(any::<bool>(), 40),
        ) {
            const DOES: [Does; 3] = [Does::Works, Does::Looks, Does::Rests];
            let (mut core, mut tally) = (Core::default(), Tally::new(1_000_000));
            let mut moments = [[3_usize; 400]; 2];
            let (mut next, mut until) = ([0; 2], [0_u64; 2]);
            let order = turns.iter().map(|turn| usize::from(*turn)).chain([0; 20]).chain([1; 20]);
            for thread in order {
                let Some((what, ns)) = threads[thread].get(next[thread]) else { continue };
                let (from, to) = (until[thread], until[thread] + ns);
                if let Some(does) = DOES.get(*what) {
                    core.add(*does, from, to, &mut tally);
                }
                moments[thread][from as usize..to as usize].fill(*what);
                (next[thread], until[thread]) = (next[thread] + 1, to);
                core.forget(until[0].min(until[1]));
            }
            let count = |level| (0..400).filter(|at| moments[0][*at].min(moments[1][*at]) == level).count() as f64;
            prop_assert_eq!(tally.slots[0].core_ns, [count(0), count(1), count(2)]);
        }
    }
}
