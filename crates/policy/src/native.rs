//! `native`: as `static`, and every core at its highest frequency (PACER V: "no power-saving strategies"); and `ssd-apst`: as `native`, but
//! drives may enter all their idle states (PACER III-B2, Table I).
//!
//! **Rule of `ssd-apst`.** From the start on no wake-up of a drive is too long; when to enter an idle state each drive decides by itself
//! (autonomous power state transitions, APST). `native` leaves idle states as they are found. `static` commands no frequency, so it is not
//! `native` where something else has lowered it.

use pilotlight_plant::{
    Capabilities, Command, CompletionMode, Next, Policy, Refusal, Sample, Start, Unsupported, View, Wants,
};

use crate::clock::Clock;
use crate::drives::Drives;
use crate::spread::spread;

/// The name of the one that saves nothing.
pub const NATIVE: &str = "native";
/// The name of the one that saves with drives alone.
pub const SSD_APST: &str = "ssd-apst";

/// The policy.
#[derive(Debug, Default)]
pub struct Native {
    /// Whether it is `ssd-apst`.
    frees_drives: bool,
    clocks: Vec<Clock>,
    drives: Drives,
    refused: u64,
}

impl Native {
    /// One whose drives may enter all their idle states.
    #[must_use]
    pub fn with_drives() -> Self {
        Self { frees_drives: true, ..Self::default() }
    }

    fn free_drives(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        if self.frees_drives {
            self.drives.find(capabilities);
            self.drives.limit(now_ns, u64::MAX, out);
        }
    }
}

impl Policy for Native {
    fn name(&self) -> &'static str {
        if self.frees_drives { SSD_APST } else { NATIVE }
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        spread(start, CompletionMode::Poll, out);
        self.clocks = start.topology.cores().filter_map(|core| Clock::of(core, start.capabilities)).collect();
        for clock in &mut self.clocks {
            clock.set(start.now_ns, clock.highest_khz, out);
        }
        self.free_drives(start.now_ns, start.capabilities, out);
        Ok(Next::NEVER)
    }

    fn on_interval(&mut self, _sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        Next::NEVER
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.free_drives(now_ns, capabilities, out);
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.refused += 1;
        if let Command::Set { knob, .. } = *command {
            self.drives.on_refused(now_ns, knob, refusal);
        }
    }

    fn view(&self) -> View {
        vec![("commands refused", self.refused.to_string())]
    }
}
