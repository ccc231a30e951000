//! `static`: every core polls; I/O threads are spread evenly and stay (SPDK's default; SANDMAN section 3.1).

use pilotlight_plant::{Command, CompletionMode, Next, Policy, Start, Unsupported, Wants};

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

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        spread(start, CompletionMode::Poll, out);
        Ok(Next::NEVER)
    }
}
