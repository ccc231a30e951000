//! `pilotlab claims`: compares values of the papers with results of the simulator.
//!
//! Reads the files for `pilotlight_claims`, which assesses them; `text` renders the report, `tables` the tables of the documentation.

mod demo;
mod inert;
mod tables;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use pilotlight_claims::check;
use pilotlight_claims::claim::{self, Claim};
use pilotlight_claims::constants;
use pilotlight_claims::lab::Lab;
use pilotlight_claims::leave_out::{self, LeftOut};
use pilotlight_claims::map::{self, Map};
use pilotlight_claims::perturb::{self, Sensitivity};
use pilotlight_claims::results::Store;
use pilotlight_claims::shift::Shifts;
use pilotlight_claims::uncertainty::{self, Draws, Spread};
use pilotlight_claims::{Report, html};
use pilotlight_input::include;
use pilotlight_lab::simulated::calibration::Calibration;
use pilotlight_lab::simulated::host;
use pilotlight_lab::simulated::stale as lab_stale;
use pilotlight_lab::stored::folders;
use pilotlight_lab::stored::values::{self, Provenance};
use serde::Serialize;

use crate::console;
use crate::exit::Exit;
use crate::files;
use crate::stale;
use tables::Table;

const CLAIMS: &str = "papers/claims.toml";
/// The map that identifies the root of the repository; the others are optional.
const MAP: &str = map::PROJECT[0];
/// Variants of the machine by short runs: the folder within results.
const SHORT: &str = "short";
/// The machine whose constants are left out figure by figure.
const MACHINE: &str = "sandman-epyc-9454p";
/// How the papers are read where their words leave a choice.
const READINGS: &str = "papers/readings.toml";

const ABOUT: &str = "\
Compare results of the papers with ours, row by row: the paper's value, ours with its 95 % interval, and a verdict.

A row is judged by three tiers: direction, size (25 %) and value (10 %); the verdict is the highest that holds. Rows that constants were fitted on are \
calibrated, rows that need an unavailable trace are surrogate. docs/claims.md defines the verdicts and describes how to map further \
rows.";

const EXAMPLES: &str = "\
Examples:
  pilotlab claims
  pilotlab claims --paper sandman --html claims.html
  pilotlab claims --claims more.toml --map more-map.toml
  pilotlab claims --perturb                       constants that change rows of one figure only
  pilotlab claims --uncertainty                   intervals over draws of all constants

Exit codes:
  0  printed, whatever the verdicts are
  1  a file is missing or malformed; the message names it, with row and key
  2  the command line was refused";

/// Options of `pilotlab claims`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct ClaimsArgs {
    /// Claims of the papers; repeatable [default: papers/claims.toml]
    #[arg(long, value_name = "FILE")]
    claims: Vec<PathBuf>,

    /// Map from claims to results; repeatable [default: papers/claims-map.toml, and with it claims-map-machines.toml, -pass.toml and -pacer.toml]
    #[arg(long, value_name = "FILE")]
    map: Vec<PathBuf>,

    /// Results: the folder of an experiment or a folder of such folders; repeatable [default: results/, and those beside
    /// experiments in experiments/ and papers/; of variants of constants those in short/ of these]
    #[arg(long, value_name = "FILE")]
    results: Vec<PathBuf>,

    /// Folder of profiles/, experiments/ and papers/ [default: the nearest parent folder with papers/claims-map.toml]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,

    /// Only rows of one paper: sandman, pass, pacer, poll or thesis
    #[arg(long, value_name = "NAME")]
    paper: Option<String>,

    /// Show verdicts that change if a constant changes by 20 %
    #[arg(long)]
    perturb: bool,

    /// Show the effect of random constants on each row
    #[arg(long)]
    uncertainty: bool,

    /// Print only one table of the documentation, as Markdown
    #[arg(long, value_name = "NAME", hide = true, conflicts_with_all = ["json", "perturb", "uncertainty", "write_tables"])]
    table: Option<Table>,

    /// Write all tables between their marks in papers/README.md and papers/constants.md
    #[arg(long, hide = true, conflicts_with_all = ["json", "perturb", "uncertainty", "paper"])]
    write_tables: bool,

    /// Also print rows without a mapping
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also write an HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The output.
#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stale: Vec<String>,
    /// Parameters without effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inert: Vec<String>,
    /// Each figure with the results of constants not fitted on it.
    leave_one_out: Vec<LeftOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    perturbed: Option<Vec<Sensitivity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertainty: Option<Vec<Spread>>,
}

/// Runs the command.
pub(crate) fn run(args: &ClaimsArgs) -> anyhow::Result<Exit> {
    // before the results, whose reading takes seconds
    let (root, claims) = claims(args)?;
    if let Some(refusal) = args.paper.as_deref().and_then(|name| unknown_paper(name, &claims)) {
        crate::exit::report_error(&refusal);
        return Ok(Exit::Refused);
    }
    let files = Files::read(args, root, claims)?;
    let short = files.short(args)?;
    let shifts = short.as_ref().map(|short| short.judged(None, constants::shifts));
    console::print(files.judged(shifts.as_ref(), |lab| render(args, &files, short.as_ref(), lab))?)?;
    Ok(Exit::Clean)
}

/// A message about an unknown paper.
fn unknown_paper(name: &str, claims: &[Claim]) -> Option<anyhow::Error> {
    let papers: BTreeSet<&str> = claims.iter().map(|claim| claim.seed.as_str()).collect();
    let known = || papers.iter().copied().collect::<Vec<_>>().join(", ");
    (!papers.contains(name)).then(|| anyhow::anyhow!("--paper {name}: there are rows of {}", known()))
}

fn render(args: &ClaimsArgs, files: &Files, short: Option<&Files>, lab: &Lab<'_>) -> anyhow::Result<String> {
    let mut report = Report::new(lab, args.paper.as_deref());
    report.name_fits(&files.fits);
    let tables = args.table.is_some() || args.write_tables;
    let varied = Varied::new(short.unwrap_or(files), (tables || args.perturb, tables || args.uncertainty));
    let material = tables::Material { report: &report, varied: &varied, calibration: &files.calibration };
    if let Some(table) = args.table {
        return Ok(tables::markdown(table, args.paper.as_deref(), &material));
    }
    if args.write_tables {
        return tables::write(&files.root, &material);
    }
    let Varied { left_out: leave_one_out, moved: perturbed, spreads: uncertainty, stale } = varied;
    let stale = files.stale.iter().chain(&stale).cloned().collect();
    let inert = inert::sentences(&results(args, &files.root)?, &files.root)?;
    let output = Output { report, stale, inert, leave_one_out, perturbed, uncertainty };
    if let Some(path) = &args.html {
        files::write(path, page(&output))?;
    }
    if args.json {
        return Ok(serde_json::to_string_pretty(&output)? + "\n");
    }
    let stale = output.stale.iter().map(|file| format!("stale: {file}\n"));
    let inert: String = output.inert.iter().map(|sentence| format!("without effect: {sentence}\n")).collect();
    let inert = if inert.is_empty() { inert } else { format!("\n{inert}") };
    Ok(stale.collect::<String>() + &text::render(&output, args.all, text::Style { colour: console::colour() }) + &inert)
}

/// Results of variants of the machine, by default in `short/` of the results, because variants are simulated by short runs.
struct Varied {
    left_out: Vec<LeftOut>,
    moved: Option<Vec<Sensitivity>>,
    spreads: Option<Vec<Spread>>,
    stale: Vec<String>,
}

impl Varied {
    fn new(files: &Files, (moved, spreads): (bool, bool)) -> Self {
        files.judged(None, |lab| Self {
            left_out: leave_out::table(lab, &files.calibration),
            moved: moved.then(|| perturb::sensitivities(lab)),
            spreads: spreads.then(|| uncertainty::spreads(lab, &files.draws)),
            stale: files.stale.clone(),
        })
    }
}

/// A policy's parameter as printed in its paper.
fn default_of(policy: &str, key: &str) -> Option<String> {
    let parameters = pilotlight_policy::registry::as_printed(policy)?;
    parameters.into_iter().find(|setting| setting.key == key).map(|setting| setting.value)
}

/// The inputs of the command.
struct Files {
    root: PathBuf,
    claims: Vec<Claim>,
    map: Map,
    store: Store,
    /// Stale results files, with the reason.
    stale: Vec<String>,
    /// The constants of random draws, by experiment.
    draws: BTreeMap<String, Draws>,
    calibration: Calibration,
    /// Claims used for fits, with the fitted constants and choices.
    fits: BTreeMap<String, Vec<String>>,
    /// Its keys.
    calibrated: BTreeSet<String>,
}

impl Files {
    /// Variants of the machine in [`SHORT`], if there are any and no other results are named.
    fn short(&self, args: &ClaimsArgs) -> anyhow::Result<Option<Self>> {
        let mut short: Vec<PathBuf> = folders::results(&self.root).iter().map(|folder| folder.join(SHORT)).collect();
        short.retain(|folder| folder.is_dir());
        let is_used = args.results.is_empty() && !short.is_empty();
        let args = ClaimsArgs { results: short, ..args.clone() };
        is_used.then(|| Self::read(&args, self.root.clone(), self.claims.clone())).transpose()
    }

    fn read(args: &ClaimsArgs, root: PathBuf, claims: Vec<Claim>) -> anyhow::Result<Self> {
        let map = map::parse(&texts(&maps(args, &root))?)?;
        check::check(&map, &claims)?;
        let (mut store, mut stale, mut draws) = (Store::default(), Vec::new(), BTreeMap::new());
        for path in results(args, &root)? {
            let text = values::text(&path).with_context(|| format!("cannot read {}", path.display()))?;
            store.add(&path.display().to_string(), &text)?;
            let (about, cells) = (Provenance::parse(&text), values::cells(&text));
            if about.is_measured() {
                continue;
            }
            let reason = lab_stale::reason(&cells, &stale::current_cells(&about, &cells, &root));
            if reason.is_none() {
                let of_experiment: &mut Draws = draws.entry(about.experiment.clone()).or_default();
                of_experiment.extend(lab_stale::draws(&about, &cells, &root));
            }
            let remedy = || stale::remedy(&about, &cells, &path, &root);
            stale.extend(reason.map(|reason| format!("{}: {reason}: {}", path.display(), remedy())));
        }
        map.families.iter().for_each(|(parameter, default)| store.fold(parameter, default));
        let mut others = host::calibrations(&root.join("profiles"))?;
        let own = others.iter().position(|(name, _)| name == MACHINE);
        let calibration = own.map(|at| others.remove(at).1).unwrap_or_default();
        let mut fits = calibration.fits();
        for (name, what) in others.iter().flat_map(|(_, calibration)| calibration.fits()) {
            fits.entry(name).or_default().extend(what);
        }
        readings(&root)?.into_iter().for_each(|(id, rows)| {
            rows.into_iter().for_each(|row| fits.entry(row).or_default().push(format!("the reading {id}")));
        });
        let calibrated = fits.keys().cloned().collect();
        Ok(Self { root, claims, map, store, stale, draws, calibration, fits, calibrated })
    }

    /// Calls `then` with all inputs; intervals include the effect of constants.
    fn judged<R>(&self, constants: Option<&Shifts>, then: impl FnOnce(&Lab<'_>) -> R) -> R {
        then(&Lab {
            claims: &self.claims,
            map: &self.map,
            store: &self.store,
            calibrated: &self.calibrated,
            file: &|path| project_file(&self.root.join(path)),
            parameter: &default_of,
            constants,
        })
    }
}

/// The text of a file of the project; experiments with their includes.
fn project_file(path: &Path) -> Option<String> {
    let is_experiment = path.extension().is_some_and(|ending| ending == "toml")
        && path.components().any(|part| folders::EXPERIMENTS.iter().any(|folder| part.as_os_str() == *folder));
    if is_experiment {
        return Some(include::load(path).ok()?.table.to_string());
    }
    std::fs::read_to_string(path).ok()
}

/// Readings, each with the rows whose results were known when it was chosen.
fn readings(root: &Path) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    #[derive(serde::Deserialize)]
    struct File {
        reading: Vec<Reading>,
    }
    #[derive(serde::Deserialize)]
    struct Reading {
        id: String,
        known: Vec<String>,
    }
    let path = root.join(READINGS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let file: File = toml::from_str(&read(&path)?).with_context(|| path.display().to_string())?;
    Ok(file.reading.into_iter().map(|reading| (reading.id, reading.known)).collect())
}

/// The root of paths in maps, and the claims.
fn claims(args: &ClaimsArgs) -> anyhow::Result<(PathBuf, Vec<Claim>)> {
    let root = root(args)?;
    let claims = claim::parse(&texts(&given_or(&args.claims, root.join(CLAIMS)))?)?;
    Ok((root, claims))
}

/// The root of paths in maps.
fn root(args: &ClaimsArgs) -> anyhow::Result<PathBuf> {
    if let Some(root) = &args.root {
        return Ok(root.clone());
    }
    let here = std::env::current_dir().context("cannot determine the current folder")?;
    let found = here.ancestors().find(|folder| folder.join(MAP).is_file()).map(Path::to_owned);
    if found.is_none() && (args.claims.is_empty() || args.map.is_empty()) {
        anyhow::bail!(
            "there is no {MAP} in this folder or its parents: run it in the repository, or set --root, or --claims and --map"
        );
    }
    Ok(found.unwrap_or(here))
}

/// The requested maps, or those of the project.
fn maps(args: &ClaimsArgs, root: &Path) -> Vec<PathBuf> {
    let mut maps = given_or(&args.map, root.join(MAP));
    if args.map.is_empty() {
        maps.extend(map::PROJECT[1..].iter().map(|map| root.join(map)).filter(|map| map.is_file()));
    }
    maps
}

fn given_or(given: &[PathBuf], default: PathBuf) -> Vec<PathBuf> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

/// Results files in the folders and their direct subfolders. The default folders may be missing.
fn results(args: &ClaimsArgs, root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let folders = if args.results.is_empty() { folders::results(root) } else { args.results.clone() };
    for path in folders {
        if path.is_dir() {
            files.extend(values::files(&path).with_context(|| format!("cannot read {}", path.display()))?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn texts(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, String)>> {
    paths.iter().map(|path| Ok((path.display().to_string(), read(path)?))).collect()
}

/// The HTML page.
fn page(output: &Output) -> String {
    let Output { report, stale, inert, leave_one_out, perturbed, uncertainty } = output;
    let (moved, spreads) = (perturbed.as_deref(), uncertainty.as_deref());
    let more = html::Appendix { stale, inert, left_out: leave_one_out, moved, spreads };
    html::page(report, &more)
}
