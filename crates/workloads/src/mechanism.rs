//! Completion mechanisms: their notation in experiments, and the settings of fio and of the machine that each needs.

use std::fmt;

use pilotlight_actuators::Machine;

/// System calls that submit reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// `preadv2`; polled with RWF_HIPRI (kernels from 4.4 on; 6.1 and later take the flag and do not poll).
    Sync,
    /// io_uring, one request at a time; polled with IORING_SETUP_IOPOLL.
    Uring,
}

/// How the completion of a request is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The drive raises an interrupt; the thread sleeps until then (polling paper, section 2.1).
    Interrupt,
    /// The kernel polls the completion queue (2.2).
    Classic,
    /// The thread sleeps first, then the kernel polls (2.3).
    Hybrid(Sleep),
}

/// Sleep time of hybrid polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sleep {
    /// Chosen by the kernel. With `preadv2`: half of the mean service time by its statistics. With io_uring (6.13 and later): half of the
    /// shortest time that this ring has polled, without the sleep: a quarter of the service time of reads of equal duration on 7.3,
    /// near zero on 6.16.
    Automatic,
    /// This many microseconds.
    Fixed(u32),
}

/// A completion mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mechanism {
    /// System calls.
    pub api: Api,
    /// Detection of completion.
    pub kind: Kind,
}

/// Name of the knob that selects the mechanism.
pub const KNOB: &str = "mechanism";

/// Notation of the mechanisms.
pub const WORDS: &str = "\"interrupt\", \"classic\", \"hybrid\" (the kernel chooses the sleep), \"hybrid 4us\" (sleep of 4 us), \
                         \"uring interrupt\", \"uring classic\", \"uring hybrid\"";

/// Not one of [`WORDS`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mechanism {0:?}; use one of {WORDS}")]
pub struct UnknownMechanism(pub String);

impl Mechanism {
    /// Parses a mechanism.
    ///
    /// # Errors
    /// It is none of [`WORDS`].
    pub fn read(text: &str) -> Result<Self, UnknownMechanism> {
        let wrong = || UnknownMechanism(text.to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        let (api, words) = match words.as_slice() {
            ["uring", rest @ ..] => (Api::Uring, rest),
            all => (Api::Sync, all),
        };
        let kind = match (api, words) {
            (_, ["interrupt"]) => Kind::Interrupt,
            (_, ["classic"]) => Kind::Classic,
            (_, ["hybrid"]) => Kind::Hybrid(Sleep::Automatic),
            (Api::Sync, ["hybrid", us]) => Kind::Hybrid(Sleep::Fixed(fixed(us).ok_or_else(wrong)?)),
            _ => return Err(wrong()),
        };
        Ok(Self { api, kind })
    }

    /// Whether the kernel polls.
    #[must_use]
    pub fn polls(self) -> bool {
        self.kind != Kind::Interrupt
    }

    /// fio's engine.
    #[must_use]
    pub fn engine(self) -> &'static str {
        match self.api {
            Api::Sync => "pvsync2",
            Api::Uring => "io_uring",
        }
    }

    /// The value of `io_poll_delay`: -1 for classic polling, 0 for automatic hybrid polling, else the sleep in microseconds. io_uring's
    /// hybrid polling is a flag of the ring and ignores it.
    #[must_use]
    pub fn delay(self) -> Option<i64> {
        match (self.api, self.kind) {
            (_, Kind::Interrupt) => None,
            (Api::Uring, _) | (Api::Sync, Kind::Classic) => Some(-1),
            (Api::Sync, Kind::Hybrid(Sleep::Automatic)) => Some(0),
            (Api::Sync, Kind::Hybrid(Sleep::Fixed(us))) => Some(i64::from(us)),
        }
    }

    /// Settings of the machine: key, value, and the setting alone, as the kernel may refuse each.
    #[must_use]
    pub fn settings(self) -> Vec<(&'static str, i64, Machine)> {
        let none = Machine::default;
        let poll = self.polls().then(|| ("io_poll", 1, Machine { io_poll: Some(true), ..none() }));
        let delay = self.delay().map(|us| ("io_poll_delay", us, Machine { io_poll_delay: Some(us), ..none() }));
        poll.into_iter().chain(delay).collect()
    }
}

fn fixed(word: &str) -> Option<u32> {
    word.strip_suffix("us")?.parse().ok().filter(|us| *us > 0)
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.api == Api::Uring {
            f.write_str("uring ")?;
        }
        match self.kind {
            Kind::Interrupt => f.write_str("interrupt"),
            Kind::Classic => f.write_str("classic"),
            Kind::Hybrid(Sleep::Automatic) => f.write_str("hybrid"),
            Kind::Hybrid(Sleep::Fixed(us)) => write!(f, "hybrid {us}us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_and_formatting_are_inverse() {
        let all = ["interrupt", "classic", "hybrid", "hybrid 4us", "uring interrupt", "uring classic", "uring hybrid"];
        for word in all {
            assert_eq!(Mechanism::read(word).unwrap().to_string(), word);
        }
        for wrong in ["", "poll", "uring", "hybrid 4", "hybrid 0us", "uring hybrid 4us", "classic 4us"] {
            assert!(Mechanism::read(wrong).unwrap_err().to_string().contains("\"hybrid 4us\""), "{wrong}");
        }
    }

    #[test]
    fn settings_are_those_of_the_kernel_s_documentation() {
        let delay = |word: &str| Mechanism::read(word).unwrap().delay();
        let delays = ["interrupt", "classic", "hybrid", "hybrid 4us", "uring classic"].map(delay);
        assert_eq!(delays, [None, Some(-1), Some(0), Some(4), Some(-1)]);
        assert!(Mechanism::read("interrupt").unwrap().settings().is_empty());
        let keys: Vec<&str> = Mechanism::read("hybrid").unwrap().settings().iter().map(|(key, ..)| *key).collect();
        assert_eq!(keys, ["io_poll", "io_poll_delay"]);
    }
}
