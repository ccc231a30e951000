//! Parameters of `adaptive`: key, purpose and values of each.

use crate::parameter::{self, Parameter, ParameterError, SWITCH, Setting, TIME, put, text, time};

/// All values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Rise that is always allowed, except at tolerance 0.
    pub floor_ns: u64,
    /// Part of a host's latency outside of the server.
    pub outside_ns: u64,
    /// Time between two checks.
    pub check_ns: u64,
    /// Length of a round that wakes cores.
    pub round_ns: u64,
    /// Time after which woken cores are given back.
    pub hold_ns: u64,
    /// Longest wait in the kernel under load.
    pub wait_ns: u64,
    /// Whether cores with I/O threads wait in the kernel.
    pub waits: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            floor_ns: 20_000,
            outside_ns: 30_000,
            check_ns: 10_000_000,
            round_ns: 75_000,
            hold_ns: 50_000_000,
            wait_ns: 150_000,
            waits: true,
        }
    }
}

const TABLE: [Parameter<Parameters>; 7] = [
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
        meaning: "length of two rounds in a row from which on a core reports at once that it cannot follow",
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
        meaning: "longest wait in the kernel while there are requests: the shorter, the less deep a core sleeps and the sooner it wakes",
        allowed: TIME,
        get: |p| text::format_duration(p.wait_ns),
        set: |p, v| time(&mut p.wait_ns, v),
    },
    Parameter {
        key: "waits",
        meaning: "cores in use wait in the kernel between requests; false: they poll",
        allowed: SWITCH,
        get: |p| p.waits.to_string(),
        set: |p, v| put(&mut p.waits, v.parse().ok()),
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
