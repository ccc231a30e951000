//! Runs of small commands, and values calculated by hand.

use pilotlight_sensors::energy::Point;
use pilotlight_sensors::recording::Track;
use pilotlight_sensors::{Config, Counts, Domain, Kind, Origin, Part, Recording, Timing, Unit};

use super::*;
use crate::experiment::schema::SensorSpec;
use crate::record::DomainEnergy;

const S: u64 = 1_000_000_000;

fn options(script: &str) -> Options {
    let argv = ["sh", "-c", script].map(Into::into).to_vec();
    Options { argv, repeats: 3, ..Options::default() }
}

fn measured(options: &Options, sensors: &SensorSet, stop: &StopFlag) -> (Result<Vec<Round>, Error>, Vec<Event>) {
    let mut events = Vec::new();
    let rounds = measure(options, sensors, &Roots::default(), (false, None), stop, &mut |event| events.push(event));
    (rounds, events)
}

/// A sensor of 25 W with a new value every second.
fn meter(folder: &Path) -> SensorSet {
    let file = folder.join("watts");
    std::fs::write(&file, "25").unwrap();
    let text = format!("name = 'meter'\nfrom = {{ file = '{}' }}\nunit = 'W'\npart = 'system'", file.display());
    let config = Config::Command(toml::from_str(&text).unwrap());
    SensorSet::new(&[SensorSpec { config, interval: None, optional: false }], false, &Roots::default()).unwrap()
}

#[test]
fn every_run_is_measured_and_waits_precede_idle_baselines() {
    let options = Options { warmup: 1, idle_ns: 1, settle_ns: 1, ..options("exit 0") };
    let (rounds, events) = measured(&options, &SensorSet::default(), &StopFlag::default());
    let rounds = rounds.unwrap();
    assert_eq!(rounds.len(), 3);
    assert!(rounds.iter().all(|round| round.success && round.usage.page_faults > 0 && round.idle.is_some()));
    let (settling, idle) = (Event::Settling(1e-9), Event::Baseline(1e-9));
    let expected = [Event::Warmup(1), settling, idle, Event::Run(1), settling, idle, Event::Run(2), settling, idle];
    assert_eq!(events[..9], expected);
    let (_, events) = measured(&Options { warmup: 0, ..options }, &SensorSet::default(), &StopFlag::default());
    assert_eq!(events[..3], [idle, Event::Run(1), settling], "no wait before the first run");
}

#[test]
fn changed_settings_settle_before_the_first_run() {
    let (options, mut events) = (Options { settle_ns: 1, repeats: 1, ..options("exit 0") }, Vec::new());
    let (sensors, stop, roots) = (SensorSet::default(), StopFlag::default(), Roots::default());
    measure(&options, &sensors, &roots, (true, None), &stop, &mut |event| events.push(event)).unwrap();
    assert_eq!(events, [Event::Settling(1e-9), Event::Run(1)]);
}

#[test]
fn a_failed_command_is_an_error_unless_failures_are_ignored() {
    let failing = options("exit 7");
    let (rounds, events) = measured(&failing, &SensorSet::default(), &StopFlag::default());
    let error = rounds.unwrap_err().to_string();
    assert_eq!(error, "run 1 of 3 failed: sh -c 'exit 7' exited with status 7; --ignore-failure includes failed runs");
    assert_eq!(events.len(), 1, "no run follows");
    let killed =
        measured(&options("kill -9 $$"), &SensorSet::default(), &StopFlag::default()).0.unwrap_err().to_string();
    assert!(killed.contains("was killed by signal 9"), "{killed}");
    let ignored = Options { ignore_failure: true, ..failing };
    let (rounds, _) = measured(&ignored, &SensorSet::default(), &StopFlag::default());
    let rounds = rounds.unwrap();
    assert!(rounds.len() == 3 && rounds.iter().all(|round| !round.success));
    assert_eq!(Summary::new(&ignored, &SensorSet::default(), &rounds).failed, 3);
    let absent = Options { argv: vec!["no-such-program-here".into()], ..ignored };
    let error = measured(&absent, &SensorSet::default(), &StopFlag::default()).0.unwrap_err().to_string();
    assert!(error.starts_with("cannot start no-such-program-here"), "{error}");
}

#[test]
fn a_signal_ends_the_command_and_the_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let options = options(&format!("echo $$ > {}; exec sleep 1000", file.display()));
    let stop = StopFlag::default();
    let pid = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            loop {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                if text.ends_with('\n') {
                    stop.set(15);
                    return text.trim().to_owned();
                }
                std::thread::yield_now();
            }
        });
        let (rounds, _) = measured(&options, &SensorSet::default(), &stop);
        assert!(matches!(rounds, Err(Error::Stopped(15))), "{rounds:?}");
        waiting.join().unwrap()
    });
    assert!(!Path::new("/proc").join(pid).exists(), "the command has ended");
}

/// Ctrl-C in a terminal also reaches the command, which may have ended before the signal is seen.
#[test]
fn a_run_interrupted_by_a_signal_is_not_a_result() {
    let stop = StopFlag::default();
    stop.set(2);
    let options = Options { repeats: 1, ignore_failure: true, ..options("kill -2 $$") };
    let (rounds, _) = measured(&options, &SensorSet::default(), &stop);
    assert!(matches!(rounds, Err(Error::Stopped(2))), "{rounds:?}");
}

#[test]
fn a_run_shorter_than_three_updates_has_no_energy() {
    let folder = tempfile::tempdir().unwrap();
    let sensors = meter(folder.path());
    let options = Options { repeats: 1, ..options("exit 0") };
    let rounds = measured(&options, &sensors, &StopFlag::default()).0.unwrap();
    let summary = Summary::new(&options, &sensors, &rounds);
    let [line] = &summary.energy[..] else { panic!("{summary:?}") };
    assert_eq!((&line.energy_j, &line.power_w, line.name.as_str()), (&None, &None, "meter/meter"));
    let why = line.missing.as_deref().unwrap();
    assert!(why.ends_with("this sensor has a new value every 1 s; 3 s are needed"), "{why}");
    let text = text::render(&summary, false);
    assert!(text.contains("meter/meter") && text.contains("is too short"), "{text}");
}

#[test]
fn a_run_shorter_than_three_updates_has_no_counters() {
    let mut track = Track::new("cputime", &[Domain::counter("cpu0/user", Unit::NanoSecond)], S / 100);
    track.points = vec![vec![Point { at_ns: 0, value: 0 }, Point { at_ns: S, value: 500_000_000 }]];
    let recording = Recording { tracks: vec![track], ..Recording::default() };
    let busy = |to_ns| {
        let metrics = crate::metrics::of_machine(&Sensed::measured(&recording, Window { from_ns: 0, to_ns }));
        metrics.into_iter().find(|metric| metric.key == "cpu_busy_cores").map(|metric| metric.value)
    };
    assert_eq!([busy(3 * S / 100 - 1), busy(3 * S / 100)], [None, Some(Ok(0.5))]);
}

#[test]
fn an_energy_counter_gives_no_energy_below_ten_of_its_steps() {
    let domain = Domain::new("meter", Kind::EnergyCounter(Counts::endless()), Unit::MicroJoule, Part::System);
    let domain = domain.timed(Timing::default().steps(3_600_000)); // a thousandth of a watt-hour
    let mut track = Track::new("command", &[domain], S);
    track.points = vec![vec![Point { at_ns: 0, value: 0 }, Point { at_ns: 10 * S, value: 72_000_000 }]];
    let recording = Recording { tracks: vec![track], ..Recording::default() };
    let energy =
        |seconds| Sensed::measured(&recording, Window { from_ns: 0, to_ns: seconds * S }).energies[0].uj.clone();
    assert_eq!(energy(10), Ok(72_000_000));
    assert!(energy(4).unwrap_err().contains("steps of 3600000 uj"), "{:?}", energy(4));
    assert!(energy(2).unwrap_err().contains("2 s is too short"), "{:?}", energy(2));
}

/// A run of `seconds` with the energy of two packages and a drive in joules, and an idle baseline of one second.
fn round(seconds: u64, joules: [i64; 3], idle: Option<[i64; 3]>) -> Round {
    let domain = |(name, part): (&str, Part), joules: i64| DomainEnergy {
        name: name.into(),
        part,
        origin: Origin::Measured,
        uj: Ok(joules * 1_000_000),
    };
    let span = |seconds: u64, joules: [i64; 3]| {
        let parts = [
            ("rapl/package-0", Part::Package(0)),
            ("rapl/package-1", Part::Package(1)),
            ("nvme/nvme0", Part::Drive("nvme0".into())),
        ];
        let energies = parts.into_iter().zip(joules).map(|(part, joules)| domain(part, joules)).collect();
        let window = Window { from_ns: 7, to_ns: 7 + seconds * S };
        Span { window, sensed: Sensed { energies, ..Sensed::default() } }
    };
    let usage = Usage { user_ns: seconds * S / 2, system_ns: seconds * S / 4, ..Usage::default() };
    Round { run: span(seconds, joules), idle: idle.map(|joules| span(1, joules)), usage, success: true }
}

/// Half-width of a 95 % interval, from the definition: t(2) = 4.30265.
fn half_width(values: [f64; 3]) -> f64 {
    let mean = values.iter().sum::<f64>() / 3.0;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0;
    4.302_653 * (variance / 3.0).sqrt()
}

#[test]
fn values_match_a_manual_calculation() {
    // 2, 4 and 5 s; the first package at 20, 21 and 22 W with idle baselines of 8, 10 and 9 W
    let rounds = [
        round(2, [40, 20, 10], Some([8, 5, 2])),
        round(4, [84, 40, 20], Some([10, 5, 2])),
        round(5, [110, 50, 25], Some([9, 5, 2])),
    ];
    let summary = Summary::new(&options("x"), &SensorSet::default(), &rounds);
    let line = |name: &str| summary.energy.iter().find(|line| line.name == name).unwrap();
    let check = |spread: &Option<crate::results::summary::Spread>, values: [f64; 3]| {
        let spread = spread.as_ref().unwrap();
        let mean = values.iter().sum::<f64>() / 3.0;
        assert_eq!(spread.values, values);
        assert!((spread.mean - mean).abs() < 1e-9, "{spread:?}");
        assert!((spread.high.unwrap() - mean - half_width(values)).abs() < 1e-4, "{spread:?}");
        assert!((mean - spread.low.unwrap() - half_width(values)).abs() < 1e-4, "{spread:?}");
    };
    let package = line("rapl/package-0");
    check(&package.energy_j, [40.0, 84.0, 110.0]);
    check(&package.power_w, [20.0, 21.0, 22.0]);
    check(&package.above_idle_w, [12.0, 11.0, 13.0]);
    check(&package.above_idle_j, [24.0, 44.0, 65.0]);
    // Both packages: 30, 31 and 32 W over 13, 15 and 14 W. A single drive needs no sum.
    check(&line("cpu").above_idle_w, [17.0, 16.0, 18.0]);
    assert_eq!(line("cpu").of, "rapl/package-0 + rapl/package-1");
    assert!(!summary.energy.iter().any(|line| line.name == "ssd") && summary.idle_baseline);
    let used = summary.lines.iter().find(|line| line.key == "cpus_used").unwrap();
    assert_eq!(used.spread.values, [0.75; 3]);
}

#[test]
fn missing_values_of_some_runs_are_reported() {
    let mut rounds = vec![round(2, [40, 20, 10], None), round(2, [42, 20, 10], None)];
    rounds[1].run.sensed.energies[0].uj = Err("a gap of 3 s".into());
    let summary = Summary::new(&options("x"), &SensorSet::default(), &rounds);
    let line = &summary.energy[0];
    assert_eq!(line.energy_j.as_ref().unwrap().values, [40.0]);
    assert_eq!(line.missing.as_deref(), Some("1 of 2 runs: a gap of 3 s"));
    assert!(line.above_idle_w.is_none() && !summary.idle_baseline);
}

#[test]
fn text_has_units_and_significant_digits() {
    let rounds = [
        round(2, [40, 20, 10], Some([8, 5, 2])),
        round(2, [42, 20, 10], Some([10, 5, 2])),
        round(2, [41, 20, 10], Some([9, 5, 2])),
    ];
    let sensors = SensorSet {
        domains: vec![("rapl".into(), Domain::power("package-0", Part::Package(0)))],
        ..SensorSet::default()
    };
    let mut summary = Summary::new(&options("x"), &sensors, &rounds);
    summary.lines.truncate(2);
    summary.lines[0].spread = crate::results::summary::Spread::new(&[2.001, 2.002, 2.003]).unwrap();
    let expected = "
sh -c x  3 runs

  time             2.0020 s ± 0.0025 s   (2.0010 … 2.0030)
  CPU time, user             1 s ± 0 s   (1 … 1)

                           energy            power       above idle
  rapl/package-0   41.0 J ± 2.5 J   20.5 W ± 1.2 W   11.5 W ± 1.2 W   package 0
  rapl/package-1       20 J ± 0 J       10 W ± 0 W        5 W ± 0 W   package 1
  nvme/nvme0           10 J ± 0 J        5 W ± 0 W        3 W ± 0 W   drive nvme0
  cpu              61.0 J ± 2.5 J   30.5 W ± 1.2 W   16.5 W ± 1.2 W   rapl/package-0 + rapl/package-1

mean ± half-width of the 95 % interval of 3 runs (Student's t), and range
above idle: each run minus its idle baseline
";
    assert_eq!(text::render(&summary, false), expected);
    summary.not_idle = Some("the machine was not idle: BUSY".into());
    assert!(text::render(&summary, false).ends_with("idle baseline\nwarning: the machine was not idle: BUSY\n"));
    assert!(text::render(&summary, true).contains("\x1b[1msh -c x\x1b[0m"));
}

#[test]
fn without_a_power_sensor_the_text_says_where_remedies_are() {
    let missing = Missing::new("rapl", pilotlight_sensors::Why::Absent, "no powercap", "modprobe intel_rapl_msr");
    let sensors = SensorSet { survey: vec![missing], ..SensorSet::default() };
    let options = Options { repeats: 1, ..options("exit 0") };
    let rounds = measured(&options, &sensors, &StopFlag::default()).0.unwrap();
    let text = text::render(&Summary::new(&options, &sensors, &rounds), false);
    let expected = format!("{}; --sensor modelled adds power from a model\n", text::NO_POWER);
    assert!(text.ends_with(&expected) && !text.contains("powercap"), "one line, not one for each sensor: {text}");
    assert!(text.contains("CPU time, user") && text.contains("a single run has no interval"), "{text}");
    let sensors = SensorSet { unused: vec!["rapl".into()], ..sensors };
    let text = text::render(&Summary::new(&options, &sensors, &rounds), false);
    assert!(text.contains("add --sensor rapl") && !text.contains("can be read"), "{text}");
}

#[test]
fn a_small_difference_has_the_unit_of_its_interval() {
    let rounds = [round(2, [40, 20, 10], Some([20, 5, 2])), round(2, [42, 20, 10], Some([20, 5, 2]))];
    let text = text::render(&Summary::new(&options("x"), &SensorSet::default(), &rounds), false);
    // 0 and 1 W above idle: 0.5 W with an interval of 12.7 * 0.5 W
    assert!(text.contains(" 0.5 W ± 6.4 W"), "{text}");
}

#[test]
fn times_have_a_suitable_unit() {
    assert_eq!([1, 1_500, 20_000_000, 2 * S, 90 * S].map(text::seconds), ["1 ns", "1.5 us", "20 ms", "2 s", "90 s"]);
}
