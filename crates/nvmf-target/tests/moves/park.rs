//! A policy that moves all I/O threads to the main core and lets the workers sleep, at alternating depths, and then moves them back.

use pilotlight_plant::{
    Command, CoreId, Next, Policy, Refusal, Sample, SleepGoal, Start, ThreadId, Unsupported, Wants,
};

/// Time between two changes.
const EVERY_NS: u64 = 2_000_000;

/// The policy. It needs a main core and workers.
#[derive(Default)]
pub(crate) struct ParkWorkers {
    rounds: u64,
    workers: u16,
}

impl ParkWorkers {
    fn go(&mut self, threads: usize, out: &mut Vec<Command>) {
        self.rounds += 1;
        let workers = (1..=self.workers).map(CoreId);
        let threads = (0..threads as u16).map(ThreadId);
        if self.rounds.is_multiple_of(2) {
            out.extend(workers.map(|core| Command::Wake { core }));
            let workers = self.workers;
            out.extend(threads.map(|thread| Command::Move { thread, to: CoreId(1 + thread.0 % workers) }));
            return;
        }
        let goal = if self.rounds % 4 == 1 { SleepGoal::SHALLOWEST } else { SleepGoal::DEEPEST };
        out.extend(threads.map(|thread| Command::Move { thread, to: CoreId(0) }));
        out.extend(workers.map(|core| Command::Sleep { core, goal }));
    }
}

impl Policy for ParkWorkers {
    fn name(&self) -> &'static str {
        "park-workers"
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(EVERY_NS), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.workers = start.cores.len() as u16 - 1;
        self.go(start.homes.len(), out);
        Ok(Next::at(start.now_ns))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        self.go(sample.threads.len(), out);
        Next::at(sample.now_ns)
    }

    fn on_refused(&mut self, _now_ns: u64, command: &Command, refusal: Refusal) {
        assert_eq!(refusal, Refusal::Unknown, "{command:?}"); // I/O threads end with the server
    }
}
