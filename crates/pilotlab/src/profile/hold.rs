//! A policy that holds a number of cores and knobs, and decides nothing: the configuration that is measured.

use pilotlight_plant::{
    Command, Completions, CoreId, CoreState, KnobId, NEVER, Next, Policy, Sample, SleepGoal, Start, ThreadId,
    Unsupported, Wants,
};

/// How often it looks whether the other cores sleep.
const INTERVAL_NS: u64 = 10_000_000;

/// The main core and the first of the workers poll, I/O threads are spread evenly over them, and all other cores sleep as deep as they can, as
/// under `pass`.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    cores: u16,
    knobs: Vec<(KnobId, u64)>,
    /// Cores that are to sleep.
    left: Vec<CoreId>,
}

impl Hold {
    pub(super) fn new(cores: u16, knobs: Vec<(KnobId, u64)>) -> Self {
        Self { cores, knobs, left: Vec::new() }
    }
}

impl Policy for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(INTERVAL_NS), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let main = std::iter::once(start.topology.main());
        let mut polling: Vec<CoreId> = main.chain(start.topology.workers()).collect();
        self.left = polling.split_off(usize::from(self.cores.max(1)).min(polling.len()));
        let asleep = |core: &&CoreId| start.cores[core.index()].state != CoreState::Awake;
        out.extend(polling.iter().filter(asleep).map(|&core| Command::Wake { core }));
        for (at, &home) in start.homes.iter().enumerate() {
            let (thread, to) = (ThreadId(at as u16), polling[at % polling.len()]);
            out.push(Command::Completions { thread, how: Completions::Poll });
            if home != to {
                out.push(Command::Move { thread, to });
            }
        }
        out.extend(self.knobs.iter().map(|&(knob, value)| Command::Set { knob, value }));
        out.extend(self.left.iter().map(|&core| Command::Sleep { core, goal: SleepGoal::DEEPEST }));
        Ok(Next::at(0))
    }

    /// A core that an I/O thread was still on its way to has refused to sleep.
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let is_awake = |core: &&CoreId| sample.cores[core.index()].state == CoreState::Awake;
        let before = out.len();
        let again = self.left.iter().filter(is_awake);
        out.extend(again.map(|&core| Command::Sleep { core, goal: SleepGoal::DEEPEST }));
        Next::at(if out.len() > before { 0 } else { NEVER })
    }
}
