//! `pilotlab measure -- COMMAND`: time, CPU time and energy of a command, over several runs.

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
use pilotlight_lab::measure::{self, Error, Event, Options, Summary, settings, text};
use pilotlight_lab::run::{self, Senses};
use serde::Deserialize;

use crate::console;
use crate::exit::{self, Exit};
use crate::run::live::{listening, stopped};

const ABOUT: &str = "\
Measure a command: time, CPU time, and joules and watts of every power sensor that is found, over several runs.

The command keeps its standard streams. Each figure is a mean with its 95 % interval. Where a sensor reads energy, the idle machine is \
measured before each run, and the power above it is shown too. Settings of the machine (--set, --settings) are made before the first run \
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
  0  every run was measured, also where no power sensor can be read
  1  the command failed or could not be started; a setting could not be changed or restored
  2  refused, nothing was run: a sensor named with --sensor cannot be read, or the machine lacks a setting
  129, 130, 143  ended by hang-up (SIGHUP), Ctrl-C or SIGTERM; settings are restored";

/// The idle machine before each run: three readings of a sensor with an interval of 1 s, the fewest that give a figure.
const IDLE: Time = Time(3_000_000_000);
/// What takes longer than this is announced.
const LONG: Duration = Duration::from_secs(2);

/// Options of `pilotlab measure`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct MeasureArgs {
    /// Measured runs
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = "What is measured")]
    repeats: u32,

    /// Runs before them that are not measured
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "What is measured")]
    warmup: u32,

    /// A sensor that is read, and needed; repeatable [default: every one that is found]
    #[arg(long, value_name = "NAME", help_heading = "What is measured")]
    sensor: Vec<String>,

    /// How long the idle machine is measured before each run; 0s if not at all [default: 3s if a sensor reads energy]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "What is measured")]
    idle: Option<Time>,

    /// Wait after changing settings, and before the idle machine is measured after a run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time, help_heading = "What is measured")]
    settle: Time,

    /// Measure commands that fail, too
    #[arg(long, help_heading = "What is measured")]
    ignore_failure: bool,

    /// A setting of the machine while the command runs: a key of [machine], or a file of /sys; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Settings of the machine")]
    set: Vec<String>,

    /// A file (TOML) whose section [machine] has settings; other sections are not looked at
    #[arg(long, value_name = "FILE", help_heading = "Settings of the machine")]
    settings: Option<PathBuf>,

    /// The block device, or a file on one, that `scheduler`, `power_state` and limits of I/O are about
    #[arg(long, value_name = "PATH", help_heading = "Settings of the machine")]
    device: Option<PathBuf>,

    /// Print the results as JSON; the command's standard output then goes to standard error
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn time(text: &str) -> Result<Time, String> {
    Time::parse(text).ok_or_else(|| "give a time with its unit, such as 500ms or 10s".to_owned())
}

/// What is looked at in the file of settings.
#[derive(Deserialize)]
struct File {
    machine: Machine,
}

/// Everything that is known before anything is changed.
struct Prepared {
    options: Options,
    senses: Senses,
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
    let Prepared { options, senses, .. } = &prepared;
    let (rounds, back) = under_settings(&prepared, &roots)?;
    let rounds = match rounds {
        Ok(rounds) => rounds,
        Err(error) => {
            back?;
            return if let Error::Stopped(signal) = error {
                Ok(stopped(signal, "nothing is left changed"))
            } else {
                Err(error.into())
            };
        }
    };
    let summary = Summary::of(options, senses, &rounds);
    if args.json {
        console::println(serde_json::to_string_pretty(&summary)?)?;
    } else {
        console::print(text::people(&summary, console::colour()))?;
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
    let senses = Senses::of(&specs, specs.is_empty(), roots).context("a sensor that --sensor names cannot be read")?;
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    anyhow::ensure!(program.contains('/') || run::find(&program).is_some(), "there is no program {program} in PATH");
    let idle = if senses.has_energy() { args.idle.unwrap_or(IDLE) } else { Time(0) };
    let options = Options {
        argv: args.command.clone(),
        repeats: args.repeats,
        warmup: args.warmup,
        settle_ns: args.settle.0,
        idle_ns: idle.0,
        ignore_failure: args.ignore_failure,
        output_to_stderr: args.json,
    };
    Ok(Prepared { options, senses, changes })
}

fn read(path: &Path) -> anyhow::Result<Machine> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file: File = toml::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(file.machine)
}

/// What was measured, or why measuring ended early; and whether the settings are back.
type Outcome = (Result<Vec<measure::Round>, Error>, Result<(), ChangeError>);

/// Makes the settings, measures, and puts the settings back.
fn under_settings(prepared: &Prepared, roots: &Roots) -> anyhow::Result<Outcome> {
    let stop = listening()?;
    let mut changes = Changes::begin(&fresh(), roots.clone())?;
    for change in &prepared.changes {
        changes.make(change)?;
    }
    let (changed, cgroup) = (!prepared.changes.is_empty(), changes.cgroup());
    let (began, options) = (Instant::now(), &prepared.options);
    let mut watch = |event| announce(event, options, began.elapsed());
    let rounds = measure::measure(options, &prepared.senses, roots, (changed, cgroup), &stop, &mut watch);
    let back = changes.put_back().map(|all| all.iter().for_each(|back| tracing::debug!("{back}")));
    Ok((rounds, back))
}

/// Says what takes long on standard error: waits, and the next runs once it has taken long.
fn announce(event: Event, options: &Options, gone: Duration) {
    let long = |seconds: f64| seconds >= LONG.as_secs_f64();
    match event {
        Event::Settling(seconds) if long(seconds) => console::eprintln(format_args!("settling for {seconds} s")),
        Event::Baseline(seconds) if long(seconds) => console::eprintln(format_args!("the idle machine, {seconds} s")),
        Event::Warmup(run) if gone >= LONG => console::eprintln(format_args!("warm-up {run} of {}", options.warmup)),
        Event::Run(run) if gone >= LONG => console::eprintln(format_args!("run {run} of {}", options.repeats)),
        _ => {}
    }
}
