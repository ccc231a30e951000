//! `native`: as `static`, and every core at its highest frequency (PACER V: "no power-saving strategies"); and `ssd-apst`: as `native`, but
//! drives may enter all their idle states (PACER III-B2, Table I).
//!
//! **Rule of `ssd-apst`.** The wake-up limit of drives is unlimited from the start on; each drive enters idle states autonomously
//! (autonomous power state transitions, APST). `native` leaves idle states unchanged. `static` sets no frequency, so it differs from
//! `native` on a machine whose frequency was lowered before.

use pilotlight_plant::{
    Capabilities, Command, CompletionMode, NEVER, Next, Policy, Refusal, Sample, Start, Unsupported, View, Wants,
};

use crate::core_frequency::CoreFrequency;
use crate::drives::Drives;
use crate::spread::spread;

/// The name of the variant without power saving.
pub const NATIVE: &str = "native";
/// The name of the variant with idle states of drives.
pub const SSD_APST: &str = "ssd-apst";

/// The policy.
#[derive(Debug, Default)]
pub struct Native {
    /// Whether it is `ssd-apst`.
    allows_idle_states: bool,
    frequencies: Vec<CoreFrequency>,
    drives: Drives,
    refused: u64,
}

impl Native {
    /// The variant whose drives may enter all their idle states.
    #[must_use]
    pub fn with_drives() -> Self {
        Self { allows_idle_states: true, ..Self::default() }
    }

    fn allow_idle_states(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        if self.allows_idle_states {
            self.drives.find(capabilities);
            self.drives.limit(now_ns, u64::MAX, out);
        }
    }
}

impl Policy for Native {
    fn name(&self) -> &'static str {
        if self.allows_idle_states { SSD_APST } else { NATIVE }
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        spread(start, CompletionMode::Poll, out);
        self.frequencies =
            start.topology.cores().filter_map(|core| CoreFrequency::find(core, start.capabilities)).collect();
        for frequency in &mut self.frequencies {
            frequency.set(start.now_ns, frequency.highest_khz, out);
        }
        self.allow_idle_states(start.now_ns, start.capabilities, out);
        Ok(Next::with_default_timeout(NEVER))
    }

    fn on_interval(&mut self, _sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        Next::with_default_timeout(NEVER)
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.allow_idle_states(now_ns, capabilities, out);
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
