//! A power budget enforced by one mechanism: the common part of `rapl-only`, `cpu-bandwidth`, `cpu-jailing` and `ssd-bandwidth` (PASS,
//! sections 2.3 and 5). `thunderbolt` has its own rule ([`crate::thunderbolt`]) and shares the rest (`single`).
//!
//! **Rule.** While there is a budget ([`pilotlight_plant::Goals`]), power is read at each interval, and `control` adjusts the cap. Nothing is set
//! before at least a third of a window has been measured under the last setting (`meter`). The machine starts uncapped, as in PASS; without a
//! budget the cap is lifted. Everything else is left to an inner policy (`crate::limit`), by default `static`.
//! **Faults.** Without a new reading the cap is not raised. Once the last good reading is older than `stale_after` the cap goes to its lowest
//! value, since it is unknown which higher one keeps the budget. A refused knob is retried after 10 s, then twice as long each time (`caps`).
//!
//! **Properties** (`tests/budget.rs`). The cap is lifted with the budget; while the sensor fails no command raises it; at constant load commands
//! end. With a budget each interval is needed; without one none, from a second after the cap was lifted.

pub(crate) mod actuator;
pub(crate) mod caps;
pub(crate) mod control;
pub(crate) mod meter;
pub(crate) mod parameters;
pub(crate) mod single;

use pilotlight_plant::{Capabilities, Unsupported};

pub use self::actuator::CapKind;
use self::control::{Control, Range};
use self::meter::{Estimate, Meter};
pub use self::parameters::{Common, Parameters};
use self::single::Rule;

/// A policy that enforces a budget with one mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism {
    /// The name by which an operator chooses the policy.
    pub name: &'static str,
    /// The kind of its cap.
    pub cap: CapKind,
    /// The missing capability and its remedy, on a plant without the mechanism.
    pub missing: [&'static str; 2],
    /// Assumed effect of the whole range, in millionths of the budget.
    pub span_ppm: u32,
}

/// The domain of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The whole server.
    Server,
    /// Its CPU packages together.
    Cpu,
}

impl Domain {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Cpu => "cpu",
        }
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        [Self::Server, Self::Cpu].into_iter().find(|domain| domain.name() == text)
    }

    /// The meter of the domain.
    pub(crate) fn meter(self, policy: &'static str, capabilities: &Capabilities) -> Result<Meter, Unsupported> {
        let [what, remedy] = match self {
            Self::Server => [
                "a reading of the server's power",
                "add a sensor of the whole system, such as the firmware's power meter; or set domain = \"cpu\" for a \
                 budget of the CPU packages",
            ],
            Self::Cpu => [
                "a reading of the power of the CPU packages",
                "give the server read access to the RAPL counters; or set domain = \"server\"",
            ],
        };
        Meter::find(self, capabilities).ok_or(Unsupported { policy, feature: what, remedy })
    }
}

/// The plant does not support the requested period of the CPU quota.
pub(crate) fn no_period(policy: &'static str) -> Unsupported {
    let [what, remedy] =
        ["this period of the CPU quota", "set quota_period to found, or to one that the plant has (100ms or 1s)"];
    Unsupported { policy, feature: what, remedy }
}

/// Maximum delay of a refusal, in nanoseconds: the plant applies commands asynchronously.
pub(crate) const SETTLES_NS: u64 = 1_000_000_000;

/// The rule of PASS's zones (`control`).
#[derive(Debug)]
pub(crate) struct Zones {
    parameters: Parameters,
    control: Control,
}

impl Zones {
    pub(crate) fn new(parameters: Parameters) -> Self {
        Self { parameters, control: Control::default() }
    }
}

impl Rule for Zones {
    const CORRECTS: bool = true;

    fn next(&mut self, budget_uw: u64, at: (u64, Range), seen: (u64, Estimate), is_new: bool) -> Option<u64> {
        let thresholds = self.parameters.thresholds(budget_uw, at.1);
        self.control.next(&thresholds, budget_uw, at, seen, is_new)
    }

    fn on_budget(&mut self) {
        self.control.on_budget();
    }

    fn forget_change(&mut self) {
        self.control.forget_change();
    }
}
