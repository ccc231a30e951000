//! Power states that a controller shows to its host, where the server is told to (Base 8.15): three in which it works and two
//! in which it rests, so that hosts and tools that set power states have something to set.
//!
//! **What it is not.** The machine below draws what it draws: no state changes how fast requests are served.
//!
//! **Rules.** A state that is set is in force at once. In a state without I/O the controller returns to the state with I/O that
//! it was in last, as soon as an I/O command has come. Where the host lets it, it goes by itself from state to state when there
//! has been no I/O for as long as the host's table says. The controller has no clock: what has become due by now is looked up
//! whenever it is asked, and I/O counts as of the moment at which it is heard of, so a transition is late by at most that.

use pilotlight_nvme::Status;
use pilotlight_nvme::le::{U16, U32};
use pilotlight_nvme::power::{
    MAX_STATES, PowerManagement, PowerStateDescriptor, TABLE_LEN, TRANSITIONS_ON, Transition,
};

const NS_PER_MS: u64 = 1_000_000;
/// The greatest workload hint that is not reserved.
const LAST_HINT: u8 = 2;

/// Maximum power, its unit and whether it is a rest, latencies of entry and exit in microseconds: those of the drive of the
/// thesis on energy benchmarks (Figure 4.1, Samsung 980 Pro).
const STATES: [(u16, u8, u32, u32); 5] =
    [(849, 0, 0, 0), (448, 0, 0, 200), (318, 0, 0, 1_000), (400, REST, 2_000, 1_200), (50, REST, 500, 9_500)];
const REST: u8 = PowerStateDescriptor::SMALL_UNIT | PowerStateDescriptor::NON_OPERATIONAL;

/// Number of power states, less one, as Identify says it.
pub(super) const NPSS: u8 = STATES.len() as u8 - 1;

/// What Identify says of each state; of those that there are not, zeroes.
pub(super) fn descriptors() -> [PowerStateDescriptor; MAX_STATES] {
    let mut all = [PowerStateDescriptor::default(); MAX_STATES];
    for (rank, (to, (mp, flags, enlat, exlat))) in all.iter_mut().zip(STATES).enumerate() {
        let rank = rank as u8;
        *to = PowerStateDescriptor {
            mp: U16::new(mp),
            flags,
            enlat: U32::new(enlat),
            exlat: U32::new(exlat),
            rrt: rank,
            rrl: rank,
            rwt: rank,
            rwl: rank,
            ..PowerStateDescriptor::default()
        };
    }
    all
}

fn is_operational(state: u8) -> bool {
    STATES.get(usize::from(state)).is_some_and(|(_, flags, ..)| flags & PowerStateDescriptor::NON_OPERATIONAL == 0)
}

/// A controller's power state.
#[derive(Debug)]
pub(super) struct Power {
    value: PowerManagement,
    /// Where I/O leads back to.
    operational: u8,
    on: bool,
    table: [Transition; MAX_STATES],
    now_ns: u64,
    /// Since when it is in this state and without I/O.
    idle_since_ns: u64,
}

impl Power {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            value: PowerManagement::default(),
            operational: 0,
            on: false,
            table: [Transition::default(); MAX_STATES],
            now_ns,
            idle_since_ns: now_ns,
        }
    }

    /// It is `now_ns`: the transitions that are due have been made.
    pub(super) fn settle(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        // A table can lead in a circle; whoever follows it this far is somewhere on it.
        for _ in 0..MAX_STATES {
            let next = self.table[usize::from(self.value.state)];
            let due_ns = self.idle_since_ns.saturating_add(u64::from(next.idle_ms) * NS_PER_MS);
            if !self.on || next.idle_ms == 0 || next.to == self.value.state || due_ns > self.now_ns {
                return;
            }
            self.value.state = next.to;
            self.idle_since_ns = due_ns;
        }
    }

    /// I/O has come since it was last looked.
    pub(super) fn io(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.idle_since_ns = self.now_ns;
        self.value.state = self.operational;
    }

    /// The state that it is in.
    pub(super) fn state(&self) -> u8 {
        self.value.state
    }

    /// Power Management as it is in force.
    pub(super) fn value(&self) -> u32 {
        self.value.encode()
    }

    /// Sets Power Management.
    pub(super) fn set(&mut self, value: u32) -> Result<(), Status> {
        let value = PowerManagement::decode(value);
        if value.state > NPSS || value.hint > LAST_HINT {
            return Err(Status::INVALID_FIELD);
        }
        self.value = value;
        self.idle_since_ns = self.now_ns;
        if is_operational(value.state) {
            self.operational = value.state;
        }
        Ok(())
    }

    /// Whether it makes transitions by itself, and the table of them.
    pub(super) fn transitions(&self, out: &mut [u8]) -> u32 {
        for (to, transition) in out.chunks_exact_mut(8).zip(&self.table) {
            to.copy_from_slice(&transition.encode());
        }
        u32::from(self.on) * TRANSITIONS_ON
    }

    /// Sets whether it does, and the table.
    pub(super) fn set_transitions(&mut self, value: u32, data: &[u8]) -> Result<(), Status> {
        if data.len() != TABLE_LEN {
            return Err(Status::SGL_LENGTH_INVALID);
        }
        let mut table = [Transition::default(); MAX_STATES];
        for (to, entry) in table.iter_mut().zip(data.as_chunks().0) {
            *to = Transition::decode(*entry);
            let leads_nowhere = to.to > NPSS || is_operational(to.to);
            if to.idle_ms > 0 && leads_nowhere {
                return Err(Status::INVALID_FIELD);
            }
        }
        self.table = table;
        self.on = value & TRANSITIONS_ON != 0;
        self.idle_since_ns = self.now_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = NS_PER_MS;

    fn state(power: &Power) -> u8 {
        PowerManagement::decode(power.value()).state
    }

    fn table(entries: &[(usize, u8, u32)]) -> Vec<u8> {
        let mut data = vec![0; TABLE_LEN];
        for &(from, to, idle_ms) in entries {
            data[8 * from..8 * from + 8].copy_from_slice(&Transition { to, idle_ms }.encode());
        }
        data
    }

    #[test]
    fn three_states_work_and_two_rest() {
        let all = descriptors();
        let operational: Vec<bool> =
            all[..=usize::from(NPSS)].iter().map(PowerStateDescriptor::is_operational).collect();
        assert_eq!(operational, [true, true, true, false, false]);
        let uw: Vec<u32> = all.iter().map(PowerStateDescriptor::max_uw).collect();
        assert_eq!(
            uw[..6],
            [8_490_000, 4_480_000, 3_180_000, 40_000, 5_000, 0],
            "descending, as the specification wants"
        );
        assert_eq!((all[3].enlat.get(), all[3].exlat.get(), all[4].rwl), (2_000, 1_200, 4));
    }

    #[test]
    fn io_leads_from_rest_to_where_it_worked_last() {
        let mut power = Power::new(0);
        power.io(1);
        assert_eq!(state(&power), 0);
        power.set(2 | 1 << 5).unwrap();
        power.set(3).unwrap();
        power.set(4).unwrap();
        power.settle(1_000 * MS);
        assert_eq!(state(&power), 4, "nothing moves by itself unless it is told to");
        power.io(1_001 * MS);
        assert_eq!(state(&power), 2);
        power.io(1_002 * MS);
        assert_eq!(state(&power), 2);
    }

    #[test]
    fn states_and_hints_that_there_are_not_are_refused_and_change_nothing() {
        let mut power = Power::new(0);
        power.set(1 | 2 << 5).unwrap();
        for value in [5, 31, 3 << 5, 7 << 5] {
            assert_eq!(power.set(value), Err(Status::INVALID_FIELD), "{value:#x}");
        }
        assert_eq!(power.value(), 1 | 2 << 5);
    }

    #[test]
    fn transitions_are_made_when_they_are_due() {
        let mut power = Power::new(0);
        let data = table(&[(0, 3, 100), (1, 3, 100), (2, 3, 100), (3, 4, 500)]);
        power.set_transitions(0, &data).unwrap();
        power.settle(10_000 * MS);
        assert_eq!(state(&power), 0, "the switch is off");
        power.set_transitions(1, &data).unwrap();
        for (ms, expected) in [(10_099, 0), (10_100, 3), (10_599, 3), (10_600, 4), (99_999, 4)] {
            power.settle(ms * MS);
            assert_eq!(state(&power), expected, "{ms} ms");
        }
        power.io(100_000 * MS);
        power.settle(100_099 * MS);
        assert_eq!(state(&power), 0);
        power.settle(200_000 * MS);
        assert_eq!(state(&power), 4, "all that became due meanwhile");
        let mut out = [0; TABLE_LEN];
        assert_eq!((power.transitions(&mut out), &out[..]), (1, &data[..]));
    }

    #[test]
    fn tables_that_lead_to_no_rest_are_refused_and_change_nothing() {
        let mut power = Power::new(0);
        power.set_transitions(1, &table(&[(0, 4, 7)])).unwrap();
        for entries in [[(0, 2, 100)], [(0, 5, 100)], [(31, 0, 1)]] {
            assert_eq!(power.set_transitions(0, &table(&entries)), Err(Status::INVALID_FIELD), "{entries:?}");
        }
        assert_eq!(power.set_transitions(0, &[0; 255]), Err(Status::SGL_LENGTH_INVALID));
        let mut out = [0; TABLE_LEN];
        assert_eq!((power.transitions(&mut out), &out[..]), (1, &table(&[(0, 4, 7)])[..]));
        power.set_transitions(1, &table(&[(0, 1, 0)])).unwrap();
    }

    #[test]
    fn a_table_that_leads_in_a_circle_ends() {
        let mut power = Power::new(0);
        power.set_transitions(1, &table(&[(0, 3, 1), (3, 4, 1), (4, 3, 1)])).unwrap();
        power.settle(u64::MAX);
        assert!(matches!(state(&power), 3 | 4));
    }
}
