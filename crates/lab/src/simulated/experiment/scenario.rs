//! Converts a point and a policy to a scenario of the simulator.

use pilotlight_plant::{Topology, TopologyError};
use pilotlight_sim::machine::Machine;
use pilotlight_sim::scenario::{self as sim, Connection, Kind, Scenario, Workload};
use pilotlight_sim::sensor::SensorModel;
use pilotlight_sim::ssd::SsdModel;
use toml::Value;

use super::schema::{
    Cores, DriveUse, Experiment, Group, Meter, Numbering, PolicySpec, Request, Selection, Siblings, Spacing,
    ThreadPlacement,
};
use super::{goals, replay};
use crate::simulated::quantity::{Depth, Rate};

/// A point cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// Invalid cores.
    #[error("topology: {0}")]
    Topology(TopologyError),
    /// An invalid group of connections.
    #[error("workload {group}: {reason}")]
    Group {
        /// The group.
        group: String,
        /// The reason.
        reason: String,
    },
    /// A drive's model is missing.
    #[error("drive {0}: its profile was not read")]
    Drive(String),
    /// Too many labels.
    #[error("there are more than 256 labels of phases")]
    Labels,
}

impl From<TopologyError> for ScenarioError {
    fn from(error: TopologyError) -> Self {
        Self::Topology(error)
    }
}

/// The labels of phases in order of appearance; the simulator uses their numbers.
#[must_use]
pub fn labels(experiment: &Experiment) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let of_group = |group: &Group| -> Vec<String> {
        if group.phases.is_empty() {
            vec![group.label.clone()]
        } else {
            group.phases.iter().map(|phase| phase.label.clone()).collect()
        }
    };
    if experiment.trace.is_some() {
        labels.push("load".to_owned());
    }
    for label in experiment.workload.iter().flat_map(of_group) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels
}

/// The scenario of a point under a policy.
///
/// # Errors
/// If threads, drives or rates of the experiment do not exist.
pub fn build(
    experiment: &Experiment,
    policy: &PolicySpec,
    machine: Machine,
    models: &[(String, SsdModel)],
    seed: u64,
) -> Result<Scenario, ScenarioError> {
    let cores = policy.topology.unwrap_or(experiment.topology);
    let drives = drives(experiment, models)?;
    let workload = workload(experiment, cores, drives.len())?;
    Ok(Scenario {
        machine,
        family: Vec::new(),
        topology: topology(cores)?,
        threads: cores.threads,
        drives,
        workload,
        scheduled: None,
        duration_ns: policy.duration(experiment).0,
        warm_up_ns: 0,
        series_ns: experiment.series.0,
        seed,
        eager: false,
        sensors: sensors(experiment),
        goals: goals::goals(experiment),
        changes: Vec::new(),
    })
}

fn sensors(experiment: &Experiment) -> sim::Sensors {
    let default = sim::Sensors::default();
    experiment.sensors.map_or(default.clone(), |times| sim::Sensors {
        window_ns: times.window.0,
        lag_ns: times.lag.0,
        meter: times.server.map(meter),
        ..default
    })
}

fn meter(meter: Meter) -> SensorModel {
    let uw = |milliwatts: u32| u64::from(milliwatts) * 1_000;
    SensorModel {
        window_ns: meter.window.0,
        lag_ns: meter.lag.0,
        update_ns: meter.update.0,
        quantum_uw: uw(meter.step_mw),
        noise_uw: uw(meter.noise_mw),
        gain_ppm: u64::from(meter.gain_percent) * 10_000,
        missing_ppm: meter.missing_ppm.into(),
    }
}

fn topology(cores: Cores) -> Result<Topology, TopologyError> {
    match cores.siblings {
        Siblings::Adjacent(false) => Topology::flat(cores.cores),
        Siblings::Adjacent(true) => Topology::paired(cores.cores),
        Siblings::Numbered(Numbering::Split) => Topology::split(cores.cores),
    }
}

pub(crate) fn drives(experiment: &Experiment, models: &[(String, SsdModel)]) -> Result<Vec<SsdModel>, ScenarioError> {
    let mut drives = Vec::new();
    for group in &experiment.drives {
        let found = models.iter().find(|(name, _)| *name == group.profile);
        let (_, model) = found.ok_or_else(|| ScenarioError::Drive(group.profile.clone()))?;
        drives.extend(std::iter::repeat_n(model.clone(), usize::from(group.count)));
    }
    Ok(drives)
}

pub(crate) fn workload(experiment: &Experiment, cores: Cores, drives: usize) -> Result<Workload, ScenarioError> {
    let labels = labels(experiment);
    if labels.len() > 256 {
        return Err(ScenarioError::Labels);
    }
    let number = u16::try_from(drives).unwrap_or(u16::MAX);
    let traced = experiment.trace.as_ref().map(|trace| replay::connections(trace, cores, number));
    let mut connections = traced.unwrap_or_default();
    for group in &experiment.workload {
        let wrong = |reason: &str| ScenarioError::Group { group: group.name.clone(), reason: reason.to_owned() };
        let on = Placement::new(group, cores, drives).map_err(wrong)?;
        let phases = phases(group, &labels).map_err(wrong)?;
        let one = |at: u32| Connection {
            thread: on.thread(at),
            drives: on.drives(at, group.connections),
            request: kind(&group.request),
            depth: match group.depth {
                Depth::AtMost(depth) => depth,
                Depth::Open => u32::MAX,
            },
            spacing: spacing(group.spacing),
            phases: phases.clone(),
            think_ns: group.think_time.0,
        };
        connections.extend((0..group.connections).map(one));
    }
    let background = experiment.background.iter().map(|class| sim::Background {
        drives: (0, number),
        backlog_bytes: class.backlog_bytes,
        bytes_per_s: class.bytes_per_s,
        max_bytes_per_s: class.max_bytes_per_s,
        rate_ppm: class.rate_percent.saturating_mul(10_000),
        io_bytes: class.size.0,
        write: class.writes,
        ns_per_kib: class.ns_per_kib,
    });
    Ok(Workload { connections, background: background.collect() })
}

/// Threads and drives of a group's connections.
struct Placement {
    threads: (u16, u16),
    drives: (u16, u16),
    each: bool,
    /// Connections of a host, which share a thread.
    together: u32,
}

impl Placement {
    fn new(group: &Group, cores: Cores, drives: usize) -> Result<Self, &'static str> {
        let threads = cores.threads;
        let drives = u16::try_from(drives).map_err(|_| "there are too many drives")?;
        let threads = match group.threads {
            Selection::All => (0, threads),
            Selection::Range(from, count) if u32::from(from) + u32::from(count) <= u32::from(threads) => (from, count),
            Selection::Range(..) => return Err("it names I/O threads that there are not"),
        };
        let (range, each) = match group.drives {
            DriveUse::One => ((0, drives), false),
            DriveUse::All => ((0, drives), true),
            DriveUse::Range(from, count) => ((from, count), true),
        };
        let exist = u32::from(range.0) + u32::from(range.1) <= u32::from(drives) && range.1 > 0;
        if group.connections == 0 || threads.1 == 0 || !exist {
            return Err("it needs a connection, an I/O thread, and drives that there are");
        }
        let hosts = group.hosts.unwrap_or(group.connections);
        if hosts == 0 || !group.connections.is_multiple_of(hosts) {
            return Err("its hosts need the same number of connections each");
        }
        let together = if cores.placement == ThreadPlacement::Host { group.connections / hosts } else { 1 };
        Ok(Self { threads, drives: range, each, together })
    }

    fn thread(&self, connection: u32) -> u16 {
        self.threads.0 + (connection / self.together % u32::from(self.threads.1)) as u16
    }

    /// Assigns drives in equal blocks, so that connections of an I/O thread use different drives.
    fn drives(&self, connection: u32, connections: u32) -> (u16, u16) {
        if self.each {
            return self.drives;
        }
        let at = u64::from(connection) * u64::from(self.drives.1) / u64::from(connections);
        (self.drives.0 + at as u16, 1)
    }
}

fn phases(group: &Group, labels: &[String]) -> Result<Vec<sim::Phase>, &'static str> {
    let number = |label: &String| labels.iter().position(|known| known == label).unwrap_or(0) as u8;
    let rate = |rate: Rate| connection_rate(group, rate);
    match (group.rate, group.phases.is_empty()) {
        (Some(every), true) => {
            Ok(vec![sim::Phase { label: number(&group.label), length_ns: 1_000_000_000, rate: rate(every)? }])
        }
        (None, false) => {
            let phase = |phase: &super::schema::Phase| {
                Ok(sim::Phase { label: number(&phase.label), length_ns: phase.length.0, rate: rate(phase.rate)? })
            };
            group.phases.iter().map(phase).collect()
        }
        _ => Err("give either `rate` or `phase`s"),
    }
}

fn connection_rate(group: &Group, rate: Rate) -> Result<sim::Rate, &'static str> {
    let each = |all: f64| sim::Rate::PerSecond(all / f64::from(group.connections));
    match rate {
        Rate::PerSecond(0.0) | Rate::Off => Ok(sim::Rate::Off),
        Rate::PerSecond(rate) => Ok(each(rate)),
        Rate::Share(share) => group.max_iops.map(|max| each(share * max)).ok_or("a rate in % needs `max_iops`"),
        Rate::Unlimited if group.depth == Depth::Open => Err("an unlimited rate needs a depth"),
        Rate::Unlimited => Ok(sim::Rate::Unlimited),
    }
}

fn kind(request: &Request) -> Kind {
    match request {
        Request::Plain { size, writes, sequential } => Kind::Plain {
            writes_ppm: (writes.clamp(0.0, 1.0) * 1e6).round() as u32,
            bytes: size.0,
            sequential: *sequential,
        },
        Request::Steps { steps, bytes_in, bytes_out } => {
            let step = |step: &super::schema::Step| sim::Step {
                reads: step.reads,
                writes: step.writes,
                bytes: step.size.0,
                parity_kib: step.parity.0 / 1024,
            };
            Kind::Steps { steps: steps.iter().map(step).collect(), bytes_in: bytes_in.0, bytes_out: bytes_out.0 }
        }
    }
}

fn spacing(spacing: Spacing) -> sim::Spacing {
    match spacing {
        Spacing::Paced => sim::Spacing::Paced,
        Spacing::Poisson => sim::Spacing::Poisson,
        Spacing::Mmpp { ratio, high_share, high } => sim::Spacing::Mmpp { ratio, high_share, high_ns: high.0 as f64 },
    }
}

/// A policy's settings as text.
#[must_use]
pub fn settings(policy: &PolicySpec) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    policy.settings.iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::experiment::schema::SensorTimes;

    #[test]
    fn by_host_its_connections_share_a_thread() {
        let group = "name = 'g'\nconnections = 6\nrequest = { kind = 'plain', size = '4KiB' }\ndepth = 1\nrate = 1";
        let threads = |more: &str, placement| {
            let group: Group = toml::from_str(&format!("{group}\n{more}")).unwrap();
            let cores = Cores { cores: 2, siblings: Siblings::Adjacent(false), threads: 2, placement };
            Placement::new(&group, cores, 1).map(|dealt| (0..6).map(|at| dealt.thread(at)).collect::<Vec<_>>())
        };
        assert_eq!(threads("hosts = 3", ThreadPlacement::Host).unwrap(), [0, 0, 1, 1, 0, 0]);
        assert_eq!(threads("hosts = 3", ThreadPlacement::Queue).unwrap(), [0, 1, 0, 1, 0, 1]);
        assert_eq!(threads("", ThreadPlacement::Host).unwrap(), [0, 1, 0, 1, 0, 1], "each its own host");
        for uneven in ["hosts = 4", "hosts = 0"] {
            assert!(threads(uneven, ThreadPlacement::Host).unwrap_err().contains("same number"));
        }
    }

    #[test]
    fn units_of_a_meter_are_converted() {
        let read = |text: &str| toml::from_str::<SensorTimes>(text);
        let exact = read("window = '20ms'").unwrap();
        assert_eq!((exact.window.0, exact.lag.0, exact.server), (20_000_000, 10_000_000, None));
        let ipmi = "server = { window = '3s', lag = '1300ms', update = '1s', step_mw = 1000, noise_mw = 500, missing_ppm = 7 }";
        let expected = SensorModel {
            window_ns: 3_000_000_000,
            lag_ns: 1_300_000_000,
            update_ns: 1_000_000_000,
            quantum_uw: 1_000_000,
            noise_uw: 500_000,
            gain_ppm: 1_000_000,
            missing_ppm: 7,
        };
        assert_eq!(read(ipmi).unwrap().server.map(meter), Some(expected));
        assert!(read("server = { window = '3s', lag = '1s' }").is_err(), "a meter has a time between two readings");
    }
}
