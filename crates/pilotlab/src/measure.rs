//! `pilotlab measure -- COMMAND`: measures time, CPU time and energy of a command over several runs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use pilotlight_actuators::changes::{Change, Changes, Error as ChangeError, fresh};
use pilotlight_actuators::{Machine, Roots};
use pilotlight_input::Time;
use pilotlight_lab::experiment;
use pilotlight_lab::experiment::schema::SensorSpec;
use pilotlight_lab::measure::{self, Error, Event, Options, Output, Summary, settings, text};
use pilotlight_lab::run::{self};
use pilotlight_lab::sensor_set::SensorSet;
use serde::Deserialize;

use crate::console;
use crate::exit::{self, Exit};
use crate::run::live::{listening, stopped};

const ABOUT: &str = "\
Measure a command: time, CPU time, and joules and watts of every power sensor that is found, over several runs.

The command's standard output is discarded without --show-output; its standard error is shown. Each figure is a mean with its 95 % interval. Where a sensor reads energy, the idle machine is \
measured before each run, and the power above idle is shown too. Settings of the machine (--set, --settings) are made before the first run \
and restored at the end, on Ctrl-C, SIGTERM and SIGHUP; after `kill -9` by `pilotlab restore`.";

const EXAMPLES: &str = "\
Examples:
  pilotlab measure -- sleep 2
  pilotlab measure --repeats 10 --warmup 1 -- gzip -kf /tmp/file
  pilotlab measure --sensor rapl --json -- make >result.json
  pilotlab measure --set governor=performance --set cgroup.cpus=0-1 -- ./bench
  pilotlab measure --set scheduler=none --device /dev/nvme0n1 -- fio job.fio
  pilotlab measure --settings machine.toml -- fio job.fio      the section [machine] of a file

Settings are the keys of [machine] (docs/measure.md), or paths of files of /sys, /proc/sys and /proc/irq.

Exit codes:
  0  every run was measured, also without a readable power sensor
  1  the command failed or could not be started; a setting could not be changed or restored
  2  refused, nothing was run: a sensor of --sensor cannot be read, or a setting does not exist
  129, 130, 143  ended by hang-up (SIGHUP), Ctrl-C or SIGTERM; settings are restored";

/// Default idle baseline: three readings of a sensor with an interval of 1 s, the minimum for a value.
const IDLE: Time = Time(3_000_000_000);
/// Waits longer than this are announced.
const LONG: Duration = Duration::from_secs(2);

/// Options of `pilotlab measure`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct MeasureArgs {
    /// Measured runs
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Measurement")]
    repeats: u32,

    /// Unmeasured runs before them
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Measurement")]
    warmup: u32,

    /// Required sensor; repeatable [default: every available one]
    #[arg(long, value_name = "NAME", help_heading = "Measurement")]
    sensor: Vec<String>,

    /// Idle baseline before each run; 0s: none [default: 3s if a sensor reads energy]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Measurement")]
    idle: Option<Time>,

    /// Settling time after a change of settings, and before an idle baseline that follows a run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time, help_heading = "Measurement")]
    settle: Time,

    /// Include failed runs
    #[arg(long, help_heading = "Measurement")]
    ignore_failure: bool,

    /// Setting of the machine during the measurement: a key of [machine] or a file of /sys; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Machine settings")]
    set: Vec<String>,

    /// TOML file with settings in [machine]; other sections are ignored
    #[arg(long, value_name = "FILE", help_heading = "Machine settings")]
    settings: Option<PathBuf>,

    /// Block device, or a file on one, for `scheduler`, `power_state` and I/O limits
    #[arg(long, value_name = "PATH", help_heading = "Machine settings")]
    device: Option<PathBuf>,

    /// Show the command's standard output, which is discarded otherwise; with --json on standard error
    #[arg(long, help_heading = "Output")]
    show_output: bool,

    /// Print the results as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn time(text: &str) -> anyhow::Result<Time> {
    Time::parse(text).context("expected a time with its unit, such as 500ms or 10s")
}

/// The used part of the settings file.
#[derive(Deserialize)]
struct File {
    machine: Machine,
}

/// Everything determined before anything is changed.
struct Prepared {
    options: Options,
    sensors: SensorSet,
    changes: Vec<Change>,
}

/// Measures the command.
pub(crate) fn run(args: &MeasureArgs) -> anyhow::Result<ExitCode> {
    let roots = Roots::default();
    let prepared = match prepare(args, &roots) {
        Ok(prepared) => prepared,
        Err(error) => {
            exit::report_error(&error);
            return Ok(Exit::Refused.into());
        }
    };
    let Prepared { options, sensors, .. } = &prepared;
    let (rounds, back) = under_settings(&prepared, &roots)?;
    let rounds = match rounds {
        Ok(rounds) => rounds,
        Err(error) => {
            back?;
            return if let Error::Stopped(signal) = error {
                Ok(stopped(signal, "all settings are restored"))
            } else {
                Err(error.into())
            };
        }
    };
    let summary = Summary::new(options, sensors, &rounds);
    if args.json {
        console::println(serde_json::to_string_pretty(&summary)?)?;
    } else {
        console::print(text::render(&summary, console::colour()))?;
    }
    back?;
    Ok(Exit::Clean.into())
}

fn prepare(args: &MeasureArgs, roots: &Roots) -> anyhow::Result<Prepared> {
    let section = args.settings.as_deref().map_or_else(|| Ok(Machine::default()), read)?;
    let name = std::process::id().to_string();
    let changes = settings::add(&section, &args.set)?.changes(roots, args.device.as_deref(), &name)?;
    let spec = |name: &String| Ok(SensorSpec { config: experiment::sensor(name)?, interval: None, optional: false });
    let specs = args.sensor.iter().map(spec).collect::<anyhow::Result<Vec<_>>>()?;
    let sensors = SensorSet::new(&specs, specs.is_empty(), roots).context("a sensor of --sensor cannot be read")?;
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    anyhow::ensure!(program.contains('/') || run::find(&program).is_some(), "{program} is not in PATH");
    let idle = if sensors.has_energy() { args.idle.unwrap_or(IDLE) } else { Time(0) };
    let options = Options {
        argv: args.command.clone(),
        repeats: args.repeats,
        warmup: args.warmup,
        settle_ns: args.settle.0,
        idle_ns: idle.0,
        ignore_failure: args.ignore_failure,
        output: match (args.show_output, args.json) {
            (false, _) => Output::Discarded,
            (true, false) => Output::Kept,
            (true, true) => Output::ToStderr,
        },
    };
    Ok(Prepared { options, sensors, changes })
}

fn read(path: &Path) -> anyhow::Result<Machine> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file: File = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(file.machine)
}

/// The results or the error of the measurement, and whether settings were restored.
type Outcome = (Result<Vec<measure::Round>, Error>, Result<(), ChangeError>);

/// Applies settings, measures, and restores the settings.
fn under_settings(prepared: &Prepared, roots: &Roots) -> anyhow::Result<Outcome> {
    let stop = listening()?;
    let mut changes = Changes::begin(&fresh(), roots.clone())?;
    for change in &prepared.changes {
        changes.make(change)?;
    }
    let (changed, cgroup) = (!prepared.changes.is_empty(), changes.cgroup());
    let (began, options) = (Instant::now(), &prepared.options);
    let mut watch = |event| announce(event, options, began.elapsed());
    let rounds = measure::measure(options, &prepared.sensors, roots, (changed, cgroup), &stop, &mut watch);
    let back = changes.restore().map(|all| all.iter().for_each(|back| tracing::debug!("{back}")));
    Ok((rounds, back))
}

/// Announces long waits, and runs of a long measurement, on standard error.
fn announce(event: Event, options: &Options, gone: Duration) {
    let long = |seconds: f64| seconds >= LONG.as_secs_f64();
    match event {
        Event::Settling(seconds) if long(seconds) => console::eprintln(format_args!("settling for {seconds} s")),
        Event::Baseline(seconds) if long(seconds) => console::eprintln(format_args!("idle baseline, {seconds} s")),
        Event::Warmup(run) if gone >= LONG => console::eprintln(format_args!("warm-up {run} of {}", options.warmup)),
        Event::Run(run) if gone >= LONG || (run == 1 && options.repeats > 1) => {
            console::eprintln(format_args!("run {run} of {}", options.repeats))
        }
        _ => {}
    }
}
