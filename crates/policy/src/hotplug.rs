//! CPU hotplug, where the operator allows it: cores that the inner policy does not use go offline once they sleep.
//!
//! A core is set online as soon as it is used again; until it is online, its reactor runs on the other cores. A core that refuses to go
//! offline is not tried again until the plant changes.

use pilotlight_plant::{Capabilities, Command, CoreId, CoreSample, CoreState, Kind, Knob, KnobId, Scope};

/// The hotplug knobs of a plant.
#[derive(Debug, Default)]
pub(crate) struct Hotplug(Vec<HotplugCore>);

#[derive(Debug)]
struct HotplugCore {
    knob: KnobId,
    id: CoreId,
    is_offline: bool,
    refused: bool,
}

impl Hotplug {
    /// Finds the knobs of a plant; cores that were offline stay recorded as offline.
    pub(crate) fn find(&mut self, capabilities: &Capabilities) {
        let before = std::mem::take(&mut self.0);
        let core = |(knob, found): (KnobId, &Knob)| {
            let Scope::Core(id) = found.scope else { return None };
            let is_offline = before.iter().any(|one| one.knob == knob && one.is_offline);
            found.values.lowest().map(|_| HotplugCore { knob, id, is_offline, refused: false })
        };
        self.0 = capabilities.knobs_of(Kind::Online).filter_map(core).collect();
    }

    /// Sets sleeping cores that are not in `visible` offline, and those in `visible` online.
    pub(crate) fn set(&mut self, visible: &[CoreId], cores: &[CoreSample], out: &mut Vec<Command>) {
        for core in &mut self.0 {
            let sleeps = cores.get(core.id.index()).is_some_and(|core| matches!(core.state, CoreState::Asleep(_)));
            let leaves = !visible.contains(&core.id) && (core.is_offline || sleeps && !core.refused);
            if leaves != core.is_offline {
                core.is_offline = leaves;
                out.push(Command::Set { knob: core.knob, value: u64::from(!leaves) });
            }
        }
    }

    /// Whether a knob is to be set as soon as its core sleeps.
    pub(crate) fn has_pending(&self, visible: &[CoreId]) -> bool {
        self.0.iter().any(|core| visible.contains(&core.id) == core.is_offline && !core.refused)
    }

    /// Records a refusal; whether the knob is one of these.
    pub(crate) fn on_refused(&mut self, knob: KnobId, value: u64) -> bool {
        let core = self.0.iter_mut().find(|core| core.knob == knob);
        core.map(|core| (core.is_offline, core.refused) = (value == 1, true)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, Depth, Values};

    use super::*;

    fn hotplug(cores: &[u16]) -> Hotplug {
        let knob = |&core: &u16| Knob {
            scope: Scope::Core(CoreId(core)),
            kind: Kind::Online,
            values: Values::List(vec![0, 1]),
            initial: 1,
            caller: Cost::Assumed(0),
            effect: Cost::Assumed(0),
        };
        let capabilities = Capabilities { knobs: cores.iter().map(knob).collect(), ..Capabilities::default() };
        let mut hotplug = Hotplug::default();
        hotplug.find(&capabilities);
        hotplug
    }

    fn set(hotplug: &mut Hotplug, visible: &[u16], states: &[CoreState]) -> Vec<(u16, u64)> {
        let visible: Vec<CoreId> = visible.iter().copied().map(CoreId).collect();
        let cores: Vec<CoreSample> = states.iter().copied().map(CoreSample::new).collect();
        let mut out = Vec::new();
        hotplug.set(&visible, &cores, &mut out);
        let value = |command| match command {
            Command::Set { knob, value } => (knob.0, value),
            other => panic!("{other:?}"),
        };
        out.into_iter().map(value).collect()
    }

    #[test]
    fn a_sleeping_unused_core_goes_offline_and_returns_when_it_is_used() {
        use CoreState::Awake;
        let asleep = CoreState::Asleep(Depth::SoftwareWait);
        let mut hotplug = hotplug(&[1, 2]);
        assert_eq!(set(&mut hotplug, &[0, 1, 2], &[Awake, asleep, asleep]), [], "cores in use stay online");
        let (all, two) = ([0, 1, 2].map(CoreId), [0, 1].map(CoreId));
        assert!(hotplug.has_pending(&two) && !hotplug.has_pending(&all));
        assert_eq!(set(&mut hotplug, &[0, 1], &[Awake; 3]), [], "the core is still awake");
        assert_eq!(set(&mut hotplug, &[0, 1], &[Awake, Awake, asleep]), [(1, 0)]);
        assert_eq!(set(&mut hotplug, &[0, 1], &[Awake, Awake, asleep]), [], "once");
        assert!(!hotplug.has_pending(&two) && hotplug.has_pending(&all));
        assert_eq!(set(&mut hotplug, &[0, 1, 2], &[Awake, Awake, asleep]), [(1, 1)]);
    }

    #[test]
    fn a_core_that_refuses_to_go_offline_is_not_tried_again() {
        use CoreState::Awake;
        let asleep = CoreState::Asleep(Depth::SoftwareWait);
        let mut hotplug = hotplug(&[1]);
        assert_eq!(set(&mut hotplug, &[0], &[Awake, asleep]), [(0, 0)]);
        assert!(hotplug.on_refused(KnobId(0), 0) && !hotplug.on_refused(KnobId(7), 0));
        assert_eq!(set(&mut hotplug, &[0], &[Awake, asleep]), []);
        assert_eq!(set(&mut hotplug, &[0, 1], &[Awake, asleep]), [], "it is still online");
    }
}
