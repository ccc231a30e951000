//! What the policy believes of the plant between two samples: where I/O threads live and which cores are awake.
//!
//! It follows the policy's own commands as if each had taken effect at once, takes back what the plant refuses, and is
//! put right by every sample.

use pilotlight_plant::{Command, CoreId, CoreSample, CoreState, ThreadId, Topology};

/// The plant, as far as is known.
#[derive(Clone, Debug)]
pub struct Belief {
    topology: Topology,
    /// Where each I/O thread lives, and where it lived before its last move.
    homes: Vec<(CoreId, CoreId)>,
    awake: Vec<bool>,
    /// I/O threads on each core.
    owned: Vec<u32>,
}

impl Belief {
    /// A plant in this state.
    #[must_use]
    pub fn new(topology: &Topology, cores: &[CoreSample], homes: impl Iterator<Item = CoreId>) -> Self {
        let homes: Vec<_> = homes.map(|home| (home, home)).collect();
        let mut belief = Self {
            topology: topology.clone(),
            awake: vec![true; topology.len()],
            owned: vec![0; topology.len()],
            homes,
        };
        for &(home, _) in &belief.homes {
            belief.owned[home.index()] += 1;
        }
        belief.see_cores(cores);
        belief
    }

    /// What a sample says.
    pub fn see(&mut self, cores: &[CoreSample], homes: impl Iterator<Item = CoreId>) {
        for (thread, home) in homes.enumerate().take(self.homes.len()) {
            self.move_to(ThreadId(thread as u16), home);
        }
        self.see_cores(cores);
    }

    fn see_cores(&mut self, cores: &[CoreSample]) {
        for (awake, core) in self.awake.iter_mut().zip(cores) {
            *awake = core.state == CoreState::Awake;
        }
    }

    /// What the policy has commanded.
    pub fn follow(&mut self, command: &Command) {
        match *command {
            Command::Move { thread, to } => {
                self.move_to(thread, to);
                self.awake[to.index()] = true;
            }
            Command::Sleep { core, .. } => self.awake[core.index()] = false,
            Command::Wake { core } => self.awake[core.index()] = true,
            Command::Completions { .. } | Command::Set { .. } => {}
        }
    }

    /// What the plant did not do.
    pub fn take_back(&mut self, command: &Command) {
        match *command {
            Command::Move { thread, to } => {
                if let Some(&(home, before)) = self.homes.get(thread.index())
                    && home == to
                {
                    self.move_to(thread, before);
                }
            }
            Command::Sleep { core, .. } => self.set_awake(core, true),
            Command::Wake { core } => self.set_awake(core, false),
            Command::Completions { .. } | Command::Set { .. } => {}
        }
    }

    fn set_awake(&mut self, core: CoreId, awake: bool) {
        if let Some(place) = self.awake.get_mut(core.index()) {
            *place = awake;
        }
    }

    fn move_to(&mut self, thread: ThreadId, to: CoreId) {
        let (home, before) = &mut self.homes[thread.index()];
        if *home != to {
            self.owned[home.index()] -= 1;
            self.owned[to.index()] += 1;
            (*home, *before) = (to, *home);
        }
    }

    /// The cores.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Where a thread lives.
    #[must_use]
    pub fn home(&self, thread: ThreadId) -> CoreId {
        self.homes[thread.index()].0
    }

    /// Whether a core polls.
    #[must_use]
    pub fn is_awake(&self, core: CoreId) -> bool {
        self.awake[core.index()]
    }

    /// I/O threads on a core.
    #[must_use]
    pub fn owned(&self, core: CoreId) -> u32 {
        self.owned[core.index()]
    }

    /// Cores that poll.
    #[must_use]
    pub fn cores_awake(&self) -> usize {
        self.awake.iter().filter(|&&awake| awake).count()
    }

    /// Whether every I/O thread is on the main core and every other core asleep.
    #[must_use]
    pub fn rests(&self) -> bool {
        let main = self.topology.main();
        self.homes.iter().all(|&(home, _)| home == main) && self.topology.workers().all(|core| !self.is_awake(core))
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Depth, SleepGoal};

    use super::*;

    fn belief() -> Belief {
        let topology = Topology::flat(3).unwrap();
        let asleep = CoreState::Asleep(Depth::MonitorWait);
        let cores = [CoreState::Awake, CoreState::Awake, asleep].map(CoreSample::new);
        Belief::new(&topology, &cores, [CoreId(0), CoreId(1)].into_iter())
    }

    #[test]
    fn commands_are_followed_and_refused_ones_taken_back() {
        let mut belief = belief();
        let order = Command::Move { thread: ThreadId(1), to: CoreId(2) };
        belief.follow(&order);
        assert_eq!((belief.home(ThreadId(1)), belief.owned(CoreId(1)), belief.owned(CoreId(2))), (CoreId(2), 0, 1));
        assert!(belief.is_awake(CoreId(2)));
        belief.take_back(&order);
        belief.take_back(&Command::Wake { core: CoreId(2) });
        assert_eq!((belief.home(ThreadId(1)), belief.owned(CoreId(1)), belief.owned(CoreId(2))), (CoreId(1), 1, 0));
        assert!(!belief.is_awake(CoreId(2)));
        let order = Command::Sleep { core: CoreId(1), goal: SleepGoal::SHALLOWEST };
        belief.follow(&order);
        assert!(!belief.is_awake(CoreId(1)));
        belief.take_back(&order);
        assert!(belief.is_awake(CoreId(1)));
    }

    #[test]
    fn a_move_that_another_has_overtaken_is_not_taken_back() {
        let mut belief = belief();
        let [first, second] = [2, 0].map(|core| Command::Move { thread: ThreadId(1), to: CoreId(core) });
        belief.follow(&first);
        belief.follow(&second);
        belief.take_back(&first);
        assert_eq!(belief.home(ThreadId(1)), CoreId(0));
    }
}
