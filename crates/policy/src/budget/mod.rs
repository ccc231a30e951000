//! A power budget held with one mechanism: what `rapl-only`, `cpu-bandwidth`, `cpu-jailing` and `ssd-bandwidth` share (PASS, sections 2.3
//! and 5). `thunderbolt` has a rule of its own ([`crate::thunderbolt`]) and all else as here (`single`).
//!
//! **Rule.** While there is a budget ([`pilotlight_plant::Goals`]), power is read at each interval, and the cap follows it as `control` says.
//! Nothing is set before a window has been measured, for a third at least, under the last setting (`meter`). The
//! machine begins uncapped, as PASS does; without a budget no cap is left. All else is up to an inner policy (`crate::limit`), `static` at first.
//! **Faults.** Without a new reading the cap is not raised. Once the last good reading is older than `blind_after` the cap goes to its lowest
//! value, since it is not known which higher one would hold the budget. A refused knob is left alone for 10 s, then twice as long
//! each time (`caps`).
//!
//! **Properties** (`tests/budget.rs`). The cap is lifted with the budget; while the sensor is dead no command raises it; at constant load
//! commands end. With a budget each interval is needed; without one none, from a second after the cap was lifted.

pub(crate) mod actuator;
pub(crate) mod caps;
pub(crate) mod control;
pub(crate) mod meter;
pub(crate) mod parameters;
pub(crate) mod single;

use pilotlight_plant::{Capabilities, Unsupported};

pub use self::actuator::Means;
use self::control::{Control, Range};
use self::meter::{Estimate, Meter};
pub use self::parameters::{Common, Parameters};
use self::single::Rule;

/// A policy that holds a budget with one mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Mechanism {
    /// The name by which an operator chooses the policy.
    pub name: &'static str,
    /// What it caps.
    pub means: Means,
    /// What a plant lacks that has none, and what would bring one.
    pub missing: [&'static str; 2],
    /// Share of the budget that the whole range is assumed to move, in millionths.
    pub span_ppm: u32,
}

/// Of what the budget is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The whole server.
    Server,
    /// Its CPU packages together.
    Cpu,
}

impl Domain {
    /// As an operator writes it.
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

    /// The sensors of it.
    pub(crate) fn meter(self, policy: &'static str, capabilities: &Capabilities) -> Result<Meter, Unsupported> {
        let [what, remedy] = match self {
            Self::Server => [
                "a reading of the server's power",
                "it takes a sensor of the whole system, such as the firmware's power meter; or domain = \"cpu\" for a \
                 budget of the CPU packages",
            ],
            Self::Cpu => [
                "a reading of the power of the CPU packages",
                "it takes RAPL counters that the server may read; or domain = \"server\"",
            ],
        };
        Meter::find(self, capabilities).ok_or(Unsupported { policy, feature: what, remedy })
    }
}

/// A plant does not have the period of the CPU quota that is asked for.
pub(crate) fn no_period(policy: &'static str) -> Unsupported {
    let [what, remedy] =
        ["this period of the CPU quota", "set quota_period to found, or to one that the plant has (100ms or 1s)"];
    Unsupported { policy, feature: what, remedy }
}

/// How long a refusal of the last setting may take, in nanoseconds: the plant is asked later than the policy commands.
pub(crate) const SETTLES_NS: u64 = 1_000_000_000;

/// The rule of PASS's zones, as `control` has it.
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
