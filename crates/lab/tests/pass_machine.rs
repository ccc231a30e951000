//! PASS's simulated server compared with measurements of the paper's artifact: `cargo test -p pilotlight-lab --test pass_machine -- --nocapture` prints
//! each row with its deviation. Constants were fitted on these rows (see the calibration), so agreement is no evidence; the limits
//! below only bound the error of the fit.

use std::path::Path;

use pilotlight_lab::simulated::machine::{MachineFiles, calibration_of};
use pilotlight_plant::{Command, Kind, Next, Policy, Start, Topology, Unsupported, Wants};
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Connection, Kind as Request, Phase, Rate, Scenario, Sensors, Spacing, Workload};
use pilotlight_sim::ssd::SsdModel;

const MS: u64 = 1_000_000;

struct Row(u16, Option<u64>, Option<u64>, [f64; 3]);

/// Rows of `polling-interval-*.csv`: cores, RAPL limit in watts, CPU time in per cent of one CPU; measured p99 latency in us, thousand
/// requests a second, watts. Ten drives, 16 jobs on each, 4 KiB random writes at depth 1.
const ROWS: [Row; 19] = [
    Row(1, None, None, [334.0, 1_096.0, 370.0]),
    Row(2, None, None, [139.0, 1_941.0, 390.0]),
    Row(3, None, None, [133.0, 2_535.0, 417.0]),
    Row(4, None, None, [131.0, 2_744.0, 437.0]),
    Row(6, None, None, [92.0, 2_907.0, 460.0]),
    Row(8, None, None, [91.0, 3_311.0, 464.0]),
    Row(8, Some(160), None, [92.0, 3_311.0, 383.0]),
    Row(8, Some(140), None, [93.0, 2_955.0, 336.0]),
    Row(8, Some(130), None, [106.0, 2_945.0, 332.0]),
    Row(8, Some(120), None, [117.0, 2_616.0, 314.0]),
    Row(8, Some(110), None, [290.0, 1_692.0, 297.0]),
    Row(8, Some(100), None, [295.0, 1_703.0, 297.0]),
    Row(1, None, Some(1), [200_279.0, 3.6, 317.0]),
    Row(1, None, Some(5), [95_945.0, 29.5, 320.0]),
    Row(1, None, Some(10), [90_702.0, 75.0, 330.0]),
    Row(1, None, Some(15), [85_459.0, 117.0, 335.0]),
    Row(1, None, Some(25), [611.0, 226.0, 340.0]),
    Row(1, None, Some(50), [482.0, 471.0, 350.0]),
    Row(1, None, Some(100), [334.0, 1_096.0, 370.0]),
];

struct Hold(Option<u64>, Option<u64>);

impl Policy for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        for (kind, value) in [(Kind::LimitUw, self.0), (Kind::QuotaPpm, self.1)] {
            let knob = start.capabilities.knobs_of(kind).next().map(|(knob, _)| knob);
            out.extend(value.zip(knob).map(|(value, knob)| Command::Set { knob, value }));
        }
        Ok(Next::NEVER)
    }
}

fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name)).unwrap()
}

fn scenario(cores: u16, duration_ns: u64) -> Scenario {
    let profile = text("profiles/pass-sys-111c-nr.toml");
    let files = MachineFiles::parse(&profile, &text(&calibration_of(&profile).unwrap())).unwrap();
    let mut machine = files.machine(&[]).unwrap();
    machine.power.family.kernel_idles_deep = false; // member `idle-shallow`: 317 W at 1 % of one CPU
    machine.limits.quota_of_main = true; // SPDK's reactors are all in one group
    let job = |at: u16| Connection {
        thread: at % 8,
        drives: (at / 16, 1),
        request: Request::Plain { writes_ppm: 1_000_000, bytes: 4_096, sequential: false },
        depth: 1,
        spacing: Spacing::Poisson,
        phases: vec![Phase { label: 0, length_ns: u64::MAX, rate: Rate::Unlimited }],
        think_ns: 0,
    };
    Scenario {
        machine,
        family: Vec::new(),
        topology: Topology::flat(cores).unwrap(),
        threads: 8,
        drives: vec![SsdModel::parse(&text("profiles/ssd/d7-p5510.toml")).unwrap(); 10],
        workload: Workload { connections: (0..160).map(job).collect(), ..Workload::default() },
        scheduled: None,
        duration_ns,
        warm_up_ns: duration_ns / 3,
        series_ns: duration_ns / 30,
        seed: 1,
        sensors: Sensors::default(),
        goals: Vec::new(),
        changes: Vec::new(),
        eager: false,
    }
}

/// p99 latency in us, thousand requests a second, and watts of the server, of its CPU, and of all parts except CPU and drives.
fn simulated(cores: u16, limit_w: Option<u64>, quota_percent: Option<u64>) -> [f64; 5] {
    let scenario = scenario(cores, if quota_percent.is_some() { 600 * MS } else { 90 * MS });
    let quota_ppm = quota_percent.map(|percent| percent * 10_000);
    let policy = Hold(limit_w.map(|watts| watts * 1_000_000), quota_ppm);
    let outcome = run(&scenario, Box::new(policy)).unwrap();
    let seconds = outcome.measured_ns as f64 / 1e9;
    let latency = &outcome.latency[0].1;
    let watts = |uj: u64| uj as f64 / 1e6 / seconds;
    let energy = outcome.energy;
    let measured = [latency.quantile(0.99) as f64 / 1e3, latency.count() as f64 / 1e3 / seconds];
    [measured[0], measured[1], watts(energy.system_uj()), watts(energy.cpu_uj), watts(energy.others_uj)]
}

#[test]
fn the_simulated_server_is_close_to_its_fitted_rows() {
    println!(
        "cores  limit  quota |   p99 us measured |  kIOPS measured deviation |  watts measured deviation |    CPU others"
    );
    let (mut watts, mut kiops) = (Vec::new(), Vec::new());
    for Row(cores, limit_w, percent, [p99, thousand, system_w]) in ROWS {
        let own = simulated(cores, limit_w, percent);
        let or = |value: Option<u64>, unit: &str| value.map_or("-".to_owned(), |value| format!("{value} {unit}"));
        let deviations = [(own[1] / thousand - 1.0) * 100.0, (own[2] / system_w - 1.0) * 100.0];
        println!(
            "{cores:>5} {:>6} {:>6} | {:>8.0} {p99:>8} | {:>6.0} {thousand:>8} {:>7.1} % | {:>6.1} {system_w:>8} {:>7.1} % | {:>6.1} {:>6.1}",
            or(limit_w, "W"),
            or(percent, "%"),
            own[0],
            own[1],
            deviations[0],
            own[2],
            deviations[1],
            own[3],
            own[4]
        );
        kiops.push((percent, deviations[0].abs()));
        watts.push(deviations[1].abs());
    }
    let most = |all: &mut dyn Iterator<Item = f64>| all.fold(0.0, f64::max);
    let (power, of_quota) =
        (most(&mut watts.iter().copied()), most(&mut kiops.iter().filter(|one| one.0.is_some()).map(|one| one.1)));
    let others = most(&mut kiops.iter().filter(|one| one.0.is_none()).map(|one| one.1));
    println!(
        "largest deviation: {power:.1} % of watts, {others:.1} % of requests without a quota, {of_quota:.1} % with one"
    );
    assert!(power < 8.0 && others < 20.0, "{power} % and {others} %");
}
