//! Results of a simulated experiment as `pilotlab claims` reads them: one number a line, packed.
//!
//! What the paper compares (a mechanism, a scheduler, an engine) is the policy; what else is varied is the point. Metrics have the names
//! of `results.csv`, without the profile's: the first line names it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use pilotlight_bench::experiment::Loaded;
use pilotlight_bench::metrics::Metric;
use pilotlight_bench::plan::Plan;
use pilotlight_bench::results::Folder;
use pilotlight_bench::run::computed::{self, Ask, Computed as _};
use pilotlight_bench::run::{Senses, taken};
use pilotlight_lab::fingerprint::Fingerprint;
use pilotlight_lab::results::{self, About, Cell};
use pilotlight_lab::variant::DEFAULT;
use pilotlight_workloads::Point;

use super::Simulated;
use crate::files;

/// What a paper compares, the first that is varied.
const POLICIES: [&str; 3] = ["mechanism", "machine.scheduler", "ioengine"];
/// What rows of papers are about.
const METRICS: [&str; 16] = [
    "iops",
    "bytes_per_s",
    "latency_mean_us",
    "latency_p99_us",
    "ssd_power_w",
    "cpu_power_w",
    "system_power_w",
    "io_per_j_ssd_cpu",
    "bytes_per_j_ssd_cpu",
    "bytes_per_j_system",
    "io_power_delay_mean_ws_ssd_cpu",
    "cpu_busy_cores",
    "context_switches_per_s",
    "context_switches_per_operation",
    "written_bytes",
    "drive_busy_after_s",
];

/// Writes `NAME.csv.zst` into `folder`; the name is that of the experiment's file with the folder it is in.
pub(in crate::run::live) fn write(
    file: &Path,
    of: &Simulated,
    (loaded, plan): (&Loaded, &Plan),
    results_in: &Folder,
    folder: &Path,
) -> anyhow::Result<()> {
    let name = name_of(file);
    let senses = Senses { domains: of.domains(), ..Senses::default() };
    let mut text = head(file, &name, of).lines();
    let cells = cells(of, loaded, plan)?;
    let mut last = None;
    for (run, metrics) in computed::metrics(results_in, &taken(&senses, None))? {
        let cell = cell(plan, &run.knobs, of);
        if last.as_ref() != Some(&cell) {
            text.extend(cells.get(&cell).map(|fingerprint| cell.line(*fingerprint)));
        }
        let Cell { point, policy: system, .. } = last.insert(cell);
        let seed = plan.seed_of(run.key);
        for (key, unit, value) in numbers(&metrics, of.name()) {
            let replication = run.key.repeat;
            writeln!(text, "{name},{point},default,{system},{replication},{seed},{key},{unit},{}", shown(value))?;
        }
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(format!("{}.csv.zst", name.replace('/', "-")));
    files::write(&path, results::packed(&text)?)
}

/// What rows of papers are about: name without the profile's, unit, value; and shares of the system's power.
fn numbers(metrics: &[Metric], profile: &str) -> Vec<(String, String, f64)> {
    let model = format!("_modelled_{}", tidy(profile));
    let number = |metric: &Metric| {
        let key = metric.key.replace(&model, "");
        let unit = if metric.unit.is_empty() { "1" } else { &metric.unit };
        let value = *metric.value.as_ref().ok()?;
        METRICS.contains(&key.as_str()).then(|| (key, unit.to_owned(), value))
    };
    let mut numbers: Vec<(String, String, f64)> = metrics.iter().filter_map(number).collect();
    let watts = |of: &str| numbers.iter().find(|(key, ..)| key == of).map(|(.., value)| *value);
    let share = |of: &str| Some(100.0 * watts(&format!("{of}_power_w"))? / watts("system_power_w")?);
    let shares = ["cpu", "ssd"].map(|of| share(of).map(|share| (format!("{of}_share_percent"), "%".to_owned(), share)));
    numbers.extend(shares.into_iter().flatten());
    numbers
}

/// Nine significant digits, as all results.
fn shown(value: f64) -> String {
    let rounded: f64 = format!("{value:.8e}").parse().unwrap_or(value);
    rounded.to_string()
}

/// The values of each cell: the machine's and those of the load in its first repeat ([`pilotlight_lab::fingerprint`]).
pub(super) fn cells(of: &Simulated, loaded: &Loaded, plan: &Plan) -> anyhow::Result<BTreeMap<Cell, Fingerprint>> {
    let one = |point: &Point, ask: &Ask<'_>| {
        Ok((cell(plan, point, of), Fingerprint::of(&(&of.host, &super::asked::load(&of.host, ask)?))))
    };
    Ok(computed::asked(loaded, plan, one)?.into_iter().collect())
}

/// What a point is called: the mechanism that the paper compares as policy, and what else is varied.
fn cell(plan: &Plan, knobs: &Point, of: &Simulated) -> Cell {
    let knob = POLICIES.iter().copied().find(|knob| varies(plan, knob));
    let policy = knob.and_then(|knob| knobs.get(knob)).map_or_else(|| of.name().to_owned(), ToString::to_string);
    Cell { point: point(plan, knobs, knob), variant: DEFAULT.to_owned(), policy }
}

fn head(file: &Path, name: &str, of: &Simulated) -> About {
    let absolute = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let home = pilotlight_lab::experiment::home(&absolute).unwrap_or_default();
    About {
        experiment: name.to_owned(),
        profile: of.name().to_owned(),
        hash: of.hash(),
        file: absolute.strip_prefix(&home).unwrap_or(file).display().to_string(),
        ..About::default()
    }
}

/// `completion/paper` of `experiments/completion/paper.toml`.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let folder = file.parent().and_then(Path::file_name).map(|folder| format!("{}/", folder.to_string_lossy()));
    format!("{}{stem}", folder.unwrap_or_default())
}

fn varies(plan: &Plan, knob: &str) -> bool {
    let first = plan.points.first().and_then(|point| point.get(knob));
    plan.points.iter().any(|point| point.get(knob) != first)
}

fn point(plan: &Plan, knobs: &Point, policy: Option<&str>) -> String {
    let shown = |(name, _): &(&String, _)| Some(name.as_str()) != policy && varies(plan, name);
    let pair = |(name, value): (&String, &pilotlight_workloads::Value)| {
        format!("{}={}", name.strip_prefix("machine.").unwrap_or(name), value.to_string().replace([',', ';', '='], " "))
    };
    let pairs: Vec<String> = knobs.iter().filter(shown).map(pair).collect();
    if pairs.is_empty() { "-".into() } else { pairs.join(";") }
}

fn tidy(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}
