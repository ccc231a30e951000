//! Cores that leave the system (CPU hotplug), where the operator allows it: those that the inner policy does not see and that sleep.
//!
//! A core comes back as soon as it is seen again; until it is there, its reactor runs on the others. A core that the plant refuses to
//! take out is not tried again until the plant changes.

use pilotlight_plant::{Capabilities, Command, CoreId, CoreSample, CoreState, Kind, Knob, KnobId, Scope};

/// The knobs of cores that can leave.
#[derive(Debug, Default)]
pub(crate) struct Switches(Vec<Switch>);

#[derive(Debug)]
struct Switch {
    knob: KnobId,
    core: CoreId,
    is_out: bool,
    refused: bool,
}

impl Switches {
    /// Those of a plant; what was out before still is.
    pub(crate) fn find(&mut self, capabilities: &Capabilities) {
        let before = std::mem::take(&mut self.0);
        let switch = |(knob, found): (KnobId, &Knob)| {
            let Scope::Core(core) = found.scope else { return None };
            let is_out = before.iter().any(|one| one.knob == knob && one.is_out);
            found.values.lowest().map(|_| Switch { knob, core, is_out, refused: false })
        };
        self.0 = capabilities.knobs_of(Kind::Online).filter_map(switch).collect();
    }

    /// Takes out cores that sleep and are not among these, and brings back those that are.
    pub(crate) fn set(&mut self, shown: &[CoreId], cores: &[CoreSample], out: &mut Vec<Command>) {
        for switch in &mut self.0 {
            let sleeps = cores.get(switch.core.index()).is_some_and(|core| matches!(core.state, CoreState::Asleep(_)));
            let leaves = !shown.contains(&switch.core) && (switch.is_out || sleeps && !switch.refused);
            if leaves != switch.is_out {
                switch.is_out = leaves;
                out.push(Command::Set { knob: switch.knob, value: u64::from(!leaves) });
            }
        }
    }

    /// Whether one is to be set as soon as its core sleeps.
    pub(crate) fn are_due(&self, shown: &[CoreId]) -> bool {
        self.0.iter().any(|switch| shown.contains(&switch.core) == switch.is_out && !switch.refused)
    }

    /// Whether the knob is one of these; its core is where it was.
    pub(crate) fn on_refused(&mut self, knob: KnobId, value: u64) -> bool {
        let switch = self.0.iter_mut().find(|switch| switch.knob == knob);
        switch.map(|switch| (switch.is_out, switch.refused) = (value == 1, true)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, Depth, Values};

    use super::*;

    fn switches(cores: &[u16]) -> Switches {
        let knob = |&core: &u16| Knob {
            scope: Scope::Core(CoreId(core)),
            kind: Kind::Online,
            values: Values::List(vec![0, 1]),
            initial: 1,
            caller: Cost::Assumed(0),
            effect: Cost::Assumed(0),
        };
        let capabilities = Capabilities { knobs: cores.iter().map(knob).collect(), ..Capabilities::default() };
        let mut switches = Switches::default();
        switches.find(&capabilities);
        switches
    }

    fn set(switches: &mut Switches, shown: &[u16], states: &[CoreState]) -> Vec<(u16, u64)> {
        let shown: Vec<CoreId> = shown.iter().copied().map(CoreId).collect();
        let cores: Vec<CoreSample> = states.iter().copied().map(CoreSample::new).collect();
        let mut out = Vec::new();
        switches.set(&shown, &cores, &mut out);
        let value = |command| match command {
            Command::Set { knob, value } => (knob.0, value),
            other => panic!("{other:?}"),
        };
        out.into_iter().map(value).collect()
    }

    #[test]
    fn a_core_leaves_when_it_sleeps_and_comes_back_when_it_is_seen() {
        use CoreState::Awake;
        let asleep = CoreState::Asleep(Depth::SoftwareWait);
        let mut switches = switches(&[1, 2]);
        assert_eq!(
            set(&mut switches, &[0, 1, 2], &[Awake, asleep, asleep]),
            [],
            "cores that are used sleep as the policy says"
        );
        let (all, two) = ([0, 1, 2].map(CoreId), [0, 1].map(CoreId));
        assert!(switches.are_due(&two) && !switches.are_due(&all));
        assert_eq!(set(&mut switches, &[0, 1], &[Awake; 3]), [], "it is still awake");
        assert_eq!(set(&mut switches, &[0, 1], &[Awake, Awake, asleep]), [(1, 0)]);
        assert_eq!(set(&mut switches, &[0, 1], &[Awake, Awake, asleep]), [], "once");
        assert!(!switches.are_due(&two) && switches.are_due(&all));
        assert_eq!(set(&mut switches, &[0, 1, 2], &[Awake, Awake, asleep]), [(1, 1)]);
    }

    #[test]
    fn a_core_that_is_refused_stays_and_is_not_tried_again() {
        use CoreState::Awake;
        let asleep = CoreState::Asleep(Depth::SoftwareWait);
        let mut switches = switches(&[1]);
        assert_eq!(set(&mut switches, &[0], &[Awake, asleep]), [(0, 0)]);
        assert!(switches.on_refused(KnobId(0), 0) && !switches.on_refused(KnobId(7), 0));
        assert_eq!(set(&mut switches, &[0], &[Awake, asleep]), []);
        assert_eq!(set(&mut switches, &[0, 1], &[Awake, asleep]), [], "it has not left");
    }
}
