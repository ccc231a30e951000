//! State of the plant between two samples: homes of I/O threads and cores that are awake.
//!
//! It applies the policy's own commands as if each took effect at once, reverts the refused ones, and is corrected by every sample.

use pilotlight_plant::{Command, CoreId, CoreSample, CoreState, ThreadId, Topology};

/// The estimated state of the plant.
#[derive(Clone, Debug)]
pub struct PlantState {
    topology: Topology,
    /// Home of each I/O thread, and its home before the last move.
    homes: Vec<(CoreId, CoreId)>,
    awake: Vec<bool>,
    /// I/O threads on each core.
    owned: Vec<u32>,
}

impl PlantState {
    /// With this initial state.
    #[must_use]
    pub fn new(topology: &Topology, cores: &[CoreSample], homes: impl Iterator<Item = CoreId>) -> Self {
        let homes: Vec<_> = homes.map(|home| (home, home)).collect();
        let mut plant_state = Self {
            topology: topology.clone(),
            awake: vec![true; topology.len()],
            owned: vec![0; topology.len()],
            homes,
        };
        for &(home, _) in &plant_state.homes {
            plant_state.owned[home.index()] += 1;
        }
        plant_state.update_cores(cores);
        plant_state
    }

    /// Corrects the state by a sample.
    pub fn update(&mut self, cores: &[CoreSample], homes: impl Iterator<Item = CoreId>) {
        for (thread, home) in homes.enumerate().take(self.homes.len()) {
            self.move_to(ThreadId(thread as u16), home);
        }
        self.update_cores(cores);
    }

    fn update_cores(&mut self, cores: &[CoreSample]) {
        for (awake, core) in self.awake.iter_mut().zip(cores) {
            *awake = core.state == CoreState::Awake;
        }
    }

    /// Applies a command of the policy.
    pub fn apply(&mut self, command: &Command) {
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

    /// Reverts a command that the plant refused.
    pub fn revert(&mut self, command: &Command) {
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

    /// Home of a thread.
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

    /// The I/O threads on a core.
    pub fn threads_on(&self, core: CoreId) -> impl Iterator<Item = ThreadId> {
        let homes = self.homes.iter().enumerate();
        homes.filter(move |(_, home)| home.0 == core).map(|(thread, _)| ThreadId(thread as u16))
    }

    /// Cores that poll.
    #[must_use]
    pub fn cores_awake(&self) -> usize {
        self.awake.iter().filter(|&&awake| awake).count()
    }

    /// Whether every I/O thread is on the main core and every other core asleep.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let main = self.topology.main();
        self.homes.iter().all(|&(home, _)| home == main) && self.topology.workers().all(|core| !self.is_awake(core))
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Depth, SleepGoal};

    use super::*;

    fn plant_state() -> PlantState {
        let topology = Topology::flat(3).unwrap();
        let asleep = CoreState::Asleep(Depth::MonitorWait);
        let cores = [CoreState::Awake, CoreState::Awake, asleep].map(CoreSample::new);
        PlantState::new(&topology, &cores, [CoreId(0), CoreId(1)].into_iter())
    }

    #[test]
    fn commands_are_applied_and_refused_ones_reverted() {
        let mut plant_state = plant_state();
        let command = Command::Move { thread: ThreadId(1), to: CoreId(2) };
        plant_state.apply(&command);
        assert_eq!(
            (plant_state.home(ThreadId(1)), plant_state.owned(CoreId(1)), plant_state.owned(CoreId(2))),
            (CoreId(2), 0, 1)
        );
        assert!(plant_state.is_awake(CoreId(2)));
        plant_state.revert(&command);
        plant_state.revert(&Command::Wake { core: CoreId(2) });
        assert_eq!(
            (plant_state.home(ThreadId(1)), plant_state.owned(CoreId(1)), plant_state.owned(CoreId(2))),
            (CoreId(1), 1, 0)
        );
        assert!(!plant_state.is_awake(CoreId(2)));
        let command = Command::Sleep { core: CoreId(1), goal: SleepGoal::SHALLOWEST };
        plant_state.apply(&command);
        assert!(!plant_state.is_awake(CoreId(1)));
        plant_state.revert(&command);
        assert!(plant_state.is_awake(CoreId(1)));
    }

    #[test]
    fn a_move_followed_by_another_is_not_reverted() {
        let mut plant_state = plant_state();
        let [first, second] = [2, 0].map(|core| Command::Move { thread: ThreadId(1), to: CoreId(core) });
        plant_state.apply(&first);
        plant_state.apply(&second);
        plant_state.revert(&first);
        assert_eq!(plant_state.home(ThreadId(1)), CoreId(0));
    }
}
