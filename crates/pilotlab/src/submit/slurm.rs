//! `pilotlab submit slurm`: an array job that runs the shares, and a dependent job that merges them.

use std::path::{Path, PathBuf, absolute};
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;

use super::scripts::{Job, quoted};
use crate::console;
use crate::exit::Exit;
use crate::files;
use crate::run::command::utf8;
use crate::run::{self, VariantArgs};

const ABOUT: &str = "\
Submit an experiment to Slurm: an array job in which each task runs one share (`pilotlab run --shard`), and a job that merges the results after \
all tasks have succeeded. Program, file and --out must be at the same paths on all nodes.

A task that is preempted, loses its node or is ended by a signal is requeued and continues where it was interrupted. After any other failure \
the merge is cancelled; the same command submits what is missing. A measured experiment is one task on a node of its own (--exclusive); its \
results name the node, and it is not continued on another one. Scripts, logs (JOB_TASK.log), shares and results are in --out.";

const EXAMPLES: &str = "\
Examples:
  pilotlab submit slurm papers/sandman/fig3.toml --tasks 100
  pilotlab submit slurm papers/sandman/fig4.toml --family --out /shared/fig4
  pilotlab submit slurm papers/sandman/fig3.toml -- --partition=long --time=2:00:00 --cpus-per-task=4
  pilotlab submit slurm experiments/quick.toml -- --nodelist=node7
  pilotlab submit slurm papers/sandman/fig3.toml --dry-run

Exit codes:
  0  submitted; the numbers of the jobs are printed
  1  sbatch failed, or a script cannot be written
  2  the command line or the experiment was refused; nothing was submitted";

/// Number of tasks by default.
const TASKS: u32 = 8;
/// Maximum number of tasks: the default of Slurm's `MaxArraySize` minus 1.
const MAX_TASKS: i64 = 1_000;
/// Options of `sbatch` that the scripts set.
const RESERVED: [&str; 6] = ["--array", "-a", "--dependency", "-d", "--wrap", "--parsable"];

/// Options of `pilotlab submit slurm`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(super) struct SlurmArgs {
    /// The experiment
    file: PathBuf,

    /// Number of tasks, at most one per run [default: 8; 1 for a measured experiment]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MAX_TASKS))]
    tasks: Option<u32>,

    /// Folder for shares, logs, scripts and results, on storage that all nodes share [default: slurm-results/FILE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Only print the scripts and commands
    #[arg(long)]
    dry_run: bool,

    /// Repeats of each point [default: those of the file]
    #[arg(long, value_name = "COUNT")]
    repeats: Option<u32>,

    /// Override a key of the file or of the machine; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Two short runs of each point, as a test
    #[arg(long)]
    smoke: bool,

    /// Only points with this value of a parameter; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    at: Vec<String>,

    #[command(flatten)]
    variants: VariantArgs,

    /// Options of sbatch, for both jobs
    #[arg(last = true, value_name = "SBATCH OPTIONS")]
    sbatch: Vec<String>,
}

impl SlurmArgs {
    /// Arguments of `pilotlab run`.
    fn arguments(&self) -> anyhow::Result<Vec<String>> {
        let file = self.file.canonicalize().with_context(|| format!("cannot read {}", self.file.display()))?;
        let mut words = vec![utf8(&file)?];
        let pairs = |option: &str, values: &[String]| {
            values.iter().flat_map(|value| [option.to_owned(), value.clone()]).collect::<Vec<_>>()
        };
        words.extend(pairs("--set", &self.set));
        words.extend(self.repeats.into_iter().flat_map(|count| ["--repeats".to_owned(), count.to_string()]));
        words.extend(pairs("--at", &self.at));
        words.extend(self.variants.arguments());
        words.extend(self.smoke.then(|| "--smoke".to_owned()));
        Ok(words)
    }

    /// The jobs, after a check of the experiment.
    fn job(&self) -> anyhow::Result<Job> {
        let reserved = |option: &&String| RESERVED.contains(&option.split('=').next().unwrap_or_default());
        if let Some(option) = self.sbatch.iter().find(reserved) {
            anyhow::bail!("{option}: the scripts set this option of sbatch; omit it");
        }
        let words = self.arguments()?;
        let runs = run::count(&run::command::parse(&words)?)?;
        let live = runs.is_none();
        anyhow::ensure!(
            !live || self.tasks.is_none_or(|tasks| tasks == 1),
            "--tasks: a measured experiment is one task, because results of different nodes must not be mixed; omit it"
        );
        let most = runs.map_or(1, |runs| u32::try_from(runs).unwrap_or(u32::MAX)).max(1);
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let out = self.out.clone().unwrap_or_else(|| Path::new("slurm-results").join(&name));
        let out = utf8(&absolute(&out)?)?;
        anyhow::ensure!(
            !out.contains(['"', '\\']),
            "--out {out}: Slurm does not accept \" and \\ in the path of a log"
        );
        let program = std::env::current_exe().context("cannot determine the path of this program")?;
        let tasks = self.tasks.unwrap_or(TASKS).min(most);
        Ok(Job { name, program: utf8(&program)?, words, tasks, out, live })
    }

    /// The command line of `sbatch`, after its name.
    fn sbatch(&self, script: &Path, after: Option<&str>) -> Vec<String> {
        let after = after.map(|job| [format!("--dependency=afterok:{job}"), "--kill-on-invalid-dep=yes".to_owned()]);
        let own = std::iter::once("--parsable".to_owned()).chain(after.into_iter().flatten());
        own.chain(self.sbatch.iter().cloned()).chain([script.display().to_string()]).collect()
    }
}

/// Submits the jobs, or prints them.
pub(super) fn run(args: &SlurmArgs) -> anyhow::Result<ExitCode> {
    let job = match args.job() {
        Ok(job) => job,
        Err(error) => {
            crate::exit::report_error(&error);
            return Ok(Exit::Refused.into());
        }
    };
    let out = Path::new(&job.out);
    let scripts = [Some(("shards.sbatch", job.shards())), job.merge().map(|text| ("merge.sbatch", text))];
    let scripts: Vec<(PathBuf, String)> =
        scripts.into_iter().flatten().map(|(name, text)| (out.join(name), text)).collect();
    if args.dry_run {
        return show(args, &scripts);
    }
    let logs = out.join("logs");
    std::fs::create_dir_all(&logs).map_err(|error| files::failed(&logs, error))?;
    scripts.iter().try_for_each(|(path, text)| files::write(path, text))?;
    let [array, merge @ ..] = scripts.as_slice() else { anyhow::bail!("there is no script") };
    let number = submit(&args.sbatch(&array.0, None))?.map_err(|text| {
        let name = format!("pilotlab-{}", job.name);
        anyhow::anyhow!(
            "sbatch submitted job {name}, but its number is not in {text:?}, so no merge was submitted: see it with `squeue --me --name={name}`; \
             merge its shares by hand (the command is in merge.sbatch), or cancel it: scancel --name={name}"
        )
    })?;
    console::println(format_args!("job {number}: {} tasks, logs in {}", job.tasks, logs.display()))?;
    for (script, _) in merge {
        let merge = submit(&args.sbatch(script, Some(&number)))
            .with_context(|| format!("job {number} runs; merge its shares by hand, or cancel it: scancel {number}"))?;
        // Nothing depends on its number.
        let merge = merge.unwrap_or_else(|_| format!("pilotlab-{}-merge", job.name));
        console::println(format_args!("job {merge} merges after it"))?;
    }
    console::println(format_args!("results will be in {}", out.join("results").display()))?;
    Ok(Exit::Clean.into())
}

fn show(args: &SlurmArgs, scripts: &[(PathBuf, String)]) -> anyhow::Result<ExitCode> {
    for (at, (path, text)) in scripts.iter().enumerate() {
        let words = args.sbatch(path, (at > 0).then_some("JOB"));
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        console::println(format_args!("sbatch {}\n\n{text}", words.join(" ")))?;
    }
    Ok(Exit::Clean.into())
}

/// Submits a script; returns the number of the job, or the output of `sbatch` that has none.
fn submit(words: &[String]) -> anyhow::Result<Result<String, String>> {
    let output = Command::new("sbatch").args(words).output();
    let output =
        output.context("cannot run sbatch: use a machine that submits to Slurm, or --dry-run for the scripts")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "sbatch failed ({}): {}", output.status, said.trim());
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(number(&text).map_or_else(|| Err(text.trim().to_owned()), |number| Ok(number.to_owned())))
}

/// The number of the job in the output of `sbatch`, also where a site's wrapper of it adds lines or omits `--parsable`.
fn number(text: &str) -> Option<&str> {
    let is_number = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let in_words = text.split_once("Submitted batch job ").map(|(_, rest)| rest);
    let in_words = in_words.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()).filter(is_number);
    // JOB or JOB;CLUSTER
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty())?.split(';').next().filter(is_number);
    in_words.or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_job_is_found_among_lines_of_a_site() {
        for (text, expected) in [
            ("17\n", Some("17")),
            ("17;cluster\n", Some("17")),
            ("Welcome to 2 clusters\n\n17\n\n", Some("17")),
            ("Submitted batch job 17\n", Some("17")),
            ("sbatch: Submitted batch job 17 on cluster c1\nYour balance: 3 hours\n", Some("17")),
            ("Submitted batch job 17\n99\n", Some("17")),
            ("Submitted\n", None),
            ("job 17 was queued\n", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text:?}");
        }
    }
}
