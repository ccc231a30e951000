//! PACER's simulated server: power determined by Table I, power of the paper's models (errata 16), and performance at the
//! paper's two pressures (printed with `-- --nocapture`). Agreement with fitted values is not evidence.

use std::path::Path;

use pilotlight_lab::simulated::hold::Hold;
use pilotlight_lab::simulated::machine::{MachineFiles, calibration_of};
use pilotlight_plant::Topology;
use pilotlight_sim::engine::capabilities;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Connection, Kind, Phase, Rate, Scenario, Sensors, Spacing, Workload};
use pilotlight_sim::ssd::SsdModel;

const MS: u64 = 1_000_000;
const CORES: u16 = 96;
const DRIVES: u16 = 24;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

fn files() -> MachineFiles {
    let profile = text("profiles/pacer-dorado-6000.toml");
    MachineFiles::parse(&profile, &text(&calibration_of(&profile).unwrap())).unwrap()
}

fn drive() -> SsdModel {
    SsdModel::parse(&text("profiles/ssd/pacer-ssd.toml")).unwrap()
}

/// 900 host threads with random 8 KiB requests, 70 % reads, at a rate or unlimited.
fn scenario(rate: Rate, duration_ms: u64) -> Scenario {
    let threads = 900;
    let each = match rate {
        Rate::PerSecond(all) => Rate::PerSecond(all / f64::from(threads)),
        other => other,
    };
    let connection = |index: u32| Connection {
        thread: (index % u32::from(CORES)) as u16,
        drives: (0, DRIVES),
        request: Kind::Plain { writes_ppm: 300_000, bytes: 8_192, sequential: false },
        depth: 1,
        spacing: Spacing::Poisson,
        phases: vec![Phase { label: 0, length_ns: u64::MAX, rate: each }],
        think_ns: 0,
    };
    Scenario {
        machine: files().machine(&[]).unwrap(),
        family: Vec::new(),
        topology: Topology::flat(CORES).unwrap(),
        threads: CORES,
        drives: vec![drive(); usize::from(DRIVES)],
        workload: Workload { connections: (0..threads).map(connection).collect(), ..Workload::default() },
        scheduled: None,
        duration_ns: duration_ms * MS,
        warm_up_ns: duration_ms / 2 * MS,
        series_ns: 10 * MS,
        seed: 1,
        sensors: Sensors::default(),
        goals: Vec::new(),
        changes: Vec::new(),
        eager: false,
    }
}

fn held(scenario: &Scenario, settings: &[(&str, &str)]) -> Outcome {
    let hold = Hold::read(settings, &capabilities(scenario)).unwrap();
    run(scenario, Box::new(hold)).unwrap()
}

fn watts(uj: u64, outcome: &Outcome) -> f64 {
    uj as f64 * 1e3 / outcome.measured_ns as f64
}

fn fact(key: &str) -> Vec<f64> {
    let files = files();
    let value = &files.facts.iter().find(|fact| fact.key == key).unwrap().value;
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|whole| whole as f64)).unwrap();
    value.as_array().unwrap().iter().map(number).collect()
}

/// The calculation in the comments of the profile.
#[test]
fn table_1_fixes_the_server() {
    let (load_w, idle_w, saves) = (fact("drive.load_w"), fact("drive.idle_w"), fact("drive.idle_saving_percent"));
    let server_w: Vec<f64> =
        idle_w.iter().zip(&saves).map(|(idle, saves)| 24.0 * (load_w[0] - idle) / saves * 100.0).collect();
    assert!((server_w[0] - 609.0).abs() < 0.5 && (server_w[1] - 606.0).abs() < 0.5, "{server_w:?}");
    let unloaded_w = (server_w[0] + server_w[1]) / 2.0;
    let light_w = unloaded_w + 24.0 * (load_w[1] - load_w[0]);
    let cpu_w = fact("share.cpu_and_drives_percent")[1] / 100.0 * light_w - 24.0 * load_w[1];
    assert!((cpu_w - 141.0).abs() < 1.0, "{cpu_w}");
    assert!((0.2 * light_w - 131.0).abs() < 0.5, "a saving of 20 % is {} W", 0.2 * light_w);
    let power = files().machine(&[]).unwrap().power;
    assert!((power.cpu_uw.poll as f64 / 1e6 - cpu_w).abs() < 1.0);
    let rest_w = unloaded_w - 24.0 * load_w[0] - power.cpu_uw.poll as f64 / 1e6;
    assert!((power.others_uw.poll as f64 / 1e6 - rest_w).abs() < 1.0, "{rest_w}");
}

/// Lower CPU power in a family member is compensated by `others`: Table I has the sum.
#[test]
fn every_member_of_the_family_has_equal_idle_power() {
    let files = files();
    let unloaded_w = |changes: &[(String, toml::Value)]| {
        let power = files.machine(changes).unwrap().power;
        (power.cpu_uw.poll + power.others_uw.poll + power.drives_idle_uw) as f64 / 1e6
    };
    assert!((unloaded_w(&[]) - 607.5).abs() < 1.5, "Table I: 606 to 609 W");
    for member in &files.calibration.families {
        let changes: Vec<_> = member.set.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert!((unloaded_w(&changes) - 607.5).abs() < 1.5, "{}: {} W", member.name, unloaded_w(&changes));
    }
}

#[test]
fn power_of_drives_matches_table_1() {
    let energy = drive().energy.unwrap();
    let bytes = |load: f64| 600e3 * load * 8_192.0 / 24.0;
    for (load, watts) in [0.1, 0.5, 1.0].into_iter().zip(&fact("drive.load_w")[1..]) {
        let read = bytes(load) * 0.7 * energy.read_pj_per_byte as f64;
        let written = bytes(load) * 0.3 * energy.write_pj_per_byte as f64;
        let modelled = energy.awake_uw as f64 / 1e6 + (read + written) / 1e12;
        assert!((modelled - watts).abs() < 0.06, "{modelled} W at {load}");
    }
    let outcome = held(&scenario(Rate::Off, 200), &[]);
    assert!((watts(outcome.energy.drives_uj, &outcome) - 204.0).abs() < 0.1);
    assert!((watts(outcome.energy.system_uj(), &outcome) - 607.5).abs() < 1.5, "Table I: 606 to 609 W");
}

/// Errata 16: power is linear in active cores, and savings by frequency scale with their fraction.
#[test]
fn cpu_power_is_that_of_the_papers_models() {
    let power = files().machine(&[]).unwrap().power.cpu_uw;
    let (rest, all, dynamic) = (power.deep as f64, power.poll as f64, (power.poll - power.shallow) as f64);
    for (cores, percent) in [(96, 100.0), (48, 100.0), (1, 100.0), (96, 65.0), (48, 30.0), (12, 65.0)] {
        let (cores_text, frequency) = (cores.to_string(), format!("{percent}%"));
        let settings = [("cores", cores_text.as_str()), ("frequency", frequency.as_str()), ("others", "off")];
        let outcome = held(&scenario(Rate::Off, 100), &settings);
        let share = f64::from(cores) / 96.0;
        let expected = rest + share * ((all - rest) - dynamic * (1.0 - percent / 100.0));
        let drawn = watts(outcome.energy.cpu_uj, &outcome) * 1e6;
        assert!((drawn / expected - 1.0).abs() < 0.001, "{cores} cores at {percent} %: {drawn} and {expected} uW");
    }
}

#[test]
fn it_serves_the_paper_s_rates() {
    for (name, rate, settings) in [
        ("10 %, all cores", Rate::PerSecond(60_000.0), &[][..]),
        ("10 %, 63 % of cores", Rate::PerSecond(60_000.0), &[("cores", "60"), ("others", "off")][..]),
        ("10 %, 30 % of the frequency", Rate::PerSecond(60_000.0), &[("frequency", "30%")][..]),
        ("100 %, all cores", Rate::Unlimited, &[][..]),
        ("100 %, 30 % of the frequency", Rate::Unlimited, &[("frequency", "30%")][..]),
    ] {
        let outcome = held(&scenario(rate, 120), settings);
        let latency = &outcome.latency[0].1;
        let iops = latency.count() as f64 * 1e9 / outcome.measured_ns as f64;
        println!(
            "{name}: {iops:.0} requests a second, mean {:.0} us, p99 {:.0} us, CPU {:.1} W, drives {:.1} W, server {:.1} W",
            latency.mean() / 1e3,
            latency.quantile(0.99) as f64 / 1e3,
            watts(outcome.energy.cpu_uj, &outcome),
            watts(outcome.energy.drives_uj, &outcome),
            watts(outcome.energy.system_uj(), &outcome),
        );
        if settings.is_empty() {
            let expected = if rate == Rate::Unlimited { 600e3 } else { 60e3 };
            assert!((iops / expected - 1.0).abs() < 0.05, "{name}: {iops}");
        }
    }
}
