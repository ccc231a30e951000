//! What any schedule of sleeping cores is bound by: how much cores can do, what they burn at least, how long they take to wake.
//!
//! Power is a sum over *units* (physical cores) and what all share: `fixed + package (while any unit is not deep) + not_deep (each
//! unit that is not deep) + alone or both (each unit of which one or two logical cores are awake)`. A core that is waking counts as
//! awake. Capacity is in millionths of a core at full speed whose sibling is busy: a unit with one core awake has
//! `alone_ppm`, with both `both_ppm`.

use pilotlight_plant::Topology;

use super::OracleError;
use crate::machine::Machine;

/// One million, for shares.
pub(crate) const PPM: u64 = 1_000_000;
/// A slot longer than this would not fit the arithmetic, in nanoseconds.
pub(crate) const LONGEST_NS: u64 = 10_000_000_000;
/// What rounding inside the simulator may take away, in microwatts.
const ROUNDING_UW: i64 = 1_000;
/// What rounding inside the simulator may add to a core's speed, in millionths: a core's factor is rounded down to 1/65536.
const ROUNDING_PPM: u32 = 50;
/// Places at which a convex curve of the other components is replaced by its tangent, in shares of all cores polling.
const TANGENTS: [f64; 6] = [0.05, 0.15, 0.3, 0.5, 0.75, 1.0];

/// Which sleep states a schedule may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States {
    /// The deep state too, not the shallow one alone.
    pub deep: bool,
    /// Whether the main core may sleep too (a whole server at rest); else it polls all the time, as the contract says.
    pub main_rests: bool,
}

impl States {
    /// Shallow sleep of workers: what SANDMAN's cores have (4.3).
    pub const SHALLOW: Self = Self { deep: false, main_rests: false };
    /// Shallow and deep sleep of workers.
    pub const ALL: Self = Self { deep: true, main_rests: false };
}

/// What units burn, in microwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitPower {
    /// Whatever happens.
    pub fixed_uw: i64,
    /// While any unit is not deep.
    pub package_uw: i64,
    /// Each unit that is not deep.
    pub not_deep_uw: i64,
    /// Each unit of which one core is awake, beyond `not_deep_uw`.
    pub alone_uw: i64,
    /// Each unit of which both cores are awake, beyond `not_deep_uw`.
    pub both_uw: i64,
}

/// What any schedule is bound by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Physical cores with two logical cores in use.
    pub pairs: u16,
    /// Physical cores with one.
    pub singles: u16,
    /// Whether the main core has a sibling in use.
    pub main_paired: bool,
    /// The states.
    pub states: States,
    /// Time from the order until a core in shallow sleep works, for which it burns what a polling core does, in nanoseconds; none where
    /// it burns no more than at rest (`exit_at_rest`).
    pub shallow_exit_ns: u64,
    /// The same for deep sleep.
    pub deep_exit_ns: u64,
    /// Work that a unit does with one core awake, in millionths of a core at full speed.
    pub alone_ppm: u32,
    /// The same with both awake.
    pub both_ppm: u32,
    /// What is burnt.
    pub power: UnitPower,
}

impl Limits {
    /// The limits of a machine with these cores, from below: one for each place at which a convex curve of the other components
    /// (`others_exponent` above 1) is replaced by its tangent; and where there are more physical cores than were measured, of which
    /// the first that are not deep may burn nothing for it, one that counts those beyond and one that counts none. Each is a valid
    /// limit, so the best bound of all counts.
    ///
    /// # Errors
    /// If a sleeping core burns more than one that sleeps less deep, or siblings hinder each other more than by half.
    pub fn of(machine: &Machine, topology: &Topology, states: States) -> Result<Vec<Self>, OracleError> {
        let power = &machine.power;
        let ordered = |by: &crate::machine::ByState| by.poll >= by.shallow && by.shallow >= by.deep;
        if power.uncore_uw.is_some() {
            return Err(OracleError::Uncore);
        }
        if !ordered(&power.cpu_uw) || !ordered(&power.others_uw) {
            return Err(OracleError::Order);
        }
        if machine.speed.sibling_gain_ppm > 1_000_000 || power.family.sibling_saves_ppm > 1_000_000 {
            return Err(OracleError::Siblings);
        }
        let pairs = topology.cores().filter(|&core| topology.sibling(core).is_some()).count() / 2;
        let units = topology.len() - pairs;
        let base = Self {
            pairs: pairs as u16,
            singles: (units - pairs) as u16,
            main_paired: topology.sibling(topology.main()).is_some(),
            states,
            shallow_exit_ns: if power.family.exit_at_rest { 0 } else { shallow_exit_ns(machine) },
            deep_exit_ns: if power.family.exit_at_rest { 0 } else { deep_exit_ns(machine) },
            alone_ppm: 1_000_000 + machine.speed.sibling_gain_ppm + ROUNDING_PPM,
            both_ppm: 2_000_000 + ROUNDING_PPM,
            power: UnitPower { fixed_uw: 0, package_uw: 0, not_deep_uw: 0, alone_uw: 0, both_uw: 0 },
        };
        let measured = power.physical_cores.max(1);
        let most = units as f64 / f64::from(measured);
        let beyond = (units as i64 - i64::from(measured)).max(0);
        let mut all = Vec::new();
        for line in lines(power.family.others_exponent, most) {
            let power = unit_power(machine, line);
            all.push(Self {
                power: UnitPower { fixed_uw: power.fixed_uw - beyond * power.not_deep_uw, ..power },
                ..base
            });
            if beyond > 0 && states.deep {
                all.push(Self { power: UnitPower { not_deep_uw: 0, ..power }, ..base });
            }
        }
        Ok(all)
    }

    /// Logical cores.
    #[must_use]
    pub fn cores(&self) -> u16 {
        2 * self.pairs + self.singles
    }

    /// Physical cores.
    #[must_use]
    pub fn units(&self) -> u16 {
        self.pairs + self.singles
    }

    /// Cores that are awake at any time.
    #[must_use]
    pub fn min_awake(&self) -> u16 {
        u16::from(!self.states.main_rests)
    }

    /// Most that `awake` cores do, in millionths of a core at full speed: one of each unit first.
    #[must_use]
    pub fn capacity_ppm(&self, awake: u16) -> u64 {
        let alone = u64::from(awake.min(self.units()));
        let second = u64::from(awake) - alone;
        alone * u64::from(self.alone_ppm) + second * self.second_ppm()
    }

    fn second_ppm(&self) -> u64 {
        u64::from(self.both_ppm - self.alone_ppm)
    }

    /// Most work that `awake` cores do in `length_ns`, in nanoseconds of a core; rounded down.
    #[must_use]
    pub fn capacity_ns(&self, awake: u16, length_ns: u64) -> u64 {
        self.capacity_ppm(awake) * length_ns / PPM
    }

    /// Fewest cores that can do `work_ns` in `length_ns`; `None` if all of them cannot.
    #[must_use]
    pub fn needed(&self, work_ns: u64, length_ns: u64) -> Option<u16> {
        (0..=self.cores()).find(|&awake| self.capacity_ppm(awake) * length_ns >= work_ns * PPM)
    }

    /// Least time awake, summed over cores, in which `work_ns` can be done within `length_ns`; rounded down.
    #[must_use]
    pub fn awake_for(&self, work_ns: u64, length_ns: u64) -> u64 {
        let (work, all_units_ns) = (work_ns * PPM, u64::from(self.units()) * length_ns);
        let alone = u64::from(self.alone_ppm) * all_units_ns;
        if work <= alone {
            return work / u64::from(self.alone_ppm);
        }
        all_units_ns + (work - alone) / self.second_ppm().max(1)
    }
}

/// The quickest way out of a shallow state that the machine has, whoever ends it.
fn shallow_exit_ns(machine: &Machine) -> u64 {
    let sleep = &machine.sleep;
    let commanded = if sleep.monitor { sleep.monitor_wake_ns } else { sleep.software_wake_ns };
    commanded.min(sleep.software_wake_ns).min(sleep.rest_wake_ns).min(machine.kernel.shallow_exit_ns)
}

fn deep_exit_ns(machine: &Machine) -> u64 {
    machine.kernel.deep_exit_ns.max(shallow_exit_ns(machine))
}

/// `(at nothing, slope)` of straight lines that `share ^ exponent` is nowhere below, for shares up to `most`.
fn lines(exponent: f64, most: f64) -> Vec<(f64, f64)> {
    if exponent <= 1.0 {
        return vec![(0.0, most.powf(exponent - 1.0))];
    }
    let tangent = |at: f64| {
        let slope = exponent * at.powf(exponent - 1.0);
        (at.powf(exponent) - slope * at, slope)
    };
    TANGENTS.iter().map(|&at| tangent(at * most)).collect()
}

/// As [`crate::power`] says, with the other components' curve as a line.
fn unit_power(machine: &Machine, (at_nothing, slope): (f64, f64)) -> UnitPower {
    let power = &machine.power;
    let (cpu, others) = (power.cpu_uw, power.others_uw);
    let measured = i64::from(power.physical_cores.max(1));
    let watts = |uw: u64| uw as i64;
    let sleep_uw = watts(cpu.shallow - cpu.deep);
    let package_uw = sleep_uw * i64::from(power.family.package_ppm) / 1_000_000;
    let not_deep_uw = (sleep_uw - package_uw) / measured + watts(others.shallow - others.deep) / measured;
    let follow = (others.poll - others.shallow) as f64;
    let polling_uw = watts(cpu.poll - cpu.shallow) / measured + (follow * slope / measured as f64) as i64;
    UnitPower {
        fixed_uw: watts(cpu.deep + others.deep) + (follow * at_nothing) as i64 - ROUNDING_UW,
        package_uw,
        not_deep_uw,
        alone_uw: polling_uw * (1_000_000 - i64::from(power.family.sibling_saves_ppm)) / 1_000_000,
        both_uw: polling_uw,
    }
}
