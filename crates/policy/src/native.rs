//! `native`: as `static`, and every core at its highest frequency (PACER V: "no power-saving strategies"); and `ssd-apst`: as `native`, but
//! drives that have nothing to do go to their lowest power state (PACER III-B2, Table I).
//!
//! **Rule of `ssd-apst`.** After a time without requests each drive is put into its lowest power state, and with the next interval that has
//! any back into the one in which it was found. Idle states that a drive enters by itself (APST) `native` leaves as they are.
//! `static` commands no frequency, so it is not `native` where something else has lowered it.

use pilotlight_plant::{
    Capabilities, Command, Completions, NEVER, Next, Policy, Refusal, Sample, Start, Unsupported, View, Wants,
};

use crate::clock::Clock;
use crate::drives::Drives;
use crate::grid::Grid;
use crate::load::is_quiet;
use crate::parameter::{self, Parameter, ParameterError, Setting, TIME, text, time};
use crate::spread::spread;

/// The name of the one that saves nothing.
pub const NATIVE: &str = "native";
/// The name of the one that saves with drives alone.
pub const SSD_APST: &str = "ssd-apst";

/// What can be set on `ssd-apst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Time without requests until drives go to their lowest power state, in nanoseconds.
    pub idle_ns: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { idle_ns: 100_000_000 }
    }
}

const TABLE: [Parameter<Parameters>; 1] = [Parameter {
    key: "idle",
    meaning: "time without requests until drives go to their lowest power state (chosen: what Linux waits, as a rule, for drives \
              that take long to wake)",
    allowed: TIME,
    get: |p| text::in_units(p.idle_ns),
    set: |p, v| time(&mut p.idle_ns, v),
}];

impl Parameters {
    /// With these set, in this order.
    ///
    /// # Errors
    /// If there is no such parameter, or a value is not allowed.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        parameter::read(SSD_APST, &TABLE, settings)
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }
}

/// The policy.
#[derive(Debug, Default)]
pub struct Native {
    /// Those of `ssd-apst`; `None` for `native`.
    parameters: Option<Parameters>,
    clocks: Vec<Clock>,
    drives: Drives,
    is_low: bool,
    grid: Option<Grid>,
    /// When the next interval is needed.
    due_ns: u64,
    refused: u64,
}

impl Native {
    /// One whose drives go to lower power states.
    #[must_use]
    pub fn with_drives(parameters: Parameters) -> Self {
        Self { parameters: Some(parameters), ..Self::default() }
    }

    fn find_drives(&mut self, capabilities: &Capabilities) {
        if self.parameters.is_some() {
            self.drives.find(capabilities);
        }
    }

    fn next(&mut self, now_ns: u64) -> Next {
        let rests = self.is_low || self.drives.is_empty();
        self.due_ns = self.grid.filter(|_| !rests).map_or(NEVER, |grid| grid.after(now_ns));
        Next::at(self.due_ns)
    }
}

impl Policy for Native {
    fn name(&self) -> &'static str {
        if self.parameters.is_some() { SSD_APST } else { NATIVE }
    }

    fn wants(&self) -> Wants {
        let interval_ns = self.parameters.as_ref().filter(|_| !self.drives.is_empty()).map(|own| own.idle_ns);
        Wants { interval_ns, service: interval_ns.is_some(), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        spread(start, Completions::Poll, out);
        self.clocks = start.topology.cores().filter_map(|core| Clock::of(core, start.capabilities)).collect();
        for clock in &mut self.clocks {
            clock.set(start.now_ns, clock.highest_khz, out);
        }
        self.find_drives(start.capabilities);
        self.is_low = false;
        self.grid = self.parameters.as_ref().map(|own| Grid { start_ns: start.now_ns, every_ns: own.idle_ns });
        Ok(self.next(start.now_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let is_quiet = is_quiet(sample);
        if is_quiet && sample.now_ns < self.due_ns {
            return Next::at(self.due_ns);
        }
        self.is_low = is_quiet;
        self.drives.set(sample.now_ns, is_quiet, out);
        self.next(sample.now_ns)
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, _out: &mut Vec<Command>) {
        self.find_drives(capabilities);
        self.due_ns = now_ns;
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.refused += 1;
        if let Command::Set { knob, value } = *command {
            self.drives.on_refused(now_ns, (knob, value), refusal);
        }
    }

    fn view(&self) -> View {
        vec![("commands refused", self.refused.to_string())]
    }
}
