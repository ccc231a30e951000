//! Power states of a controller, if configured (Base 8.15): three operational and two non-operational ones, for testing
//! hosts and tools that set power states.
//!
//! The states affect neither power nor performance.
//!
//! A set state applies at once. An I/O command in a non-operational state returns the controller to its last operational
//! state. With autonomous transitions enabled, the host's table gives the idle time after which a state changes. The
//! controller has no clock: due transitions are computed on each access, and I/O counts when it is reported.

use pilotlight_nvme::Status;
use pilotlight_nvme::le::{U16, U32};
use pilotlight_nvme::power::{
    MAX_STATES, PowerManagement, PowerStateDescriptor, TABLE_LEN, TRANSITIONS_ON, Transition,
};

const NS_PER_MS: u64 = 1_000_000;
/// The highest workload hint that is not reserved.
const LAST_HINT: u8 = 2;

/// Maximum power, flags, entry and exit latency in microseconds of a Samsung 980 Pro (thesis on energy benchmarks, Figure
/// 4.1).
const STATES: [(u16, u8, u32, u32); 5] = [
    (849, 0, 0, 0),
    (448, 0, 0, 200),
    (318, 0, 0, 1_000),
    (400, NON_OPERATIONAL, 2_000, 1_200),
    (50, NON_OPERATIONAL, 500, 9_500),
];
const NON_OPERATIONAL: u8 = PowerStateDescriptor::SMALL_UNIT | PowerStateDescriptor::NON_OPERATIONAL;

/// NPSS: number of power states, 0's based.
pub(super) const NPSS: u8 = STATES.len() as u8 - 1;

/// The power state descriptors; zeroes for absent states.
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
    /// The state after I/O.
    operational: u8,
    on: bool,
    table: [Transition; MAX_STATES],
    now_ns: u64,
    /// Start of the idle time in this state.
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

    /// Performs the transitions due at `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        // A table can be cyclic; MAX_STATES steps end in the cycle.
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

    /// Records I/O.
    pub(super) fn io(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.idle_since_ns = self.now_ns;
        self.value.state = self.operational;
    }

    /// The current state.
    pub(super) fn state(&self) -> u8 {
        self.value.state
    }

    /// The value of the Power Management feature.
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

    /// Gets the autonomous transition feature and its table.
    pub(super) fn transitions(&self, out: &mut [u8]) -> u32 {
        for (to, transition) in out.chunks_exact_mut(8).zip(&self.table) {
            to.copy_from_slice(&transition.encode());
        }
        u32::from(self.on) * TRANSITIONS_ON
    }

    /// Sets the autonomous transition feature and its table.
    pub(super) fn set_transitions(&mut self, value: u32, data: &[u8]) -> Result<(), Status> {
        if data.len() != TABLE_LEN {
            return Err(Status::SGL_LENGTH_INVALID);
        }
        let mut table = [Transition::default(); MAX_STATES];
        for (to, entry) in table.iter_mut().zip(data.as_chunks().0) {
            *to = Transition::decode(*entry);
            let is_invalid = to.to > NPSS || is_operational(to.to);
            if to.idle_ms > 0 && is_invalid {
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
    fn three_states_are_operational() {
        let all = descriptors();
        let operational: Vec<bool> =
            all[..=usize::from(NPSS)].iter().map(PowerStateDescriptor::is_operational).collect();
        assert_eq!(operational, [true, true, true, false, false]);
        let uw: Vec<u32> = all.iter().map(PowerStateDescriptor::max_uw).collect();
        assert_eq!(uw[..6], [8_490_000, 4_480_000, 3_180_000, 40_000, 5_000, 0], "in descending order");
        assert_eq!((all[3].enlat.get(), all[3].exlat.get(), all[4].rwl), (2_000, 1_200, 4));
    }

    #[test]
    fn io_returns_to_the_last_operational_state() {
        let mut power = Power::new(0);
        power.io(1);
        assert_eq!(state(&power), 0);
        power.set(2 | 1 << 5).unwrap();
        power.set(3).unwrap();
        power.set(4).unwrap();
        power.advance(1_000 * MS);
        assert_eq!(state(&power), 4, "no autonomous transitions");
        power.io(1_001 * MS);
        assert_eq!(state(&power), 2);
        power.io(1_002 * MS);
        assert_eq!(state(&power), 2);
    }

    #[test]
    fn invalid_states_and_hints_are_refused() {
        let mut power = Power::new(0);
        power.set(1 | 2 << 5).unwrap();
        for value in [5, 31, 3 << 5, 7 << 5] {
            assert_eq!(power.set(value), Err(Status::INVALID_FIELD), "{value:#x}");
        }
        assert_eq!(power.value(), 1 | 2 << 5);
    }

    #[test]
    fn transitions_occur_when_due() {
        let mut power = Power::new(0);
        let data = table(&[(0, 3, 100), (1, 3, 100), (2, 3, 100), (3, 4, 500)]);
        power.set_transitions(0, &data).unwrap();
        power.advance(10_000 * MS);
        assert_eq!(state(&power), 0, "transitions are disabled");
        power.set_transitions(1, &data).unwrap();
        for (ms, expected) in [(10_099, 0), (10_100, 3), (10_599, 3), (10_600, 4), (99_999, 4)] {
            power.advance(ms * MS);
            assert_eq!(state(&power), expected, "{ms} ms");
        }
        power.io(100_000 * MS);
        power.advance(100_099 * MS);
        assert_eq!(state(&power), 0);
        power.advance(200_000 * MS);
        assert_eq!(state(&power), 4, "all due transitions");
        let mut out = [0; TABLE_LEN];
        assert_eq!((power.transitions(&mut out), &out[..]), (1, &data[..]));
    }

    #[test]
    fn tables_with_invalid_states_are_refused() {
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
    fn a_cyclic_table_terminates() {
        let mut power = Power::new(0);
        power.set_transitions(1, &table(&[(0, 3, 1), (3, 4, 1), (4, 3, 1)])).unwrap();
        power.advance(u64::MAX);
        assert!(matches!(state(&power), 3 | 4));
    }
}
