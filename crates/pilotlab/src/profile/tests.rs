//! Profiles recover the constants of simulated machines.

use pilotlight_policy::pass::profile::Profile;
use pilotlight_sim::machine::{Family, Machine};
use pilotlight_sim::ssd::SsdModel;

use super::file::{Cpu, ProfileFile};
use super::fit::{CpuFit, DriveFit};
use super::grid::Search;
use super::journal::Record;
use super::search::{self, Progress};
use super::simulated::Simulated;
use super::subject::{Configuration, CpuSubject, DriveMeasured, Measured};
use super::*;

const PROFILE: &str = include_str!("../../../../profiles/sandman-epyc-9454p.toml");
const CALIBRATION: &str = include_str!("../../../../profiles/calibration/sandman-epyc-9454p.toml");
const DRIVE: &str = include_str!("../../../../profiles/ssd/pm1743.toml");
const MS: u64 = 1_000_000;
const STEP_UW: u64 = 2_000_000;

/// SANDMAN's machine with other constants, so that defaults are not mistaken for recovered values.
fn machine(poll_uw: u64, loop_ns: u32, thread_ns: u32) -> Machine {
    let mut machine = MachineFiles::parse(PROFILE, CALIBRATION).unwrap().machine(&[]).unwrap();
    machine.power.cpu_uw.poll = poll_uw;
    machine.power.family = Family {
        package_ppm: 0,
        sibling_saves_ppm: 0,
        frequency_exponent: 2.0,
        others_exponent: 1.0,
        kernel_idles_deep: false,
        exit_at_rest: false,
    };
    (machine.poll.loop_ns, machine.poll.thread_ns) = (loop_ns, thread_ns);
    machine.speed.sibling_gain_ppm = 0;
    (machine.limits.quota_period_ns, machine.limits.power_period_ns) = (MS, MS / 10);
    machine.limits.quota_slice_ns = MS / 20; // the share of the period that the kernel's slice has
    machine
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: ProfileArgs,
}

/// Runs `pilotlab profile` with these arguments and `--out`.
fn command(out: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let own = ["profile", "--json", "--each", "1ms", "--out", out.to_str().unwrap()];
    let line = own.iter().chain(arguments);
    let line = <Line as clap::Parser>::try_parse_from(line)?;
    run(&line.args).map(drop)
}

#[test]
fn one_command_makes_a_profile_that_the_policy_loads() {
    const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("own.toml");
    let (machine, drive) = (format!("{FILES}sandman-epyc-9454p.toml"), format!("{FILES}ssd/pm1743.toml"));
    let simulated = ["--simulated", &machine, "--cores", "2", "--step", "50W", "--model", &drive];
    command(&out, &simulated).unwrap();
    let profile = Profile::parse(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!((profile.cpu.top().cores, profile.ssd.drives), (2, 1));
    // What is missing is said before anything is measured.
    let out = folder.path().join("none.toml");
    for (arguments, expected) in [(&["--sensor", "modelled"][..], "<DEVICE|FILE>"), (&["/no/such/drive"], "--spec")] {
        let error = format!("{:#}", command(&out, arguments).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
    let found = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!found.into_iter().any(|name| name.to_string_lossy().starts_with("none")));
}

fn profiled(machine: Machine, path: &Path) -> (Vec<Measured>, Axes) {
    let mut subject = Simulated::new(machine, Vec::new(), (4, 8), 5 * MS).unwrap();
    let axes = subject.axes().clone();
    let mut record = Record::open(path, "cpu", &1, false).unwrap();
    search::cpu(&mut subject, STEP_UW, &mut record, &mut Progress::new(Duration::ZERO, true)).unwrap();
    (record.all, axes)
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn a_cpu_s_constants_are_recovered_within_their_intervals() {
    for (poll_uw, loop_ns, thread_ns) in [(300_000_000, 200, 300), (500_000_000, 900, 120)] {
        let folder = tempfile::tempdir().unwrap();
        let made = machine(poll_uw, loop_ns, thread_ns);
        let power = made.power;
        let (all, axes) = profiled(made, &folder.path().join("sim.toml"));
        let fit = CpuFit::new(&all, &axes, 8, SIMULATED_STEP_W);
        let core_w = (poll_uw - power.cpu_uw.shallow) as f64 / f64::from(power.physical_cores) / 1e6;
        let line = fit.power_w.as_ref().unwrap();
        assert!(line.slope.is_bounded() && line.slope.contains(core_w), "{core_w} W a core: {line:?}");
        assert!(line.slope.high - line.slope.low < 0.2 * core_w, "{line:?}");
        let line = fit.interval_ns.as_ref().unwrap();
        let (fixed, each) = (f64::from(loop_ns), f64::from(thread_ns));
        assert!(line.base.contains(fixed) && line.slope.contains(each), "{fixed} and {each} ns: {line:?}");
        assert!(line.slope.high - line.slope.low < 0.2 * each, "{line:?}");
        let line = fit.limit_w.as_ref().unwrap();
        assert!(line.slope.is_bounded() && line.slope.contains(1.0), "a watt of limit is a watt: {line:?}");
        assert!(line.slope.high - line.slope.low < 0.3, "{line:?}");
    }
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn the_policy_loads_the_profile_and_finds_the_best_configuration_of_each_budget() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sim.toml");
    let (all, axes) = profiled(machine(300_000_000, 200, 300), &path);
    let rows = Search { axes: &axes, step_uw: STEP_UW }.rows(&all);
    let rows: Vec<Row> = rows.iter().map(|row| file_row(row, 0.0)).collect();
    let mut profile =
        ProfileFile { cpu: Some(Cpu { notes: Vec::new(), rows: rows.clone() }), ..ProfileFile::default() };
    profile.name = "sim".to_owned();
    profile.ssd = Some(Ssd {
        drives: 1,
        read_uw: 1,
        read_bytes_per_s: 1,
        written_uw: 1,
        written_bytes_per_s: 1,
        ..Ssd::default()
    });
    profile.write(&path).unwrap();
    let loaded = Profile::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let top = loaded.cpu.top();
    assert_eq!((top.cores, top.quota_ppm, top.limit_uw), (4, axes.full_ppm(4) + CORE_PPM, axes.most_uw()));
    for row in rows {
        let chosen = loaded.cpu.configuration(row.power_uw);
        assert!(chosen.p99_interval <= row.p99_interval, "{chosen:?} for {row:?}");
    }
}

#[test]
fn drives_constants_are_recovered_within_their_intervals() {
    let folder = tempfile::tempdir().unwrap();
    for (read_4k_nj, write_4k_nj) in [(18_000, 30_000), (7_000, 44_000)] {
        let mut made = machine(300_000_000, 200, 300);
        (made.power.read_4k_nj, made.power.write_4k_nj) = (read_4k_nj, write_4k_nj);
        let idle_w = made.power.drives_idle_uw as f64 / 1e6;
        let mut model = SsdModel::parse(DRIVE).unwrap();
        model.power = None; // a ceiling would bend the line
        let mut subject = Simulated::new(made, vec![model], (4, 4), 20 * MS).unwrap();
        let path = folder.path().join(format!("{read_4k_nj}.toml"));
        let mut record: Record<DriveMeasured> = Record::open(&path, "ssd", &1, false).unwrap();
        search::drives(&mut subject, true, &mut record, &mut Progress::new(Duration::ZERO, true)).unwrap();
        let fit = DriveFit::new(&record.all, subject.drives(), SIMULATED_STEP_W).unwrap();
        let per_gb = |nj: u64| nj as f64 * 1e-9 / 4096.0 * 1e9;
        let written = fit.written_w_per_gb_s.unwrap();
        assert!(fit.idle_w.contains(idle_w), "{idle_w} W: {fit:?}");
        assert!(fit.read_w_per_gb_s.contains(per_gb(read_4k_nj)), "{}: {fit:?}", per_gb(read_4k_nj));
        assert!(written.contains(per_gb(write_4k_nj)), "{}: {fit:?}", per_gb(write_4k_nj));
        assert!(written.high - written.low < 0.2 * written.value, "{fit:?}");
    }
}

/// The applied configuration is the measured one.
#[test]
fn restrictions_lower_power_and_lengthen_polling_intervals() {
    let mut subject = Simulated::new(machine(300_000_000, 200, 300), Vec::new(), (4, 8), 5 * MS).unwrap();
    let (most_uw, full_ppm) = (subject.axes().most_uw(), subject.axes().full_ppm(4));
    let mut measure = |cores, quota_ppm, limit_uw| {
        CpuSubject::measure(&mut subject, Configuration { cores, quota_ppm, limit_uw }).unwrap()
    };
    let all = measure(4, full_ppm, most_uw);
    let half = measure(4, full_ppm / 2, most_uw);
    let two = measure(2, full_ppm, most_uw);
    let limited = measure(4, full_ppm, (all.mean_w() * 0.98e6) as u64);
    assert!((all.used_cores - 4.0).abs() < 0.01 && (half.used_cores - 2.5).abs() < 0.1, "{all:?} {half:?}");
    assert!(half.mean_w() < all.mean_w() && two.mean_w() < all.mean_w() && limited.mean_w() < all.mean_w());
    assert!(two.p99_ns > all.p99_ns * 1.3 && limited.p99_ns > all.p99_ns, "{all:?} {two:?} {limited:?}");
    assert!(half.p99_ns < all.p99_ns * 1.05, "the interval cannot rank bandwidth: {half:?}");
}
