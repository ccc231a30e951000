//! Experiments that run a tool, on this machine or on a simulated one with one drive.

mod plan;
pub(crate) mod progress;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use pilotlight_lab::experiment::{self, Loaded, Overrides};
use pilotlight_lab::plan::Plan;
use pilotlight_lab::results::samples::Format;
use pilotlight_lab::results::{Folder, Results};
use pilotlight_lab::run::computed::host::Simulated;
use pilotlight_lab::run::{self, RunError, Settings, StopFlag};
use pilotlight_lab::sensor_set::SensorSet;
use pilotlight_sensors::Roots;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{RunArgs, output};
use crate::console;
use crate::exit::Exit;
use progress::Progress;

/// Options for experiments on a real machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Experiments on this machine")]
pub(super) struct LiveArgs {
    /// Continue the run in this results folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["file", "all", "replay", "out", "sensor", "no_baseline", "seed", "repeats", "set"])]
    pub(super) resume: Option<PathBuf>,

    /// Additional required sensor; repeatable
    #[arg(long, value_name = "NAME")]
    sensor: Vec<String>,

    /// Skip the idle baseline
    #[arg(long)]
    no_baseline: bool,

    /// Seed of the order of points and of the workload's random numbers [default: the file's]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// The experiment's device, to confirm that all data on it may be lost
    #[arg(long, value_name = "DEVICE")]
    i_may_overwrite: Option<PathBuf>,

    /// Program `pilotlight` for a workload of kind "load" [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,

    /// Run on the simulated machine of this profile (profiles/README.md)
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["resume", "sensor", "dry_run", "program"])]
    simulated: Option<PathBuf>,
}

impl LiveArgs {
    /// The first of these options that is set.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        super::first_set([
            ("--resume", self.resume.is_some()),
            ("--sensor", !self.sensor.is_empty()),
            ("--no-baseline", self.no_baseline),
            ("--seed", self.seed.is_some()),
            ("--i-may-overwrite", self.i_may_overwrite.is_some()),
            ("--program", self.program.is_some()),
            ("--simulated", self.simulated.is_some()),
        ])
    }
}

/// Everything determined before the run.
struct Prepared {
    loaded: Loaded,
    plan: Plan,
    sensors: SensorSet,
    settings: Settings,
}

/// Runs an experiment or prints its plan.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    if let (Some(profile), Some(file)) = (&args.live.simulated, args.file()) {
        return on_simulated(args, profile, &file);
    }
    let read = prepare(args, false).and_then(|(loaded, folder)| {
        if args.output.dry_run || loaded.profile.is_some() {
            Ok((loaded, folder))
        } else {
            confirm(&loaded, args).map(|()| (loaded, folder))
        }
    });
    let (loaded, folder) = match read {
        Ok(read) => read,
        Err(error) => {
            crate::exit::report_error(&error);
            return Ok(Exit::Refused.into());
        }
    };
    if let (Some(name), Some(file)) = (&loaded.profile, args.file()) {
        let profile = pilotlight_lab::simulated::experiment::home(&file)?.join(format!("profiles/{name}.toml"));
        return on_simulated(args, &profile, &file);
    }
    let (plan, roots) = (share(args, Plan::new(&loaded), &folder)?, Roots::default());
    let sensors = SensorSet::find(&loaded.experiment, &roots).map_err(RunError::from)?;
    let plan = plan.with_sensors(&loaded.experiment, sensors.has_energy());
    let format = if args.output.csv { Format::Csv } else { Format::Parquet };
    let settings = Settings { folder, may_overwrite: args.live.i_may_overwrite.clone(), format, roots, changes: None };
    let prepared = Prepared { loaded, plan, sensors, settings };
    if args.output.dry_run {
        plan::show(&prepared, args.output.json)?;
        return Ok(Exit::Clean.into());
    }
    measured(args, &prepared)
}

/// The plan of a share; a resumed run keeps the share of its folder.
fn share(args: &RunArgs, plan: Plan, folder: &Folder) -> anyhow::Result<Plan> {
    if let Some(shard) = args.shard {
        return Ok(plan.shared(shard));
    }
    if args.live.resume.is_none() || !folder.plan().exists() {
        return Ok(plan);
    }
    let before: Plan = folder.load(&folder.plan())?;
    Ok(Plan { share: before.share, ..plan })
}

/// Joins shares of a measured experiment.
pub(super) fn merge(folders: &[PathBuf], out: &Path, by_host: bool, json: bool) -> anyhow::Result<ExitCode> {
    let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    match run::merge::merge(&folders, out, by_host) {
        Ok(results) => {
            let text = serde_json::to_string_pretty(&results)? + "\n";
            console::print(if json { text } else { output::summary_text(&results, out) })?;
            Ok(Exit::Clean.into())
        }
        Err(error) => {
            let refused = !matches!(error, run::merge::MergeError::Missing(_) | run::merge::MergeError::Folder(_));
            let code = crate::exit::report_error(&error.into());
            Ok(if refused { Exit::Refused } else { code }.into())
        }
    }
}

fn prepare(args: &RunArgs, simulated: bool) -> anyhow::Result<(Loaded, Folder)> {
    let LiveArgs { sensor, seed, no_baseline, program, .. } = &args.live;
    let asked = Overrides {
        set: args.set.clone(),
        sensors: sensor.clone(),
        seed: *seed,
        no_baseline: *no_baseline,
        // Results of a simulated machine do not depend on the number of repeats.
        repeats: args.repeats.filter(|_| !simulated),
        program: program.clone(),
    };
    if let Some(folder) = &args.live.resume {
        let folder = Folder::new(folder);
        let loaded = experiment::load(&folder.experiment(), &asked);
        let what = || format!("{} has no run that can be resumed", folder.root().display());
        return Ok((loaded.with_context(what)?, folder));
    }
    let file = args.file().context("name an experiment")?;
    let loaded = experiment::load(&file, &asked)?;
    let folder = args.output.out.clone().unwrap_or_else(|| default_folder(&loaded.experiment.title));
    Ok((loaded, Folder::new(&folder)))
}

/// Checks an experiment without running it; experiments that overwrite a device or run on a simulated machine are refused.
pub(super) fn check(args: &RunArgs) -> anyhow::Result<()> {
    let (loaded, _) = prepare(args, false)?;
    let device = loaded.experiment.target.device.as_deref();
    anyhow::ensure!(
        device.is_none(),
        "the experiment overwrites a device, which requires --i-may-overwrite: run it by hand"
    );
    anyhow::ensure!(
        loaded.profile.is_none(),
        "the experiment runs on a simulated machine with one drive in one process"
    );
    Ok(())
}

/// Requires the device's name as confirmation on a terminal before it is erased or filled.
fn confirm(loaded: &Loaded, args: &RunArgs) -> anyhow::Result<()> {
    let Some(device) = loaded.experiment.target.device.as_deref() else { return Ok(()) };
    run::target::checked_device(device, args.live.i_may_overwrite.as_deref())?;
    if loaded.experiment.precondition.is_none() || !std::io::stdin().is_terminal() {
        return Ok(());
    }
    console::eprint(format_args!("Everything on {} will be erased. Type its name to continue: ", device.display()));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    anyhow::ensure!(Path::new(answer.trim()) == device, "not confirmed; nothing was changed");
    Ok(())
}

fn default_folder(title: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let words: String = title.chars().map(plain).collect();
    let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).take(6).collect();
    Path::new("bench-results").join(format!("{}-{}", words.join("-"), moment(Timestamp::now())))
}

/// `20261122-041500`, in UTC.
fn moment(now: Timestamp) -> String {
    now.strftime("%Y%m%d-%H%M%S").to_string()
}

fn measured(args: &RunArgs, prepared: &Prepared) -> anyhow::Result<ExitCode> {
    let Prepared { loaded, plan, sensors, settings } = prepared;
    let stop = listening()?;
    if !args.output.json {
        console::print(output::sensors(sensors))?;
    }
    let mut progress = Progress::new(plan, args.output.json);
    let outcome = run::run(loaded, plan, sensors, settings, &stop, &mut |event| progress.update(&event));
    progress.finish();
    concluded(args, &settings.folder, outcome, &resume_command(settings))
}

/// Prints the results, or the error and how to continue.
fn concluded(
    args: &RunArgs,
    folder: &Folder,
    outcome: Result<Results, RunError>,
    resume_command: &str,
) -> anyhow::Result<ExitCode> {
    match outcome {
        Ok(results) => {
            if args.output.json {
                console::println(serde_json::to_string_pretty(&results)?)?;
            } else {
                console::print(output::summary_text(&results, folder.root()))?;
            }
            Ok(if results.complete { Exit::Clean } else { Exit::Failed }.into())
        }
        Err(RunError::Stopped(signal)) => Ok(stopped(signal, resume_command)),
        // The folder was refused; nothing was written.
        Err(RunError::Folder(error)) if error.is_refusal() => {
            crate::exit::report_error(&error.into());
            Ok(Exit::Refused.into())
        }
        Err(error) => {
            let code = crate::exit::report_error(&error.into());
            if folder.plan().exists() {
                console::eprintln(resume_command);
            }
            Ok(code.into())
        }
    }
}

/// Reports the signal; the exit code is 128 plus its number.
pub(crate) fn stopped(signal: i32, resume_command: &str) -> ExitCode {
    let name = match signal {
        SIGINT => "Ctrl-C",
        SIGHUP => "the end of the terminal (SIGHUP)",
        _ => "SIGTERM",
    };
    console::eprintln(format_args!("ended by {name}; {resume_command}"));
    ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))
}

/// Runs the experiment on a simulated machine.
fn on_simulated(args: &RunArgs, profile: &Path, file: &Path) -> anyhow::Result<ExitCode> {
    let read = || -> anyhow::Result<_> {
        anyhow::ensure!(
            args.shard.is_none(),
            "--shard: an experiment on a simulated machine with one drive is not divided"
        );
        let (mut loaded, folder) = prepare(args, true)?;
        loaded.experiment.repeats = args.repeats.unwrap_or(loaded.experiment.repeats);
        Ok((Simulated::load(profile, file, &args.set)?, loaded, folder))
    };
    let (mut machine, loaded, folder) = match read() {
        Ok(read) => read,
        Err(error) => {
            crate::exit::report_error(&error);
            return Ok(Exit::Refused.into());
        }
    };
    let plan = Plan::new(&loaded);
    let stop = listening()?;
    let mut progress = Progress::new(&plan, args.output.json);
    let format = if args.output.csv { Format::Csv } else { Format::Parquet };
    let outcome =
        run::computed::run(&loaded, &plan, &mut machine, &folder, format, &stop, &mut |event| progress.update(&event));
    progress.finish();
    concluded(args, &folder, outcome, &resume_with_out(&folder))
}

/// A flag set by SIGINT, SIGTERM and SIGHUP.
pub(crate) fn listening() -> anyhow::Result<StopFlag> {
    let stop = StopFlag::default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && outlives(&status) {
            continue;
        }
        let number = usize::try_from(signal).context("signals are numbers above zero")?;
        signal_hook::flag::register_usize(signal, stop.cell(), number).context("cannot listen to signals")?;
    }
    Ok(stop)
}

/// Whether SIGHUP is ignored, as by `nohup` (proc_pid_status(5): SigIgn).
fn outlives(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}

fn resume_with_out(folder: &Folder) -> String {
    format!("to continue: the same with --out {}", folder.root().display())
}

fn resume_command(settings: &Settings) -> String {
    let folder = settings.folder.root().display();
    let device = settings.may_overwrite.as_ref().map(|device| format!(" --i-may-overwrite {}", device.display()));
    format!("to continue: pilotlab run --resume {folder}{}", device.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_sighup_stays_ignored() {
        // from /proc under nohup, and with SIGINT and SIGPIPE ignored
        assert!(outlives("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!outlives("SigIgn:\t0000000000001002\n") && !outlives(""));
    }

    #[test]
    fn dates_match_the_calendar() {
        let at = |unix_s| moment(Timestamp::from_second(unix_s).unwrap());
        assert_eq!(at(0), "19700101-000000");
        assert_eq!(at(951_782_399), "20000228-235959");
        assert_eq!(at(951_782_400), "20000229-000000");
        assert_eq!(at(1_795_321_553), "20261122-042553");
    }
}
