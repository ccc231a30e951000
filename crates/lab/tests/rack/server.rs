//! Servers of a rack, drawn from a seed, and their scenarios.
//!
//! **Time is shortened 50 times** against PASS: an interval of 20 ms stands for 1 s. So are the sensor, the period of the CPU quota and the control
//! period of the power limit. **A request costs 40 times the CPU time** of the profile, so that few requests suffice to need all cores.

use std::path::Path;
use std::sync::LazyLock;

use pilotlight_lab::simulated::machine::{MachineFiles, calibration_of};
use pilotlight_plant::{Goals, Topology};
use pilotlight_policy::pass::profile::Profile;
use pilotlight_sim::machine::{Limits, Machine};
use pilotlight_sim::rng::{Purpose, Stream};
use pilotlight_sim::scenario::{Connection, Kind, Phase, Rate, Scenario, Sensors, Spacing, Workload};
use pilotlight_sim::sensor::SensorModel;
use pilotlight_sim::ssd::SsdModel;

pub(crate) const MS: u64 = 1_000_000;
/// Excluded from results: the first division, from floors.
pub(crate) const WARM_UP_NS: u64 = 200 * MS;
/// Time in which the demand of a server stays the same, but for bursts.
const PHASE_NS: u64 = 400 * MS;
const PHASES: usize = 4;
/// Priorities of servers, from 0 on.
pub(crate) const PRIORITIES: usize = 3;
pub(crate) const DURATION_NS: u64 = WARM_UP_NS + PHASES as u64 * PHASE_NS;
/// An interval of `pass`, of its sensor, and of the results' series.
pub(crate) const INTERVAL_NS: u64 = 20 * MS;
/// Time between two samples of bandwidth, and between two calls of the policy.
const SAMPLE_NS: u64 = 4 * MS;
/// CPU time of a request, against the profile's.
const CPU_FACTOR: u32 = 40;

/// A size of the machine.
#[derive(Debug)]
pub(crate) struct Size {
    pub(crate) name: &'static str,
    pub(crate) cores: u16,
    pub(crate) drives: u16,
    /// Part of the machine's network, in per cent.
    network_percent: u32,
}

/// The second has half the drives; the third is half the machine in everything.
pub(crate) const SIZES: [Size; 3] = [
    Size { name: "8 cores, 10 drives", cores: 8, drives: 10, network_percent: 100 },
    Size { name: "8 cores, 5 drives", cores: 8, drives: 5, network_percent: 100 },
    Size { name: "4 cores, 5 drives", cores: 4, drives: 5, network_percent: 50 },
];

/// What hosts ask of a server in a phase, by its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Idle,
    Half,
    Busy,
    Bursts,
}

/// A server of the rack.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) size: usize,
    pub(crate) priority: u8,
    pub(crate) request_bytes: u32,
    pub(crate) writes_ppm: u32,
    demands: [Demand; PHASES],
    seed: u64,
}

fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name))
        .expect("a file of the repository")
}

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let profile = text("profiles/pass-sys-111c-nr.toml");
    let files =
        MachineFiles::parse(&profile, &text(&calibration_of(&profile).expect("its calibration"))).expect("valid files");
    files.machine(&[]).expect("a machine")
});
static DRIVE: LazyLock<SsdModel> =
    LazyLock::new(|| SsdModel::parse(&text("profiles/ssd/d7-p5510.toml")).expect("a drive"));

impl Size {
    fn machine(&self) -> Machine {
        let mut machine = MACHINE.clone();
        let part = |uw: &mut u64| *uw = *uw * u64::from(self.cores) / 8;
        let power = &mut machine.power;
        for by_state in [&mut power.cpu_uw, &mut power.others_uw] {
            [&mut by_state.poll, &mut by_state.slow, &mut by_state.shallow, &mut by_state.deep]
                .into_iter()
                .for_each(part);
        }
        power.uncore_uw.iter_mut().for_each(part);
        power.physical_cores = self.cores.into();
        power.drives_idle_uw = power.drives_idle_uw * u64::from(self.drives) / 10;
        machine.network.port_mbit_s = machine.network.port_mbit_s * self.network_percent / 100;
        let poll = &mut machine.poll;
        for ns in [&mut poll.receive_ns, &mut poll.submit_ns, &mut poll.complete_ns, &mut poll.respond_ns] {
            *ns *= CPU_FACTOR;
        }
        machine.limits =
            Limits { quota_period_ns: 4 * MS, quota_slice_ns: MS / 5, quota_of_main: false, power_period_ns: MS / 10 };
        machine
    }

    /// The text of PASS's profile for this size: the machine's part of the powers, of configurations whose cores divide.
    pub(crate) fn profile_text(&self) -> String {
        let pass = Profile::named("pass-xeon-gold-6430").expect("comes with the program");
        let divisor = 8 / u64::from(self.cores);
        let divides = |cores: u16| u64::from(cores).is_multiple_of(divisor);
        let rows = pass.cpu.rows().iter().filter(|row| divides(row.cores)).map(|row| {
            format!(
                "{{ power_uw = {}, cores = {}, quota_ppm = {}, limit_uw = {}, p99_interval = {:?} }}",
                row.power_uw / divisor,
                u64::from(row.cores) / divisor,
                row.quota_ppm / divisor,
                row.limit_uw / divisor,
                row.p99_interval
            )
        });
        let rows: Vec<String> = rows.collect();
        let ssd = &pass.ssd;
        format!(
            "name = \"{}\"\n[others]\nmost_uw = {}\n[ssd]\ndrives = {}\nidle_uw = {}\nread_uw = {:.0}\nread_bytes_per_s = {}\n\
             written_uw = {:.0}\nwritten_bytes_per_s = {}\nfloor_bytes_per_s = {}\n[cpu]\nrows = [\n{}\n]\n",
            self.name,
            pass.others_uw / divisor,
            self.drives,
            ssd.idle_uw,
            ssd.read_slope * ssd.most.read,
            ssd.most.read,
            ssd.written_slope * ssd.most.written,
            ssd.most.written,
            ssd.floor_bytes_per_s,
            rows.join(",\n")
        )
    }

    pub(crate) fn profile(&self) -> Profile {
        Profile::parse(&self.profile_text()).expect("a valid profile")
    }
}

impl Server {
    /// A server with all that its size can draw, for the size's floor and full power.
    pub(crate) fn busiest(size: usize) -> Self {
        Self {
            size,
            priority: 0,
            request_bytes: 131_072,
            writes_ppm: 1_000_000,
            demands: [Demand::Busy; PHASES],
            seed: 1,
        }
    }

    /// Server number `at` of a seed: the first servers of a larger rack are those of a smaller one.
    pub(crate) fn draw(seed: u64, at: usize) -> Self {
        let mut stream = Stream::new(seed, Purpose::Machine, at as u64);
        let mut pick = |count: usize| stream.below(count as u64) as usize;
        let demand = |pick: &mut dyn FnMut(usize) -> usize| {
            [Demand::Idle, Demand::Idle, Demand::Half, Demand::Half, Demand::Busy, Demand::Bursts][pick(6)]
        };
        Self {
            size: at % SIZES.len(),
            priority: pick(PRIORITIES) as u8,
            request_bytes: [65_536, 131_072, 262_144][pick(3)],
            writes_ppm: [0, 300_000, 1_000_000][pick(3)],
            demands: std::array::from_fn(|_| demand(&mut pick)),
            seed: seed * 1000 + at as u64,
        }
    }

    pub(crate) fn size(&self) -> &'static Size {
        &SIZES[self.size]
    }

    /// Requests a second that cores, drives and network can serve, whichever is the least.
    fn capacity(&self) -> f64 {
        let (size, bytes, writes) = (self.size(), f64::from(self.request_bytes), f64::from(self.writes_ppm) / 1e6);
        let poll = MACHINE.poll;
        let request_ns =
            f64::from((poll.receive_ns + poll.submit_ns + poll.complete_ns + poll.respond_ns) * CPU_FACTOR);
        let by_cpu = f64::from(size.cores) * 1e9 / request_ns;
        let by_drives = f64::from(size.drives) / (bytes * ((1.0 - writes) / 7.34e9 + writes / 3.77e9));
        let port = f64::from(MACHINE.network.port_mbit_s * size.network_percent / 100) * 1e6 / 8.0;
        by_cpu.min(by_drives).min(port / (bytes * writes.max(1.0 - writes)))
    }

    fn phases(&self) -> Vec<Phase> {
        let connections = f64::from(self.connections());
        let phase = |length_ns: u64, part: f64| Phase {
            label: 0,
            length_ns,
            rate: Rate::PerSecond(self.capacity() * part / connections),
        };
        let of = |(at, demand): (usize, &Demand)| {
            let warm_up_ns = if at == 0 { WARM_UP_NS } else { 0 };
            let length_ns = PHASE_NS + warm_up_ns;
            match demand {
                Demand::Idle => vec![phase(length_ns, 0.02)],
                Demand::Half => vec![phase(length_ns, 0.4)],
                Demand::Busy => vec![phase(length_ns, 0.85)],
                Demand::Bursts => {
                    let quarter_ns = PHASE_NS / 4;
                    let burst = [phase(quarter_ns, 0.05), phase(quarter_ns, 0.8)];
                    let first = (warm_up_ns > 0).then(|| phase(warm_up_ns, 0.05));
                    first.into_iter().chain(burst.clone()).chain(burst).collect()
                }
            }
        };
        self.demands.iter().enumerate().flat_map(of).collect()
    }

    fn connections(&self) -> u16 {
        self.size().cores * 2
    }

    /// What it does in `duration_ns`, from a budget in microwatts on.
    pub(crate) fn scenario(&self, budget_uw: u64, duration_ns: u64) -> Scenario {
        let size = self.size();
        let connection = |at: u16| Connection {
            thread: at % size.cores,
            drives: (0, size.drives),
            request: Kind::Plain { writes_ppm: self.writes_ppm, bytes: self.request_bytes, sequential: false },
            depth: 64,
            spacing: Spacing::Poisson,
            phases: self.phases(),
            think_ns: 0,
        };
        let meter = SensorModel {
            window_ns: INTERVAL_NS,
            lag_ns: SAMPLE_NS,
            update_ns: INTERVAL_NS,
            quantum_uw: 1_000_000,
            noise_uw: 0,
            gain_ppm: 1_000_000,
            missing_ppm: 0,
        };
        Scenario {
            machine: size.machine(),
            family: Vec::new(),
            topology: Topology::flat(size.cores).expect("cores"),
            threads: size.cores,
            drives: vec![DRIVE.clone(); size.drives.into()],
            workload: Workload {
                connections: (0..self.connections()).map(connection).collect(),
                ..Workload::default()
            },
            scheduled: None,
            duration_ns,
            warm_up_ns: WARM_UP_NS,
            series_ns: INTERVAL_NS,
            seed: self.seed,
            sensors: Sensors { window_ns: SAMPLE_NS, lag_ns: MS, silent: Vec::new(), meter: Some(meter) },
            goals: vec![(0, Goals { budget_uw: Some(budget_uw), ..Goals::default() })],
            changes: Vec::new(),
            eager: false,
        }
    }

    /// Policy `pass` for it.
    pub(crate) fn policy(&self) -> Box<dyn pilotlight_plant::Policy> {
        let profile = self.size().profile_text();
        let settings = [("interval", "20ms"), ("sample_interval", "4ms"), ("profile", &profile)];
        pilotlight_policy::registry::build("pass", &settings).expect("valid settings")
    }
}
