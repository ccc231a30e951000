//! Capabilities of a simulated machine: commands, knobs and sources of readings, with exact costs.

use pilotlight_plant::{
    Capabilities, CoreId, Cost, Depth, Kind, Knob, Quantity, RestCost, Scope, SleepCost, Source, Stat, Topology,
    Unsupported, Values,
};

use super::{RunError, ScenarioError};
use crate::machine::{Governor, Machine, Speed};
use crate::scenario::{Background, Scenario};
use crate::ssd::SsdModel;

/// CPU time to send a message to another core, in nanoseconds at full speed.
pub(super) const STORE_NS: u32 = 20;

/// Capabilities of a scenario's machine.
#[must_use]
pub fn capabilities(scenario: &Scenario) -> Capabilities {
    let machine = &scenario.machine;
    Capabilities {
        sleeps: sleeps(machine),
        moves: Some(Cost::Measured(u64::from(machine.director.move_ns))),
        interrupts: true,
        rests: Some(rests(machine)),
        server_sleep: Some(machine.sockets.server_sleep_ns).filter(|&ns| ns > 0).map(Cost::Measured),
        knobs: knobs(scenario),
        sources: sources(scenario),
        drives: (0..scenario.drives.len() as u16).map(|drive| (drive.into(), drive)).collect(),
        groups: Vec::new(),
    }
}

/// Hardware ends a rest.
fn rests(machine: &Machine) -> RestCost {
    let wake = Cost::Measured(machine.sleep.rest_wake_ns);
    RestCost { cpu: wake, late: wake }
}

fn sleeps(machine: &Machine) -> Vec<SleepCost> {
    let cost =
        |depth, waker_ns, wake_ns| SleepCost { depth, waker: Cost::Measured(waker_ns), wake: Cost::Measured(wake_ns) };
    let sleep = machine.sleep;
    let monitor = cost(Depth::MonitorWait, u64::from(STORE_NS), sleep.monitor_wake_ns);
    let software_wake_ns = sleep.software_wake_ns + kernel_exit_ns(machine);
    let software = cost(Depth::SoftwareWait, sleep.software_waker_ns, software_wake_ns);
    if sleep.monitor { vec![monitor, software] } else { vec![software] }
}

/// Exit latency of the kernel's idle state for an unused core.
fn kernel_exit_ns(machine: &Machine) -> u64 {
    let deep = machine.power.family.kernel_idles_deep;
    if deep { machine.kernel.deep_exit_ns } else { machine.kernel.shallow_exit_ns }
}

/// Frequencies, power limit, quota and its period, bandwidth caps, hotplug, power states and idle states of drives, and rates of background
/// work.
fn knobs(scenario: &Scenario) -> Vec<Knob> {
    let mut knobs = frequencies(&scenario.machine, &scenario.topology);
    knobs.extend(power_limit(&scenario.machine));
    knobs.extend(quota(scenario));
    knobs.extend(quota_period(scenario));
    knobs.extend(capped(scenario).map(cap));
    knobs.extend(switches(scenario));
    knobs.extend(power_states(scenario));
    knobs.extend(wake_limits(scenario));
    knobs.extend((0..).zip(&scenario.workload.background).map(background_rate));
    knobs
}

/// The rate of a class of background work.
fn background_rate((class, work): (u16, &Background)) -> Knob {
    Knob {
        scope: Scope::Background(class),
        kind: Kind::RatePpm,
        values: Values::Range { min: 0, max: 1_000_000, step: 1 },
        initial: work.rate_ppm.into(),
        caller: Cost::Measured(u64::from(STORE_NS)),
        effect: Cost::Measured(0),
    }
}

/// The power state of each drive that has several. A drive with a cache keeps its state: its power to move data is known for one state only.
fn power_states(scenario: &Scenario) -> Vec<Knob> {
    let states = |drive: &SsdModel| if drive.cache.is_some() { 1 } else { drive.power_states() as u64 };
    let knob = |(drive, states)| Knob {
        scope: Scope::Device(drive),
        kind: Kind::PowerState,
        values: Values::Range { min: 0, max: states - 1, step: 1 },
        initial: 0,
        caller: Cost::Measured(u64::from(scenario.machine.director.frequency_ns)),
        effect: Cost::Measured(0),
    };
    let drives = (0..).zip(scenario.drives.iter().map(states)).filter(|(_, states)| *states > 1);
    if scenario.scheduled.is_none() { drives.map(knob).collect() } else { Vec::new() }
}

/// The wake-up limit of each drive with idle states: 0, or the wake-up time of one of them.
fn wake_limits(scenario: &Scenario) -> Vec<Knob> {
    let limits = |drive: &SsdModel| {
        let mut limits: Vec<u64> = [0].into_iter().chain(drive.idle.iter().map(|state| state.wake_ns)).collect();
        limits.sort_unstable();
        limits.dedup();
        limits
    };
    let knob = |(drive, limits)| Knob {
        scope: Scope::Device(drive),
        kind: Kind::WakeLimitNs,
        values: Values::List(limits),
        initial: 0,
        caller: Cost::Measured(u64::from(scenario.machine.director.frequency_ns)),
        effect: Cost::Measured(0),
    };
    let drives = (0..).zip(&scenario.drives).filter(|(_, drive)| !drive.idle.is_empty());
    if scenario.scheduled.is_none() {
        drives.map(|(at, drive)| knob((at, limits(drive)))).collect()
    } else {
        Vec::new()
    }
}

/// Hotplug of polling workers.
fn switches(scenario: &Scenario) -> Vec<Knob> {
    let Some(hotplug) = scenario.machine.hotplug else { return Vec::new() };
    let knob = |core| Knob {
        scope: Scope::Core(core),
        kind: Kind::Online,
        values: Values::List(vec![0, 1]),
        initial: 1,
        caller: Cost::Measured(u64::from(scenario.machine.director.frequency_ns)),
        effect: Cost::Measured(hotplug.offline_ns.max(hotplug.online_ns)),
    };
    polling_workers(scenario).map(knob).collect()
}

/// Range of bandwidth caps in bytes per second, as in the server; the highest means no cap.
const CAPS: (u64, u64) = (1_000_000, 1_000_000_000_000);

/// Scopes with a bandwidth cap: each drive is a namespace, each connection a host. None with scheduled cores.
fn capped(scenario: &Scenario) -> impl Iterator<Item = Scope> + use<> {
    let (drives, hosts) = match scenario.scheduled {
        None => (scenario.drives.len() as u32, scenario.workload.connections.len() as u32),
        Some(_) => (0, 0),
    };
    (0..drives).map(Scope::Namespace).chain((0..hosts).map(Scope::Host))
}

fn cap(scope: Scope) -> Knob {
    let (min, max) = CAPS;
    Knob {
        scope,
        kind: Kind::BytesPerS,
        values: Values::Range { min, max, step: 1 },
        initial: max,
        caller: Cost::Measured(u64::from(STORE_NS)),
        effect: Cost::Measured(0),
    }
}

/// Selectable quota periods besides that of the machine: the kernel's default, and that of PASS.
const QUOTA_PERIODS_NS: [u64; 2] = [100_000_000, 1_000_000_000];

/// The period of the quota; none without workers.
fn quota_period(scenario: &Scenario) -> Option<Knob> {
    let found = scenario.machine.limits.quota_period_ns;
    let mut values = [found].into_iter().chain(QUOTA_PERIODS_NS).collect::<Vec<_>>();
    values.sort_unstable();
    values.dedup();
    limited_workers(scenario).next().map(|_| Knob {
        scope: Scope::Server,
        kind: Kind::QuotaPeriodNs,
        effect: Cost::Measured(values.last().copied().unwrap_or(found)),
        values: Values::List(values),
        initial: found,
        caller: Cost::Measured(u64::from(scenario.machine.director.frequency_ns)),
    })
}

/// Polling cores under the quota: the workers, and the main core with `quota_of_main`.
pub(super) fn limited_workers(scenario: &Scenario) -> impl Iterator<Item = CoreId> + use<> {
    let polls = first_scheduled(scenario);
    let main = scenario.machine.limits.quota_of_main.then(|| scenario.topology.main());
    main.into_iter().filter(move |core| core.index() < polls).chain(polling_workers(scenario))
}

fn polling_workers(scenario: &Scenario) -> impl Iterator<Item = CoreId> + use<> {
    let polls = first_scheduled(scenario);
    scenario.topology.workers().filter(move |core| core.index() < polls)
}

/// The first scheduled core.
pub(super) fn first_scheduled(scenario: &Scenario) -> usize {
    scenario.scheduled.as_ref().map_or(usize::MAX, |scheduled| usize::from(scheduled.first_core))
}

/// The package's power limit, enforced by lower frequencies: from the idle power to the maximum, which means no limit.
fn power_limit(machine: &Machine) -> Option<Knob> {
    let Machine { power, speed, limits, .. } = machine;
    (speed.min_khz < speed.max_khz && power.cpu_uw.deep < power.cpu_uw.poll).then(|| Knob {
        scope: Scope::Package(0),
        kind: Kind::LimitUw,
        values: Values::Range { min: power.cpu_uw.deep, max: power.cpu_uw.poll, step: 1_000_000 },
        initial: power.cpu_uw.poll,
        caller: Cost::Measured(u64::from(machine.director.frequency_ns)),
        effect: Cost::Measured(POWER_PERIODS * limits.power_period_ns),
    })
}

/// Periods until a limit is met: each removes most of the remaining excess.
const POWER_PERIODS: u64 = 20;

/// CPU time quota of all workers.
fn quota(scenario: &Scenario) -> Option<Knob> {
    let workers = limited_workers(scenario).count() as u64;
    let limits = scenario.machine.limits;
    (workers > 0).then(|| Knob {
        scope: Scope::Server,
        kind: Kind::QuotaPpm,
        values: Values::Range { min: MIN_QUOTA_PPM * workers, max: 1_000_000 * workers, step: 1_000 * workers },
        initial: 1_000_000 * workers,
        caller: Cost::Measured(u64::from(scenario.machine.director.frequency_ns)),
        effect: Cost::Measured(limits.quota_period_ns),
    })
}

/// Minimum per worker: 0.2 % of a core (PASS, section 5.7).
const MIN_QUOTA_PPM: u64 = 2_000;

/// The frequency of each core, unless the kernel's governor controls it.
fn frequencies(machine: &Machine, topology: &Topology) -> Vec<Knob> {
    let Speed { min_khz, max_khz, step_khz, transition_ns, .. } = machine.speed;
    let [min, max, step] = [min_khz, max_khz, step_khz.max(1)].map(u64::from);
    let knob = |core| Knob {
        scope: Scope::Core(core),
        kind: Kind::FrequencyKhz,
        values: Values::Range { min, max, step },
        initial: max,
        caller: Cost::Measured(u64::from(machine.director.frequency_ns)),
        effect: Cost::Measured(transition_ns),
    };
    let is_free = min < max && machine.governor == Governor::Performance;
    if is_free { topology.cores().map(knob).collect() } else { Vec::new() }
}

/// The server's power, from its own meter if there is one.
fn server_power(scenario: &Scenario) -> Source {
    let sensors = &scenario.sensors;
    let (window_ns, lag_ns) =
        sensors.meter.map_or((sensors.window_ns, sensors.lag_ns), |meter| (meter.window_ns, meter.lag_ns));
    Source { scope: Scope::Server, quantity: Quantity::PowerUw, window_ns, lag: Cost::Measured(lag_ns) }
}

/// Power of CPU, server and drives, bandwidth of drives, namespaces and hosts, latencies, and pending background work.
fn sources(scenario: &Scenario) -> Vec<Source> {
    let (window_ns, lag) = (scenario.sensors.window_ns, Cost::Measured(scenario.sensors.lag_ns));
    let source = |scope, quantity| Source { scope, quantity, window_ns, lag };
    let drives = || (0..scenario.drives.len() as u16).map(Scope::Device);
    let mut all = vec![source(Scope::Package(0), Quantity::PowerUw), server_power(scenario)];
    all.extend(drives().map(|drive| source(drive, Quantity::PowerUw)));
    all.extend(drives().map(|drive| source(drive, Quantity::BytesPerS)));
    all.extend([Stat::Mean, Stat::P50, Stat::P99].map(|stat| source(Scope::Server, Quantity::LatencyNs(stat))));
    let classes = 0..scenario.workload.background.len() as u16;
    all.extend(classes.map(|class| source(Scope::Background(class), Quantity::BacklogBytes)));
    let directions = [Quantity::ReadBytesPerS, Quantity::WrittenBytesPerS];
    all.extend(capped(scenario).flat_map(|of| directions.map(|quantity| source(of, quantity))));
    all
}

/// The error of a policy that requires frequencies while the governor controls them.
pub(super) fn refusal(error: Unsupported, governor: Governor) -> RunError {
    match governor {
        Governor::Performance => error.into(),
        Governor::Schedutil => RunError::Scenario(ScenarioError::Governor(error)),
    }
}
