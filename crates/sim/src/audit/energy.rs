//! Recomputes energy from the states and frequencies of cores.
//!
//! The model (see power.rs): within an epoch of 10 us, the logical cores of a physical core are awake for `a` and `b` nanoseconds, both of
//! them for `a b / 10 us`; power above the shallow state follows from these times and the frequencies at the beginning of the epoch. A
//! physical core that was awake at all, or rests shallow, also draws the difference of shallow and deep. With scheduled cores, the states of
//! both at each moment count instead. Figures are rounded down: times to nanoseconds, shares to millionths, energy of a physical core and
//! epoch to femtojoules. Less than a microjoule is carried to the next stretch.
//!
//! A core that leaves a state counts as awake, or, with `exit_at_rest`, as in that state. A drive takes energy per byte, limited by its
//! ceiling over a stretch.

use super::drives::DriveCheck;
use super::requests::Moved;
use super::{Findings, Law};
use crate::machine::{Machine, Power};
use crate::outcome::{Energy, Outcome, Stretch};
use crate::scenario::{Kind, Scenario};
use crate::trace::{Record, RecordKind, State, THROTTLED};

const EPOCH_NS: u64 = 10_000;
const MILLION: u64 = 1_000_000;
/// Femtojoules (microwatts times nanoseconds) in a microjoule.
const MICROJOULE: u128 = 1_000_000_000;

/// One logical core.
#[derive(Clone, Copy, Debug)]
struct TrackedCore {
    state: State,
    /// The last idle state.
    low: State,
    khz: u32,
    /// Time awake in the current epoch until `since_ns`, and the part of it spent leaving a state.
    awake_ns: u64,
    leaving_ns: u64,
    since_ns: u64,
    /// End of its last exit from an idle state.
    left_ns: u64,
}

/// Totals of a stretch.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Of the package, and of cores.
    cpu_fj: u128,
    cores_fj: u128,
    /// Physical cores that poll, in millionths times nanoseconds.
    polling: u128,
    /// Physical cores that are not deep, likewise.
    not_deep: u128,
    awake_ns: u64,
    capacity_ns: u64,
}

/// Power above the shallow state as a function of frequency.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// At the lowest frequency, in millionths of that at the highest.
    slow: u64,
    exponent: f64,
}

pub(super) struct EnergyCheck<'a> {
    scenario: &'a Scenario,
    cores: Vec<TrackedCore>,
    /// Logical cores that share a physical one.
    pairs: Vec<(usize, Option<usize>)>,
    /// On a machine with scheduled cores: how long each pair was in which states at the same time, how long some core was not deep, and
    /// until when in the epoch that is counted.
    moments: Vec<[[u64; 4]; 4]>,
    not_deep_ns: u64,
    counted_ns: u64,
    /// The frequency ceiling of the package's power limit.
    ceiling_khz: u32,
    epoch_ns: u64,
    sums: Sums,
    rest_fj: u128,
    drives: DriveCheck<'a>,
    series: Vec<Stretch>,
    /// Replayed requests: sizes of reads are not in the records, so the energy of writes is a lower bound for drives.
    replays: bool,
}

impl<'a> EnergyCheck<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let topology = &scenario.topology;
        let core = TrackedCore {
            state: State::Awake,
            low: State::Shallow,
            khz: scenario.machine.speed.max_khz,
            awake_ns: 0,
            leaving_ns: 0,
            since_ns: 0,
            left_ns: 0,
        };
        let pairs = topology.cores().map(|core| (core.index(), topology.sibling(core).map(|other| other.index())));
        let pairs: Vec<_> = pairs.filter(|&(one, other)| other.is_none_or(|other| one < other)).collect();
        Self {
            scenario,
            cores: vec![core; topology.len()],
            moments: vec![[[0; 4]; 4]; pairs.len()],
            not_deep_ns: 0,
            counted_ns: 0,
            pairs,
            ceiling_khz: scenario.machine.speed.max_khz,
            epoch_ns: 0,
            sums: Sums::default(),
            rest_fj: 0,
            drives: DriveCheck::new(scenario),
            series: Vec::new(),
            replays: scenario
                .workload
                .connections
                .iter()
                .any(|connection| matches!(connection.request, Kind::Traced { .. })),
        }
    }

    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) {
        if record.at_ns >= self.scenario.duration_ns {
            return;
        }
        self.epochs(record.at_ns);
        if record.kind == RecordKind::Drive {
            self.drives.did(record);
            return;
        }
        if record.kind == RecordKind::Limited {
            self.ceiling_khz = record.a as u32;
            return;
        }
        let Some(core) = self.cores.get_mut(record.a as usize) else { return };
        if record.kind == RecordKind::Frequency {
            let speed = self.scenario.machine.speed;
            if !(u64::from(speed.min_khz)..=u64::from(speed.max_khz)).contains(&record.b) {
                findings.add(Law::Bounds, format!("core {} has no frequency of {} kHz", record.a, record.b));
            }
            core.khz = record.b as u32;
            return;
        }
        core.pass(record.at_ns);
        self.count(record.at_ns);
        let Some(core) = self.cores.get_mut(record.a as usize) else { return };
        if record.kind == RecordKind::Exits {
            core.left_ns = record.at_ns + record.b;
            let longest_ns = longest_exit_ns(&self.scenario.machine);
            if record.b > longest_ns || core.state != State::Awake {
                let text = format!("core {} leaves a state for {} ns, {longest_ns} ns at most", record.a, record.b);
                findings.add(Law::Bounds, text);
            }
            return;
        }
        core.state = match record.b & !THROTTLED {
            0 => State::Awake,
            1 => State::Shallow,
            3 => State::Spins,
            _ => State::Deep,
        };
        if !matches!(core.state, State::Awake | State::Spins) {
            core.low = core.state;
        }
    }

    /// Counts drive commands.
    pub(super) fn command(&mut self, record: &Record) {
        self.drives.command(record);
    }

    /// A drive transfers data.
    pub(super) fn moved(&mut self, at_ns: u64, moved: &Moved) {
        if at_ns >= self.scenario.duration_ns {
            return;
        }
        self.drives.moved(moved);
    }

    /// Finishes the epochs that end by `at_ns`. After the first, all are equal once no core is leaving a state.
    fn epochs(&mut self, at_ns: u64) {
        let mut first = true;
        loop {
            let epochs = (at_ns - self.epoch_ns) / EPOCH_NS;
            if epochs == 0 {
                return;
            }
            let leaving = self.cores.iter().any(|core| core.left_ns > self.epoch_ns);
            self.sum_up(if first || leaving { 1 } else { epochs });
            first = false;
        }
    }

    fn sum_up(&mut self, epochs: u64) {
        let end_ns = self.epoch_ns + EPOCH_NS;
        for core in &mut self.cores {
            core.pass(end_ns);
        }
        self.count(end_ns);
        let mut one = Sums::default();
        let mut keeps_ns = 0;
        for core in &self.cores {
            one.awake_ns += core.awake_ns;
            let khz = core.khz.min(self.ceiling_khz);
            one.capacity_ns += core.awake_ns * u64::from(khz) / u64::from(self.scenario.machine.speed.max_khz);
        }
        for (index, &(a, b)) in self.pairs.iter().enumerate() {
            let of_pair_ns = self.pair(index, self.cores[a], b.map(|b| self.cores[b]), &mut one);
            keeps_ns = of_pair_ns.max(keeps_ns);
        }
        let power = &self.scenario.machine.power;
        if power.scheduled.is_some() {
            keeps_ns = std::mem::take(&mut self.not_deep_ns);
        }
        one.cpu_fj += u128::from(power.cpu_uw.deep) * u128::from(EPOCH_NS);
        let slow = millionths(power.cpu_uw.slow - power.cpu_uw.shallow, power.cpu_uw.poll - power.cpu_uw.shallow);
        let curve = Curve { slow, exponent: power.family.frequency_exponent };
        let uncore_uw = power.uncore_uw.unwrap_or(0) * self.level(curve, self.ceiling_khz) / MILLION;
        one.cpu_fj += u128::from(package_uw(power) + uncore_uw) * u128::from(keeps_ns);
        self.sums.add(&one, epochs);
        self.epoch_ns += epochs * EPOCH_NS;
        for core in &mut self.cores {
            (core.awake_ns, core.leaving_ns) = (0, 0);
            core.since_ns = self.epoch_ns;
        }
        self.moments.fill([[0; 4]; 4]);
        self.counted_ns = self.epoch_ns;
    }

    /// With scheduled cores: accounts for the time since the last record.
    fn count(&mut self, until_ns: u64) {
        let power = &self.scenario.machine.power;
        if power.scheduled.is_none() {
            return;
        }
        while self.counted_ns < until_ns {
            let now_ns = self.counted_ns;
            // Exits from idle states may end in between.
            let left = self.cores.iter().map(|core| core.left_ns).filter(|left_ns| *left_ns > now_ns).min();
            let ns = left.map_or(until_ns, |left_ns| left_ns.min(until_ns)) - now_ns;
            let at_rest = power.family.exit_at_rest;
            let state = |core: &TrackedCore| {
                let leaves = core.state == State::Awake && core.left_ns > now_ns;
                if leaves && at_rest { core.low } else { core.state }
            };
            for (&(a, b), moments) in self.pairs.iter().zip(&mut self.moments) {
                let second = b.map_or(State::Deep, |b| state(&self.cores[b]));
                moments[state(&self.cores[a]) as usize][second as usize] += ns;
            }
            if self.cores.iter().any(|core| state(core) != State::Deep) {
                self.not_deep_ns += ns;
            }
            self.counted_ns += ns;
        }
    }

    /// Accounts for one physical core over an epoch; returns how long it keeps the package out of the deep state.
    fn pair(&self, index: usize, a: TrackedCore, b: Option<TrackedCore>, sums: &mut Sums) -> u64 {
        let power = &self.scenario.machine.power;
        let leaving = |core: TrackedCore| if power.family.exit_at_rest { core.leaving_ns } else { 0 };
        let billed = |core: TrackedCore| TrackedCore {
            awake_ns: core.awake_ns - leaving(core),
            khz: core.khz.min(self.ceiling_khz),
            ..core
        };
        let (a, b) = (billed(a), b.map(billed));
        let (cpu, others) = (power.cpu_uw, power.others_uw);
        let exponent = power.family.frequency_exponent;
        let slow = millionths(cpu.slow - cpu.shallow, cpu.poll - cpu.shallow);
        let drawn = self.above_shallow(index, Curve { slow, exponent }, a, b);
        let each_uw = (cpu.poll - cpu.shallow - power.uncore_uw.unwrap_or(0)) / count(power);
        sums.cores_fj += drawn * u128::from(each_uw) / u128::from(MILLION);
        // The value that gives the measured power at the lowest frequency once the exponent is applied to the mean.
        let slow = millionths(others.slow - others.shallow, others.poll - others.shallow) as f64 / MILLION as f64;
        let slow = (slow.powf(1.0 / power.family.others_exponent) * MILLION as f64).round() as u64;
        sums.polling += self.above_shallow(index, Curve { slow, exponent }, a, b);
        let keeps = |core: TrackedCore| core.awake_ns > 0 || core.low == State::Shallow;
        let keeps = keeps(a) || b.is_some_and(keeps);
        let deep_ns = self.moments[index][State::Deep as usize][State::Deep as usize];
        let keeps_ns = match power.scheduled {
            Some(_) => EPOCH_NS - deep_ns,
            None => EPOCH_NS * u64::from(keeps),
        };
        if (index as u64) < count(power) {
            let each_uw = (cpu.shallow - cpu.deep - package_uw(power)) / count(power);
            sums.cores_fj += u128::from(each_uw) * u128::from(keeps_ns);
            sums.not_deep += u128::from(MILLION) * u128::from(keeps_ns);
        }
        keeps_ns
    }

    /// In millionths of a physical core that polls at the highest frequency, times nanoseconds.
    fn above_shallow(&self, index: usize, curve: Curve, a: TrackedCore, b: Option<TrackedCore>) -> u128 {
        let level_a = self.level(curve, a.khz);
        let (b_ns, level_b) = b.map_or((0, 0), |b| (b.awake_ns, self.level(curve, b.khz)));
        let both_ns = a.awake_ns * b_ns / EPOCH_NS;
        let saved = u64::from(self.scenario.machine.power.family.sibling_saves_ppm);
        let alone = |level: u64| level * (MILLION - saved) / MILLION;
        if self.scenario.machine.power.scheduled.is_some() {
            return self.by_moments(&self.moments[index], level_a, level_b);
        }
        let together = (level_a.max(level_b) * (MILLION - saved) + level_a.min(level_b) * saved) / MILLION;
        u128::from(both_ns * together + (a.awake_ns - both_ns) * alone(level_a) + (b_ns - both_ns) * alone(level_b))
    }

    /// As [`Self::above_shallow`], from the states of both at each moment.
    fn by_moments(&self, moments: &[[u64; 4]; 4], level_a: u64, level_b: u64) -> u128 {
        let power = &self.scenario.machine.power;
        let saved = u64::from(power.family.sibling_saves_ppm);
        let looks = u64::from(power.scheduled.map_or(MILLION as u32, |scheduled| scheduled.looks_ppm));
        let drawn = |level: u64, state: usize| match state {
            state if state == State::Awake as usize => level,
            state if state == State::Spins as usize => level * looks / MILLION,
            _ => 0,
        };
        let mut sum = 0;
        for (one, other) in (0..16).map(|at| (at / 4, at % 4)) {
            let (a, b) = (drawn(level_a, one), drawn(level_b, other));
            let both = (a.max(b) * (MILLION - saved) + a.min(b) * saved) / MILLION;
            sum += u128::from(moments[one][other] * both);
        }
        sum
    }

    fn level(&self, curve: Curve, khz: u32) -> u64 {
        let speed = self.scenario.machine.speed;
        let range = u64::from(speed.max_khz - speed.min_khz).max(1);
        let way = u64::from(khz.saturating_sub(speed.min_khz)) * MILLION / range;
        if way >= MILLION {
            return MILLION;
        }
        curve.slow + ((MILLION - curve.slow) as f64 * (way as f64 / MILLION as f64).powf(curve.exponent)) as u64
    }

    pub(super) fn stretch(&mut self, end_ns: u64, findings: &mut Findings) {
        self.epochs(end_ns);
        let sums = std::mem::take(&mut self.sums);
        let power = &self.scenario.machine.power;
        let cpu_fj = sums.cpu_fj + self.of_one_budget(sums.cores_fj) + std::mem::take(&mut self.rest_fj);
        self.rest_fj = cpu_fj % MICROJOULE;
        let over = |uw: u64| (u128::from(uw) * u128::from(self.scenario.series_ns) / MICROJOULE) as u64;
        let cpu_uj = (cpu_fj / MICROJOULE) as u64;
        let drives_uj = self.drives.stretch_uj(end_ns, findings);
        let others_uj = match power.scheduled {
            None if power.uncore_uw.is_some() => {
                let [others, cpu] = [power.others_uw, power.cpu_uw].map(|uw| uw.poll - uw.deep);
                over(power.others_uw.deep) + (cpu_uj - over(power.cpu_uw.deep)) * millionths(others, cpu) / MILLION
            }
            None => over(self.others_uw(&sums)),
            Some(line) => {
                let known_uj = u128::from(cpu_uj) + u128::from(drives_uj);
                let system_uj =
                    u128::from(over(line.base_uw)) + known_uj * u128::from(line.slope_ppm) / u128::from(MILLION);
                system_uj.saturating_sub(known_uj) as u64
            }
        };
        let energy = Energy { cpu_uj, drives_uj, others_uj };
        let (awake_ns, capacity_ns) = (sums.awake_ns, sums.capacity_ns);
        self.series.push(Stretch { energy, awake_ns, capacity_ns, ..Stretch::default() });
    }

    /// Energy of cores that share one power budget: the higher the load, the less each core draws.
    fn of_one_budget(&self, cores_fj: u128) -> u128 {
        let power = &self.scenario.machine.power;
        let Some(scheduled) = power.scheduled else { return cores_fj };
        let poll_uw = (power.cpu_uw.poll - power.cpu_uw.shallow) / count(power);
        let shallow_uw = (power.cpu_uw.shallow - power.cpu_uw.deep - package_uw(power)) / count(power);
        let all_fj = u128::from((shallow_uw + poll_uw) * count(power)) * u128::from(self.scenario.series_ns);
        let used = (cores_fj * u128::from(MILLION)).checked_div(all_fj).unwrap_or(0).min(u128::from(MILLION));
        let saved = u128::from(MILLION.saturating_sub(u64::from(scheduled.of_all_ppm))) * used / u128::from(MILLION);
        cores_fj - cores_fj * saved / u128::from(MILLION)
    }

    /// Power of fans, memory, network and losses, from the mean over a stretch.
    fn others_uw(&self, sums: &Sums) -> u64 {
        let power = &self.scenario.machine.power;
        let uw = power.others_uw;
        let all = u128::from(self.scenario.series_ns) * u128::from(count(power));
        let not_deep = ((sums.not_deep / all) as u64).min(MILLION);
        let polling = (sums.polling / all) as f64 / MILLION as f64;
        let fans = (uw.poll - uw.shallow) as f64 * polling.powf(power.family.others_exponent);
        uw.deep + (uw.shallow - uw.deep) * not_deep / MILLION + fans as u64
    }

    pub(super) fn finish(&self, outcome: &Outcome, findings: &mut Findings) -> Energy {
        let measured = (self.scenario.warm_up_ns / self.scenario.series_ns) as usize;
        let mut all = Energy::default();
        for (index, (own, claimed)) in self.series.iter().zip(&outcome.series).enumerate() {
            let at_ns = (index as u64 + 1) * self.scenario.series_ns;
            let mut check_equal = |what, own: u64, claimed: u64| {
                findings.check_equal(Law::Energy, at_ns, what, own.into(), claimed.into())
            };
            check_equal("CPU energy in a stretch, in uJ", own.energy.cpu_uj, claimed.energy.cpu_uj);
            let (least_uj, drives_uj) = (own.energy.drives_uj, claimed.energy.drives_uj);
            let claimed_uj = if self.replays { least_uj.min(drives_uj) } else { drives_uj };
            check_equal("drives' energy in a stretch, in uJ", least_uj, claimed_uj);
            check_equal("others' energy in a stretch, in uJ", own.energy.others_uj, claimed.energy.others_uj);
            check_equal("time awake in a stretch, in ns", own.awake_ns, claimed.awake_ns);
            check_equal("capacity in a stretch, in ns", own.capacity_ns, claimed.capacity_ns);
            self.check_bounds(at_ns, &claimed.energy, findings);
            if index >= measured {
                all.cpu_uj += own.energy.cpu_uj;
                all.drives_uj += own.energy.drives_uj;
                all.others_uj += own.energy.others_uj;
            }
        }
        let end_ns = self.scenario.duration_ns;
        findings.check_equal(Law::Energy, end_ns, "CPU energy, in uJ", all.cpu_uj.into(), outcome.energy.cpu_uj.into());
        if self.replays {
            all.drives_uj = outcome.energy.drives_uj;
        }
        findings.check_equal(
            Law::Energy,
            end_ns,
            "drives' energy, in uJ",
            all.drives_uj.into(),
            outcome.energy.drives_uj.into(),
        );
        findings.check_equal(
            Law::Energy,
            end_ns,
            "others' energy, in uJ",
            all.others_uj.into(),
            outcome.energy.others_uj.into(),
        );
        all
    }

    /// Between every core deep and every core polling at the highest frequency.
    fn check_bounds(&self, at_ns: u64, energy: &Energy, findings: &mut Findings) {
        let power = &self.scenario.machine.power;
        let (cpu, others) = (power.cpu_uw, power.others_uw);
        let more = (self.pairs.len() as f64 / count(power) as f64).max(1.0);
        let step = self.scenario.series_ns as f64;
        let mut within = |what: &str, uj: u64, least_uw: u64, most_uw: f64| {
            let (least, most) = (least_uw as f64 * step / 1e9, most_uw * step / 1e9);
            if (uj as f64) < least - 2.0 || uj as f64 > most + 2.0 {
                let text = format!("{what}: {uj} uJ in a stretch, and {least:.0} to {most:.0} are possible");
                findings.add_for_run(Law::Bounds, at_ns, text);
            }
        };
        within("CPU", energy.cpu_uj, cpu.deep, cpu.shallow as f64 + (cpu.poll - cpu.shallow) as f64 * more);
        let fans = (others.poll - others.shallow) as f64 * more.powf(power.family.others_exponent);
        if power.scheduled.is_some() || self.scenario.drives.iter().any(|drive| drive.energy.is_some()) {
            return; // no bounds: others follow CPU and drives, or drives have no ceiling
        }
        within("others", energy.others_uj, others.deep, others.shallow as f64 + fans);
        let ceilings = self.scenario.drives.iter().map(|drive| drive.power.map(|power| power.most_load_uw as f64));
        let load_uw: Option<f64> = ceilings.sum();
        let most_uw = load_uw.map_or(f64::INFINITY, |load_uw| power.drives_idle_uw as f64 + load_uw);
        within("drives", energy.drives_uj, power.drives_idle_uw, most_uw);
    }
}

impl TrackedCore {
    fn pass(&mut self, at_ns: u64) {
        if self.state == State::Spins {
            self.awake_ns += at_ns - self.since_ns;
        }
        if self.state == State::Awake {
            self.awake_ns += at_ns - self.since_ns;
            self.leaving_ns += self.left_ns.min(at_ns).saturating_sub(self.since_ns);
        }
        self.since_ns = at_ns;
    }
}

impl Sums {
    fn add(&mut self, one: &Self, times: u64) {
        self.cpu_fj += one.cpu_fj * u128::from(times);
        self.cores_fj += one.cores_fj * u128::from(times);
        self.polling += one.polling * u128::from(times);
        self.not_deep += one.not_deep * u128::from(times);
        self.awake_ns += one.awake_ns * times;
        self.capacity_ns += one.capacity_ns * times;
    }
}

/// The longest hardware exit latency.
fn longest_exit_ns(machine: &Machine) -> u64 {
    let (sleep, kernel) = (machine.sleep, machine.kernel);
    sleep.monitor_wake_ns.max(sleep.rest_wake_ns).max(kernel.shallow_exit_ns).max(kernel.deep_exit_ns)
}

/// Number of physical cores in the power figures.
fn count(power: &Power) -> u64 {
    u64::from(power.physical_cores.max(1))
}

/// Package power while any physical core is not deep.
fn package_uw(power: &Power) -> u64 {
    (power.cpu_uw.shallow - power.cpu_uw.deep) * u64::from(power.family.package_ppm) / MILLION
}

fn millionths(part: u64, whole: u64) -> u64 {
    (part * MILLION).checked_div(whole).unwrap_or(0)
}
