//! `pilotlab run`: runs an experiment on this machine or on the simulator, by its file.

pub(crate) mod command;
pub(crate) mod live;
mod output;
mod simulated;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use pilotlight_input::include;
use pilotlight_lab::results::Folder;
use pilotlight_lab::shard::Shard;

use crate::exit::{self, Exit};

pub(crate) use simulated::{VariantArgs, found, home, workers};

const ABOUT: &str = "\
Run an experiment: every combination of the parameters in one file, repeated.

The file determines where it runs. With a [workload] of a tool (fio, RocksDB, any command) it is measured on this machine, with sensors of power \
and counters (docs/measure.md); --simulated runs the same file on a simulated machine with one drive. With the profile of a server and \
[[workload]]s of hosts it is simulated (docs/experiments.md). A list of experiments (papers/all.toml) runs one after the other. With \
--replay a block trace of your own is simulated under every policy.

Finished results are kept: an interrupted run is continued with --resume (measured) or the same command (simulated). Settings that a measurement \
changes on this machine are restored at its end; after `kill -9` by `pilotlab restore`. Results of another machine or \
experiment are moved aside and never mixed. Watts of the simulator are modelled by the named profile.";

const EXAMPLES: &str = "\
Examples:
  pilotlab run experiments/quick.toml                               fio on this machine, 2 minutes
  pilotlab run experiments/quick.toml --dry-run                     commands and their duration
  pilotlab run experiments/quick.toml --sensor modelled             watts from a model
  pilotlab run experiments/bursts.toml                              bursts under three policies
  pilotlab run --resume bench-results/NAME                          continue an interrupted run
  pilotlab run drive.toml --i-may-overwrite /dev/nvme1n1
  pilotlab run papers/thesis/gc-15s.toml --simulated profiles/thesis-980pro.toml

  pilotlab run papers/sandman/fig3.toml                             a figure, on the simulator
  pilotlab run papers/sandman/fig3.toml --smoke                     short runs, two of each
  pilotlab run papers/sandman/fig3.toml --dry-run                   number of runs, their CPU time
  pilotlab run papers/sandman/fig4.toml --set policy.sandman.settings.z=3 --out /tmp/z3
  pilotlab run papers/sandman/fig3.toml --set machine.poll.loop_ns=150
  pilotlab run papers/sandman/fig4.toml --family                    all machines of the paper
  pilotlab run papers/sandman/fig4.toml --perturb 20 --lhs 50       sensitivity to free constants
  pilotlab run papers/sandman/fig3.toml --oracle                    bounds on what sleep saves
  pilotlab run papers/sandman/fig3.toml --shard 3/8 --out s3        the third of 8 machines' share
  pilotlab run --all                                                all of papers/all.toml
  pilotlab run --all --smoke --audit --out /tmp/smoke               short, with invariants checked

  pilotlab run --replay io_traces.csv.gz --sizes device_size.csv    your own trace: joules per day
  pilotlab run --replay web.csv --policy spdk-static --policy sandman --json

Exit codes:
  0  everything was measured or simulated
  1  a run, file, sensor or tool failed or is missing, or an invariant is violated; others are kept
  2  the command line, the file or the folder was refused; nothing was run or changed
  129, 130, 143  a measurement was ended by SIGHUP (129), Ctrl-C (130) or SIGTERM (143);
     settings are restored, and the run can be resumed. With nohup it ignores hang-up";

/// Options of `pilotlab run`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct RunArgs {
    /// The experiment, or a list of experiments
    #[arg(value_name = "FILE", required_unless_present_any = ["all", "replay", "resume"])]
    file: Option<PathBuf>,

    /// Repeats of each point [default: those of the file]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,

    /// Override a key of the file or of the machine (machine.poll.loop_ns=150, machine.governor=performance); repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,

    /// Only share K of N, for one of N machines; `pilotlab merge` joins the folders (docs/many-machines.md)
    #[arg(long, value_name = "K/N", requires = "out", conflicts_with_all = ["all", "json"])]
    shard: Option<Shard>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    live: live::LiveArgs,

    #[command(flatten)]
    simulated: simulated::SimulatedArgs,
}

/// The output and its location.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Results folder; an earlier run in it is continued [default for a simulated experiment: results beside its file if
    /// there is such a folder, otherwise here; for a measured one: bench-results/TITLE-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Only print the plan and its estimated time
    #[arg(long)]
    dry_run: bool,

    /// Print the results (with --dry-run the plan) as JSON
    #[arg(long)]
    json: bool,

    /// Write tables as CSV: the default for a simulated experiment's summary
    #[arg(long, conflicts_with = "parquet")]
    csv: bool,

    /// Write tables as Parquet: the default for the samples of a measured experiment
    #[arg(long)]
    parquet: bool,
}

/// Splits `KEY=VALUE`.
fn key_value(text: &str) -> anyhow::Result<(String, String)> {
    let (key, value) = text.split_once('=').context("expected KEY=VALUE, such as seed=3")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// The kind of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Measured on this machine.
    Live,
    /// Simulated: an experiment or a list of experiments.
    Simulated,
}

impl Kind {
    /// The kind of a file.
    fn read(file: &Path) -> anyhow::Result<Self> {
        let table = include::load(file)?.table;
        let is_policy_run = ["policy", "pass"].iter().any(|key| table.contains_key(*key));
        let is_tool_run = table.get("workload").is_some_and(toml::Value::is_table);
        match (is_policy_run, is_tool_run) {
            (true, false) => Ok(Self::Simulated),
            (false, true) => Ok(Self::Live),
            _ => anyhow::bail!(
                "{} is not an experiment: one that runs a tool has a section [workload], one that runs policies has [[policy]], a list has \
                 [[pass]] (docs/experiments.md)",
                file.display()
            ),
        }
    }
}

/// Runs an experiment.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let kind = match args.kind() {
        Ok(kind) => kind,
        Err(error) => {
            exit::report_error(&error);
            return Ok(Exit::Refused.into());
        }
    };
    match kind {
        Kind::Live => live::run(args),
        Kind::Simulated => simulated::run(args),
    }
}

/// Joins the folders of shares into `out`.
pub(crate) fn merge(folders: &[PathBuf], out: &Path, by_host: bool, json: bool) -> anyhow::Result<ExitCode> {
    let is_measured = folders.first().is_some_and(|folder| Folder::new(folder).plan().exists());
    if is_measured {
        return live::merge(folders, out, by_host, json);
    }
    if by_host {
        exit::report_error(&anyhow::anyhow!(
            "--by-host is for measured experiments; simulated ones do not depend on the host"
        ));
        return Ok(Exit::Refused.into());
    }
    simulated::merge(folders, out, json)
}

/// The number of runs of a simulated experiment, after a check of its file; `None` if it is measured.
pub(crate) fn count(args: &RunArgs) -> anyhow::Result<Option<usize>> {
    match args.kind()? {
        Kind::Live => live::check(args).map(|()| None),
        Kind::Simulated => simulated::count(args).map(Some),
    }
}

impl RunArgs {
    /// The file of a name; `papers/all` is `papers/all.toml`.
    fn file(&self) -> Option<PathBuf> {
        let file = self.file.as_ref()?;
        let longer = PathBuf::from(format!("{}.toml", file.display()));
        Some(if !file.exists() && longer.is_file() { longer } else { file.clone() })
    }

    /// The kind, if the options fit it.
    fn kind(&self) -> anyhow::Result<Kind> {
        let kind = match self.file() {
            Some(file) => Kind::read(&file)?,
            None if self.live.resume.is_some() => Kind::Live,
            None => Kind::Simulated,
        };
        let (other, why) = match kind {
            Kind::Live => {
                (self.simulated.first_set(), "applies to simulated experiments only; this one runs on a real machine")
            }
            Kind::Simulated => {
                (self.live.first_set(), "applies to experiments on a real machine only; this one is simulated")
            }
        };
        match other {
            Some(option) => anyhow::bail!("{option} {why}"),
            None => Ok(kind),
        }
    }
}

/// The name of the first option that is set.
fn first_set<const N: usize>(options: [(&'static str, bool); N]) -> Option<&'static str> {
    options.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn command() -> Command {
        RunArgs::augment_args(Command::new("run"))
    }

    /// The options under a heading, without those that require `--replay`.
    fn options(headings: &[&str]) -> BTreeSet<String> {
        let command = command();
        let within = |arg: &&clap::Arg| arg.get_help_heading().is_some_and(|heading| headings.contains(&heading));
        command
            .get_arguments()
            .filter(within)
            .filter_map(|arg| arg.get_long())
            .map(|name| format!("--{name}"))
            .collect()
    }

    /// The command line with one option and those it requires.
    fn given(option: &str) -> RunArgs {
        let value = match option {
            "--i-may-overwrite" | "--program" | "--simulated" | "--sensor" | "--replay" => Some("x"),
            "--seed" | "--workers" | "--lhs" => Some("1"),
            "--at" => Some("rate=1"),
            "--resume" => return parse(&["--resume", "x"]),
            _ => None,
        };
        let words: Vec<&str> = [option].into_iter().chain(value).collect();
        match option {
            "--all" => parse(&words),
            _ => parse(&[&["e.toml"], &words[..]].concat()),
        }
    }

    fn parse(words: &[&str]) -> RunArgs {
        let matches = command().try_get_matches_from(std::iter::once(&"run").chain(words)).unwrap();
        RunArgs::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn every_option_of_the_other_kind_is_refused() {
        let live = options(&["Experiments on this machine"]);
        let simulated = options(&["Simulated experiments", "Variants of the simulated machine"]);
        assert!(live.len() > 5 && simulated.len() > 5, "{live:?} {simulated:?}");
        for option in &live {
            let args = given(option);
            assert_eq!((args.live.first_set(), args.simulated.first_set()), (Some(option.as_str()), None));
        }
        for option in &simulated {
            let args = given(option);
            assert_eq!((args.live.first_set(), args.simulated.first_set()), (None, Some(option.as_str())));
        }
    }

    #[test]
    fn the_file_determines_the_kind() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |text: &str| {
            let path = folder.path().join("e.toml");
            std::fs::write(&path, text).unwrap();
            Kind::read(&path).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(kind("[[workload]]\nname = 'w'\n[[policy]]\nname = 'static'"), Ok(Kind::Simulated));
        assert_eq!(kind("[[pass]]\nname = 'p'"), Ok(Kind::Simulated));
        assert_eq!(kind("[workload]\nkind = 'fio'"), Ok(Kind::Live));
        std::fs::write(folder.path().join("common.toml"), "[workload]\nkind = 'fio'").unwrap();
        assert_eq!(kind("include = ['common.toml']"), Ok(Kind::Live));
        assert!(kind("[[claim]]\nid = 'a'").unwrap_err().contains("is not an experiment"));
        assert!(kind("title = ").unwrap_err().contains("e.toml"));
    }
}
