//! `static`: every core polls, I/O threads are spread evenly and stay (SPDK's default; SANDMAN section 3.1).

use pilotlight_plant::{Command, Completions, NEVER, Policy, Refusal, Sample, Start, Tick, Unsupported, View, Wants};

use crate::spread::spread;

/// Static polling.
#[derive(Clone, Copy, Debug, Default)]
pub struct Static;

impl Policy for Static {
    fn name(&self) -> &'static str {
        "static"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<u64, Unsupported> {
        spread(start, Completions::Poll, out);
        Ok(NEVER)
    }

    fn on_tick(&mut self, _tick: &Tick<'_>, _out: &mut Vec<Command>) -> u64 {
        NEVER
    }

    fn on_interval(&mut self, _sample: &Sample<'_>, _out: &mut Vec<Command>) -> u64 {
        NEVER
    }

    fn on_refused(&mut self, _now_ns: u64, _command: &Command, _refusal: Refusal) {}

    fn on_resume(&mut self, _now_ns: u64) {}

    fn view(&self) -> View {
        View::new()
    }
}
