//! A policy that moves every I/O thread back and forth between the workers. The previous core sleeps.

use pilotlight_plant::{
    Command, CompletionMode, CoreId, Next, Policy, Refusal, Sample, SleepGoal, Start, ThreadId, Tick, Unsupported,
    View, Wants,
};

/// Time between two rounds of moves.
const EVERY_NS: u64 = 200_000;
/// Rounds after which the completion mode of I/O threads changes.
const ROUNDS: u64 = 500;

/// The policy. It needs a main core and two workers.
pub(crate) struct Shuttle {
    rounds: u64,
}

impl Shuttle {
    pub(crate) fn new() -> Self {
        Self { rounds: 0 }
    }

    fn go(&mut self, threads: usize, out: &mut Vec<Command>) {
        self.rounds += 1;
        let (from, to) = if self.rounds.is_multiple_of(2) { (CoreId(1), CoreId(2)) } else { (CoreId(2), CoreId(1)) };
        out.push(Command::Wake { core: to });
        for thread in (0..threads as u16).map(ThreadId) {
            if self.rounds.is_multiple_of(ROUNDS) {
                let interrupts = self.rounds / ROUNDS % 2 == 1;
                let how = if interrupts { CompletionMode::Interrupt } else { CompletionMode::Poll };
                out.push(Command::Completions { thread, mode: how });
            }
            out.push(Command::Move { thread, to });
        }
        out.push(Command::Sleep { core: from, goal: SleepGoal::SHALLOWEST });
    }
}

impl Policy for Shuttle {
    fn name(&self) -> &'static str {
        "shuttle"
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(EVERY_NS), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.go(start.homes.len(), out);
        Ok(Next::at(start.now_ns))
    }

    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::at(tick.now_ns)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        self.go(sample.threads.len(), out);
        Next::at(sample.now_ns)
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, refusal: Refusal) {
        // I/O threads end with the server.
        assert_eq!(refusal, Refusal::Unknown, "{command:?}");
    }

    fn view(&self) -> View {
        vec![("rounds", self.rounds.to_string())]
    }
}
