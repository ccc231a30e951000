//! Limits of any schedule of sleeping cores: capacity, minimum power and exit latencies.
//!
//! Power is a sum over *units* (physical cores) and shared parts: `fixed + package (while any unit is not deep) + not_deep (each unit that is not
//! deep) + alone or both (each unit with one or two awake logical cores)`. A waking core counts as awake. Capacity is in millionths of a core at full
//! speed with a busy sibling: a unit with one core awake has `alone_ppm`, with both `both_ppm`.

use pilotlight_plant::Topology;

use super::OracleError;
use crate::machine::Machine;

/// One million, for shares.
pub(crate) const PPM: u64 = 1_000_000;
/// Maximum slot that the arithmetic supports, in nanoseconds.
pub(crate) const LONGEST_NS: u64 = 10_000_000_000;
/// Maximum rounding of power in the simulator, in microwatts.
const ROUNDING_UW: i64 = 1_000;
/// Maximum rounding of a core's speed in the simulator, in millionths: a core's factor is rounded down to 1/65536.
const ROUNDING_PPM: u32 = 50;
/// Points at which a convex curve of the other components is replaced by its tangent, as shares of polling cores.
const TANGENTS: [f64; 6] = [0.05, 0.15, 0.3, 0.5, 0.75, 1.0];

/// Sleep states that a schedule may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States {
    /// Whether the deep state is allowed too.
    pub deep: bool,
    /// Whether the main core may sleep too (server-sleep); otherwise it always polls, as the contract says.
    pub main_rests: bool,
}

impl States {
    /// Shallow sleep of workers, as in SANDMAN (4.3).
    pub const SHALLOW: Self = Self { deep: false, main_rests: false };
    /// Shallow and deep sleep of workers.
    pub const ALL: Self = Self { deep: true, main_rests: false };
}

/// Power of units, in microwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitPower {
    /// Constant part.
    pub fixed_uw: i64,
    /// While any unit is not deep.
    pub package_uw: i64,
    /// Each unit that is not deep.
    pub not_deep_uw: i64,
    /// Each unit with one core awake, beyond `not_deep_uw`.
    pub alone_uw: i64,
    /// Each unit with both cores awake, beyond `not_deep_uw`.
    pub both_uw: i64,
}

/// Limits of any schedule.
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
    /// Time from the command until a core in shallow sleep works, at the power of a polling core, in nanoseconds; 0 if it draws only the power of its
    /// sleep state (`exit_at_rest`).
    pub shallow_exit_ns: u64,
    /// The same for deep sleep.
    pub deep_exit_ns: u64,
    /// Capacity of a unit with one core awake, in millionths of a core at full speed.
    pub alone_ppm: u32,
    /// The same with both cores awake.
    pub both_ppm: u32,
    /// Power of units.
    pub power: UnitPower,
}

impl Limits {
    /// Lower limits of a machine with these cores: one per tangent of a convex curve of the other components (`others_exponent` above 1); and with
    /// more physical cores than were measured, of which the first that are not deep may draw no power, one that counts the further cores and one that
    /// counts none. Each is a valid limit, so the best bound applies.
    ///
    /// # Errors
    /// If a deeper sleep state draws more power than a shallower one, or siblings slow each other by more than half.
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

    /// Minimum number of awake cores.
    #[must_use]
    pub fn min_awake(&self) -> u16 {
        u16::from(!self.states.main_rests)
    }

    /// Maximum capacity of `awake` cores, in millionths of a core at full speed: one of each unit first.
    #[must_use]
    pub fn capacity_ppm(&self, awake: u16) -> u64 {
        let alone = u64::from(awake.min(self.units()));
        let second = u64::from(awake) - alone;
        alone * u64::from(self.alone_ppm) + second * self.second_ppm()
    }

    fn second_ppm(&self) -> u64 {
        u64::from(self.both_ppm - self.alone_ppm)
    }

    /// Maximum work of `awake` cores in `length_ns`, in nanoseconds of a core; rounded down.
    #[must_use]
    pub fn capacity_ns(&self, awake: u16, length_ns: u64) -> u64 {
        self.capacity_ppm(awake) * length_ns / PPM
    }

    /// Minimum cores for `work_ns` in `length_ns`; `None` if all together cannot do it.
    #[must_use]
    pub fn needed(&self, work_ns: u64, length_ns: u64) -> Option<u16> {
        (0..=self.cores()).find(|&awake| self.capacity_ppm(awake) * length_ns >= work_ns * PPM)
    }

    /// Minimum awake time, summed over cores, for `work_ns` within `length_ns`; rounded down.
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

/// The machine's minimum exit latency from a shallow state.
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

/// Unit powers as in [`crate::power`], with the other components' curve as a line.
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
