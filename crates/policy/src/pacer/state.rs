//! The state machine (PACER IV-B, Figure 9).
//!
//! Savings start below one divergence and end above a higher one, so that the state does not change often. (The paper prints `<` for
//! both; its text says "exceeds" for the second.)

use super::parameters::{Parameters, share};

/// A state of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Load is not known to be steady: no savings.
    Unstable,
    /// Load is steady: cores and frequency are adapted.
    Stable,
    /// There are no requests.
    Idle,
}

/// Observations of an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observations {
    /// Time since the last request, in nanoseconds; 0 if the interval had any.
    pub(super) quiet_ns: u64,
    /// Divergence of latency, if the interval has ended a window and there are enough of them.
    pub(super) divergence: Option<f64>,
    /// Latency of the interval shows a burst.
    pub(super) surged: bool,
    /// The highest CPU use of a core group, as a share.
    pub(super) cpu_use: f64,
    /// The baseline has to be measured again.
    pub(super) remeasure: bool,
}

impl State {
    /// The state that follows.
    pub(super) fn next(self, observed: &Observations, parameters: &Parameters) -> Self {
        if observed.quiet_ns >= parameters.idle_after_ns {
            return Self::Idle;
        }
        let is_busy = observed.cpu_use > share(parameters.busy_threshold_ppm);
        let is_full = observed.cpu_use > share(parameters.use_limit_ppm); // nothing could be saved: avoids an immediate end
        let below = |limit_ppm| observed.divergence.is_some_and(|divergence| divergence < share(limit_ppm));
        let above = |limit_ppm| observed.divergence.is_some_and(|divergence| divergence > share(limit_ppm));
        match self {
            Self::Unstable if below(parameters.stable_threshold_ppm) && !is_full => Self::Stable,
            Self::Stable
                if is_busy || observed.surged || observed.remeasure || above(parameters.unstable_threshold_ppm) =>
            {
                Self::Unstable
            }
            Self::Idle if observed.quiet_ns == 0 => Self::Unstable,
            _ => self,
        }
    }

    /// For display.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unstable => "unstable",
            Self::Stable => "stable",
            Self::Idle => "idle",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(state: State, observed: Observations) -> State {
        state.next(&observed, &Parameters::default())
    }

    #[test]
    fn between_the_two_divergences_the_state_stays() {
        let at =
            |state, divergence| next(state, Observations { divergence: Some(divergence), ..Observations::default() });
        for state in [State::Unstable, State::Stable] {
            assert_eq!(at(state, 0.09), State::Stable);
            assert_eq!(at(state, 0.2), state);
            assert_eq!(at(state, 0.26), State::Unstable);
        }
        assert_eq!(next(State::Unstable, Observations::default()), State::Unstable, "not enough windows");
    }

    #[test]
    fn a_busy_cpu_ends_and_prevents_savings() {
        let busy = Observations { cpu_use: 0.81, divergence: Some(0.0), ..Observations::default() };
        assert_eq!(next(State::Stable, busy), State::Unstable);
        assert_eq!(next(State::Unstable, busy), State::Unstable);
        let full = Observations { cpu_use: 0.75, ..busy };
        assert_eq!(next(State::Unstable, full), State::Unstable);
        assert_eq!(next(State::Stable, full), State::Stable, "hysteresis");
        assert_eq!(next(State::Stable, Observations { cpu_use: 0.8, ..Observations::default() }), State::Stable);
    }

    #[test]
    fn without_requests_it_is_idle_until_one_arrives() {
        let quiet = |quiet_ns| Observations { quiet_ns, ..Observations::default() };
        for state in [State::Unstable, State::Stable] {
            assert_eq!(next(state, quiet(29_999_999_999)), state);
            assert_eq!(next(state, quiet(30_000_000_000)), State::Idle);
        }
        assert_eq!(next(State::Idle, quiet(1)), State::Idle);
        assert_eq!(next(State::Idle, quiet(0)), State::Unstable);
    }
}
