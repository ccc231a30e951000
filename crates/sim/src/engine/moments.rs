//! Simultaneous states of logical cores within an epoch, for machines with scheduled cores.
//!
//! Polling cores are awake for long periods, and siblings can be assumed independent ([`crate::power`]). Programs that wait for one drive are not: it
//! completes their requests sequentially, so that siblings alternate, and a core exits the deep state for a few microseconds thousands of times per
//! second.

use crate::power::Together;
use crate::trace::State;

/// A part of an epoch in which a core was in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) until_ns: u64,
    pub(crate) state: State,
    /// The same with exits counted as idle time.
    pub(crate) at_rest: State,
}

impl Part {
    fn state(&self, at_rest: bool) -> State {
        if at_rest { self.at_rest } else { self.state }
    }
}

/// Durations of each combination of states of two siblings; a missing sibling counts as always deep.
pub(crate) fn together(from_ns: u64, first: &[Part], second: Option<&[Part]>, at_rest: bool) -> Together {
    let mut ns = [[0; 4]; 4];
    let alone = [Part { until_ns: u64::MAX, state: State::Deep, at_rest: State::Deep }];
    let mut others = second.unwrap_or(&alone).iter().peekable();
    let mut from_ns = from_ns;
    for part in first {
        while from_ns < part.until_ns {
            while others.next_if(|other| other.until_ns <= from_ns).is_some() {}
            let Some(other) = others.peek() else { break };
            let until_ns = part.until_ns.min(other.until_ns);
            ns[part.state(at_rest) as usize][other.state(at_rest) as usize] += until_ns - from_ns;
            from_ns = until_ns;
        }
    }
    Together { ns, steps: [0; 2] }
}

/// Time in which at least one core was not deep.
pub(crate) fn not_deep_ns(from_ns: u64, cores: &[Vec<Part>], at_rest: bool) -> u64 {
    let mut stretches = Vec::new();
    for parts in cores {
        let mut begin_ns = from_ns;
        for part in parts {
            if part.state(at_rest) != State::Deep {
                stretches.push((begin_ns, part.until_ns));
            }
            begin_ns = part.until_ns;
        }
    }
    stretches.sort_unstable();
    let (mut sum_ns, mut counted_ns) = (0, 0);
    for (begin_ns, end_ns) in stretches {
        sum_ns += end_ns.saturating_sub(begin_ns.max(counted_ns));
        counted_ns = counted_ns.max(end_ns);
    }
    sum_ns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STATES: [State; 4] = [State::Awake, State::Shallow, State::Deep, State::Spins];

    /// Parts of 100 ns in total, and the state in each nanosecond.
    fn parts() -> impl Strategy<Value = (Vec<Part>, Vec<State>)> {
        prop::collection::vec((0..STATES.len(), 1..40_u64), 1..8).prop_map(|all| {
            let mut moments: Vec<State> =
                all.iter().flat_map(|(state, ns)| std::iter::repeat_n(STATES[*state], *ns as usize)).collect();
            moments.resize(100, State::Deep);
            let part =
                |(at, state): (usize, &State)| Part { until_ns: 1_001 + at as u64, state: *state, at_rest: *state };
            let mut parts: Vec<Part> = moments.iter().enumerate().map(part).collect();
            for at in (1..parts.len()).rev() {
                if parts[at].state == parts[at - 1].state {
                    parts[at - 1].until_ns = parts[at].until_ns;
                    parts.remove(at);
                }
            }
            (parts, moments)
        })
    }

    proptest! {
        /// Against a count nanosecond by nanosecond.
        #[test]
        fn every_moment_counts_once(first in parts(), second in parts(), third in parts()) {
            let together = together(1_000, &first.0, Some(&second.0), false);
            for (a, b) in (0..16).map(|at| (at / 4, at % 4)) {
                let both = first.1.iter().zip(&second.1).filter(|(x, y)| (**x as usize, **y as usize) == (a, b)).count();
                prop_assert_eq!(together.ns[a][b], both as u64);
            }
            let deep = |at: usize| [&first, &second, &third].iter().all(|core| core.1[at] == State::Deep);
            let expected = (0..100).filter(|at| !deep(*at)).count() as u64;
            prop_assert_eq!(not_deep_ns(1_000, &[first.0.clone(), second.0.clone(), third.0.clone()], false), expected);
        }
    }
}
