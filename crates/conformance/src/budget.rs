//! A real policy under a budget, whose readings and refusals go to a board.

use pilotlight_plant::{Capabilities, Command, Goals, Next, Policy, Refusal, Sample, Start, Unsupported, Wants};
use pilotlight_policy::build;

use crate::script::{Board, Seen};

/// Samples in a row that have to keep the budget.
const KEPT: u32 = 5;

struct Observed {
    inner: Box<dyn Policy>,
    budget_uw: u64,
    board: Board,
    /// Whether the budget was exceeded, and for how many samples it has been kept since.
    exceeded: bool,
    kept: u32,
    has_set: bool,
}

/// The policy of this name at such intervals; the board is done once the server has exceeded the budget and then, after a
/// knob was set, kept it.
pub(crate) fn observed(name: &str, interval_ns: u64, budget_uw: u64) -> (Box<dyn Policy>, Board) {
    let interval = format!("{interval_ns}ns");
    let blind = format!("{}ns", 1_000 * interval_ns);
    let inner = build(name, &[("interval", &interval), ("blind_after", &blind)]).expect("a policy");
    let board = Board::default();
    let policy = Observed { inner, budget_uw, board: board.clone(), exceeded: false, kept: 0, has_set: false };
    (Box::new(policy), board)
}

impl Observed {
    fn note(&mut self, sample: &Sample<'_>, out: &[Command]) {
        self.has_set |= out.iter().any(|command| matches!(command, Command::Set { .. }));
        if let Some(uw) = sample.readings.first().and_then(|reading| reading.value) {
            self.exceeded |= uw > self.budget_uw;
            let keeps = self.has_set && self.exceeded && uw <= self.budget_uw;
            self.kept = if keeps { self.kept + 1 } else { 0 };
        }
        let mut log = self.board.log();
        let refused = log.refused.len();
        log.samples.push(Seen {
            now_ns: sample.now_ns,
            elapsed_ns: sample.elapsed_ns,
            cores: sample.cores.to_vec(),
            threads: sample.threads.to_vec(),
            readings: sample.readings.to_vec(),
            refused,
        });
        drop(log);
        if self.kept >= KEPT {
            self.board.finish();
        }
    }
}

impl Policy for Observed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn wants(&self) -> Wants {
        self.inner.wants()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.inner.start(start, out)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let next = self.inner.on_interval(sample, out);
        self.note(sample, out);
        next
    }

    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        self.inner.on_goals(now_ns, goals, out);
        self.has_set |= out.iter().any(|command| matches!(command, Command::Set { .. }));
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.inner.on_plant(now_ns, capabilities, out);
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.board.log().refused.push((*command, refusal));
        self.inner.on_refused(now_ns, command, refusal);
    }
}
