//! A real policy under a budget, whose readings and refusals go to a board.

use pilotlight_plant::{
    Capabilities, Command, Goals, Kind, Next, Policy, Refusal, Sample, Start, Unsupported, Values, Wants,
};
use pilotlight_policy::build;

use crate::script::{Board, Seen};

/// Samples in a row that have to keep the budget.
const KEPT: u32 = 5;

struct Observed {
    name: &'static str,
    interval_ns: u64,
    inner: Box<dyn Policy>,
    budget_uw: u64,
    board: Board,
    /// Whether the budget was exceeded, and for how many samples it has been kept since.
    exceeded: bool,
    kept: u32,
    has_set: bool,
}

/// The policy of this name at such intervals, around `static`; the board is done once the server has exceeded the budget and then,
/// after a knob was set or a core sent to sleep, kept it.
pub(crate) fn observed(name: &'static str, interval_ns: u64, budget_uw: u64) -> (Box<dyn Policy>, Board) {
    let inner = build(name, &[]).expect("a policy");
    let board = Board::default();
    let (exceeded, kept, has_set) = (false, 0, false);
    let policy = Observed { name, interval_ns, inner, budget_uw, board: board.clone(), exceeded, kept, has_set };
    (Box::new(policy), board)
}

/// A profile of a plant for `pass`: its lowest and its highest configuration, which draw a fourth and half of the budget.
fn profile(capabilities: &Capabilities, cores: usize, budget_uw: u64) -> String {
    let row = |of: fn(&Values) -> Option<u64>, cores: usize, power_uw: u64, interval: f64| {
        let sum = |kind| capabilities.knobs_of(kind).filter_map(|(_, knob)| of(&knob.values)).sum::<u64>();
        let (quota_ppm, limit_uw) = (sum(Kind::QuotaPpm), sum(Kind::LimitUw));
        format!(
            "{{ power_uw = {power_uw}, cores = {cores}, quota_ppm = {quota_ppm}, limit_uw = {limit_uw}, p99_interval = \
             {interval:.1} }}"
        )
    };
    let rows = [row(Values::lowest, 1, budget_uw / 4, 2.0), row(Values::highest, cores, budget_uw / 2, 1.0)].join(", ");
    format!(
        "name = \"plant\"\ncpu.rows = [{rows}]\nothers.most_uw = {}\n[ssd]\ndrives = 1\nidle_uw = 0\nread_uw = 1\n\
         read_bytes_per_s = 1\nwritten_uw = 1\nwritten_bytes_per_s = 1\nfloor_bytes_per_s = 1\n",
        budget_uw / 2
    )
}

impl Observed {
    fn note(&mut self, sample: &Sample<'_>, out: &[Command]) {
        self.has_set |= out.iter().any(|command| matches!(command, Command::Set { .. } | Command::Sleep { .. }));
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
        self.name
    }

    fn wants(&self) -> Wants {
        self.inner.wants()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let [interval, blind] = [1, 1_000].map(|many| format!("{}ns", many * self.interval_ns));
        let mut settings = vec![("interval", &interval[..]), ("stale_after", &blind), ("inner", "static")];
        let profile = profile(start.capabilities, start.cores.len(), self.budget_uw);
        if self.name == "pass" {
            settings.extend([("sample_interval", &interval[..]), ("start", "full"), ("profile", &profile)]);
        }
        self.inner = build(self.name, &settings).expect("a policy");
        self.inner.start(start, out)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let next = self.inner.on_interval(sample, out);
        self.note(sample, out);
        next
    }

    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        self.inner.on_goals(now_ns, goals, out);
        self.has_set |= out.iter().any(|command| matches!(command, Command::Set { .. } | Command::Sleep { .. }));
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        self.inner.on_plant(now_ns, capabilities, out);
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.board.log().refused.push((*command, refusal));
        self.inner.on_refused(now_ns, command, refusal);
    }
}
