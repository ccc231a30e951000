//! Parameters of `adaptive`: key, purpose and values of each.

use crate::budget::Domain;
use crate::parameter::{self, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};
use crate::pass::profile::Profile;

/// All values.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Rise that is always allowed, except at tolerance 0.
    pub floor_ns: u64,
    /// Part of a host's latency outside of the server.
    pub outside_ns: u64,
    /// Time between two checks.
    pub check_ns: u64,
    /// Length of a round that wakes cores, or longer where three requests take longer.
    pub round_ns: u64,
    /// Time after which woken cores are given back.
    pub hold_ns: u64,
    /// Longest wait in the kernel under load.
    pub wait_ns: u64,
    /// Longest pause after requests.
    pub pause_ns: u64,
    /// Whether cores with I/O threads wait in the kernel.
    pub waits: bool,
    /// Time between two samples of the draws under a budget.
    pub sample_ns: u64,
    /// Age of the last reading of power from which on nothing is known.
    pub stale_after_ns: u64,
    /// What a budget is of.
    pub domain: Domain,
    /// Power and performance of the machine, for a budget.
    pub profile: Option<Profile>,
}

/// No profile.
const NONE: &str = "none";

impl Default for Parameters {
    fn default() -> Self {
        Self {
            floor_ns: 20_000,
            outside_ns: 30_000,
            check_ns: 10_000_000,
            round_ns: 75_000,
            hold_ns: 50_000_000,
            wait_ns: 150_000,
            pause_ns: 50_000,
            waits: true,
            sample_ns: 100_000_000,
            stale_after_ns: 10_000_000_000,
            domain: Domain::Server,
            profile: None,
        }
    }
}

const TABLE: [Parameter<Parameters>; 12] = [
    Parameter {
        key: "floor",
        meaning: "rise of that percentile which is allowed at any tolerance above 0",
        allowed: TIME,
        get: |p| text::format_duration(p.floor_ns),
        set: |p, v| time(&mut p.floor_ns, v),
    },
    Parameter {
        key: "outside",
        meaning: "part of a host's latency that the server does not see: network and host",
        allowed: TIME,
        get: |p| text::format_duration(p.outside_ns),
        set: |p, v| time(&mut p.outside_ns, v),
    },
    Parameter {
        key: "check_interval",
        meaning: "time between two checks of how many cores are needed",
        allowed: TIME,
        get: |p| text::format_duration(p.check_ns),
        set: |p, v| time(&mut p.check_ns, v),
    },
    Parameter {
        key: "round",
        meaning: "length of two rounds in a row, at least that of three requests, from which on a core reports at once that it cannot follow",
        allowed: TIME,
        get: |p| text::format_duration(p.round_ns),
        set: |p, v| time(&mut p.round_ns, v),
    },
    Parameter {
        key: "hold",
        meaning: "shortest time for which cores stay in use; doubled, up to two minutes, each time that they were not needed",
        allowed: TIME,
        get: |p| text::format_duration(p.hold_ns),
        set: |p, v| time(&mut p.hold_ns, v),
    },
    Parameter {
        key: "longest_wait",
        meaning: "longest wait in the kernel while there are requests, or four times the allowed rise: the shorter, the sooner a core wakes",
        allowed: TIME,
        get: |p| text::format_duration(p.wait_ns),
        set: |p, v| time(&mut p.wait_ns, v),
    },
    Parameter {
        key: "longest_pause",
        meaning: "longest time after requests in which a core does not look for more, as far as the tolerance allows, where they come together; 1us: none",
        allowed: TIME,
        get: |p| text::format_duration(p.pause_ns),
        set: |p, v| time(&mut p.pause_ns, v),
    },
    Parameter {
        key: "waits",
        meaning: "cores in use wait in the kernel between requests; false: they poll",
        allowed: SWITCH,
        get: |p| p.waits.to_string(),
        set: |p, v| put(&mut p.waits, v.parse().ok()),
    },
    Parameter {
        key: "sample_interval",
        meaning: "under a budget, time between two samples of the draws of CPU and drives",
        allowed: TIME,
        get: |p| text::format_duration(p.sample_ns),
        set: |p, v| time(&mut p.sample_ns, v),
    },
    Parameter {
        key: "stale_after",
        meaning: "age of the last reading of power from which on a budget leaves the CPU its lowest power",
        allowed: TIME,
        get: |p| text::format_duration(p.stale_after_ns),
        set: |p, v| time(&mut p.stale_after_ns, v),
    },
    Parameter {
        key: "domain",
        meaning: "domain of the budget",
        allowed: "server or cpu (all packages)",
        get: |p| p.domain.name().to_owned(),
        set: |p, v| put(&mut p.domain, Domain::read(v)),
    },
    Parameter {
        key: "profile",
        meaning: "power and performance of the machine, by which a budget is divided between CPU and drives; none: by its knobs, and drives as PASS's",
        allowed: "none, the name of a profile that comes with the program, or the text of one",
        get: |p| p.profile.as_ref().map_or(NONE.to_owned(), |profile| profile.name.clone()),
        set: |p, v| {
            let profile = || Profile::named(v).or_else(|| Profile::parse(v).ok());
            put(&mut p.profile, if v == NONE { Some(None) } else { profile().map(Some) })
        },
    },
];

impl Parameters {
    /// Applies settings in this order.
    ///
    /// # Errors
    /// If a parameter does not exist or a value is not allowed.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        parameter::read(super::NAME, &TABLE, settings)
    }

    /// All of them, in the order of the documentation.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }
}
