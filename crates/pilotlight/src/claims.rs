//! `pilotlight claims`: what the papers report, row by row, beside what comes out of the simulator.
//!
//! The files are found here and handed to `pilotlight_lab::claims`, which judges; `text` prints for people.

mod text;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use pilotlight_lab::claims::assess::Lab;
use pilotlight_lab::claims::calibration::Calibration;
use pilotlight_lab::claims::claim::{self, Claim};
use pilotlight_lab::claims::leave_out::{self, LeftOut};
use pilotlight_lab::claims::map::{self, Map};
use pilotlight_lab::claims::perturb::{self, Moved};
use pilotlight_lab::claims::results::Store;
use pilotlight_lab::claims::uncertainty::{self, Spread};
use pilotlight_lab::claims::{Report, html_section};
use serde::Serialize;

use crate::exit::Exit;

const CLAIMS: &str = "experiments/claims.toml";
const MAP: &str = "experiments/claims-map.toml";
const RESULTS: &str = "results";
const CONSTANTS: &str = "results/constants.csv";
const CALIBRATION: &str = "calibration.toml";

const ABOUT: &str = "\
What the papers report, row by row, beside what comes out here: the paper's value, ours with its 95 % interval, and a verdict.

A row comes out, is near, misses, or is undecided where its interval straddles; rows that constants were fitted on print \
calibrated, rows that need a trace nobody has print surrogate. docs/claims.md says how verdicts are reached and how further rows \
are mapped.";

const EXAMPLES: &str = "\
Examples:
  pilotlight claims
  pilotlight claims --seed-paper sandman --html claims.html
  pilotlight claims --claims more.toml --map more-map.toml
  pilotlight claims --perturb                       constants that change rows of one figure only
  pilotlight claims --uncertainty                   intervals over draws of all constants
  pilotlight claims --table leave-one-out           the table of docs/claims.md

Exit codes:
  0  told, whatever the verdicts are
  1  a file is missing or malformed; the message names it, with row and key
  2  the command line was refused";

/// Options of `pilotlight claims`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct ClaimsArgs {
    /// What papers report; repeatable [default: experiments/claims.toml]
    #[arg(long, value_name = "FILE")]
    claims: Vec<PathBuf>,

    /// Which output answers which row; repeatable [default: experiments/claims-map.toml]
    #[arg(long, value_name = "FILE")]
    map: Vec<PathBuf>,

    /// Results of experiments, a file or a folder of them; repeatable [default: results]
    #[arg(long, value_name = "FILE")]
    results: Vec<PathBuf>,

    /// Which constants were drawn for the variants lhs:N [default: results/constants.csv]
    #[arg(long, value_name = "FILE")]
    constants: Option<PathBuf>,

    /// Where profiles/, experiments/ and calibration.toml are [default: the nearest folder upward that has
    /// experiments/claims-map.toml]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,

    /// Only rows of one paper: sandman, pass, pacer, poll or thesis
    #[arg(long, value_name = "NAME")]
    seed_paper: Option<String>,

    /// Which verdicts change where one constant is moved by 20 %
    #[arg(long)]
    perturb: bool,

    /// What draws of all constants over their ranges do to each row
    #[arg(long)]
    uncertainty: bool,

    /// Print one table of the documentation, as Markdown, and nothing else
    #[arg(long, value_name = "NAME", conflicts_with_all = ["json", "perturb", "uncertainty"])]
    table: Option<Table>,

    /// Also print rows that no map has yet
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also write a page of HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A table of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Rows by paper and verdict
    Verdicts,
    /// Each figure with the constants fitted on it, and what comes out without it
    LeaveOneOut,
}

/// Everything that is printed.
#[derive(Serialize)]
struct Output {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    perturbed: Option<Vec<Moved>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertainty: Option<Vec<Spread>>,
}

/// Prints the claims as asked.
pub(crate) fn run(args: &ClaimsArgs) -> anyhow::Result<Exit> {
    let files = Files::read(args)?;
    let file = |path: &str| std::fs::read_to_string(files.root.join(path)).ok();
    let fitted_on = files.calibration.fitted_on();
    let lab = Lab {
        claims: &files.claims,
        map: &files.map,
        store: &files.store,
        calibrated: &fitted_on,
        file: &file,
        parameter: &default_of,
    };
    let report = Report::new(&lab, args.seed_paper.as_deref());
    if let Some(path) = &args.html {
        std::fs::write(path, page(&report)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(table) = args.table {
        return print(&markdown(table, &lab, &report, &files.calibration));
    }
    let perturbed = args.perturb.then(|| perturb::moved(&lab));
    let uncertainty = args.uncertainty.then(|| spreads(&lab, &files, args)).transpose()?;
    let output = Output { report, perturbed, uncertainty };
    print(&if args.json {
        serde_json::to_string_pretty(&output)? + "\n"
    } else {
        text::all(&output, args.all, text::Style { colour: colour() })
    })
}

/// The default of a policy's parameter.
fn default_of(policy: &str, key: &str) -> Option<String> {
    let parameters = pilotlight_policy::registry::parameters(policy)?;
    parameters.into_iter().find(|setting| setting.key == key).map(|setting| setting.value)
}

fn spreads(lab: &Lab<'_>, files: &Files, args: &ClaimsArgs) -> anyhow::Result<Vec<Spread>> {
    let path = args.constants.clone().unwrap_or_else(|| files.root.join(CONSTANTS));
    if !path.exists() && args.constants.is_none() {
        return Ok(Vec::new()); // nothing was drawn yet
    }
    Ok(uncertainty::spreads(lab, &uncertainty::draws(&path.display().to_string(), &read(&path)?)?))
}

/// What a command needs, read.
struct Files {
    root: PathBuf,
    claims: Vec<Claim>,
    map: Map,
    store: Store,
    calibration: Calibration,
}

impl Files {
    fn read(args: &ClaimsArgs) -> anyhow::Result<Self> {
        let root = root(args)?;
        let claims = claim::parse(&texts(&or(&args.claims, root.join(CLAIMS)))?)?;
        let map = map::parse(&texts(&or(&args.map, root.join(MAP)))?)?;
        let mut store = Store::default();
        for path in results(args, &root)? {
            store.add(&path.display().to_string(), &read(&path)?)?;
        }
        let path = root.join(CALIBRATION);
        let calibration = if path.exists() {
            Calibration::parse(&read(&path)?).with_context(|| path.display().to_string())?
        } else {
            Calibration::default()
        };
        Ok(Self { root, claims, map, store, calibration })
    }
}

/// The folder that files named in maps are relative to.
fn root(args: &ClaimsArgs) -> anyhow::Result<PathBuf> {
    if let Some(root) = &args.root {
        return Ok(root.clone());
    }
    let here = std::env::current_dir().context("cannot tell the present folder")?;
    let found = here.ancestors().find(|folder| folder.join(MAP).is_file()).map(Path::to_owned);
    if found.is_none() && (args.claims.is_empty() || args.map.is_empty()) {
        anyhow::bail!(
            "there is no {MAP} here or above: run it in the repository, or say --root, or --claims and --map"
        );
    }
    Ok(found.unwrap_or(here))
}

fn or(given: &[PathBuf], default: PathBuf) -> Vec<PathBuf> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

/// Files of results; folders stand for the CSV files in them. The default folder may be missing: then nothing was run yet.
fn results(args: &ClaimsArgs, root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in or(&args.results, root.join(RESULTS)) {
        if path.is_dir() {
            files.extend(in_folder(&path)?);
        } else if path.exists() || !args.results.is_empty() {
            files.push(path);
        }
    }
    Ok(files)
}

fn in_folder(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let wrong = || format!("cannot read {}", folder.display());
    let entries = std::fs::read_dir(folder).with_context(wrong)?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>().with_context(wrong)?;
    files.retain(|path| path.extension().is_some_and(|end| end == "csv") && !path.ends_with("constants.csv"));
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn texts(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, String)>> {
    paths.iter().map(|path| Ok((path.display().to_string(), read(path)?))).collect()
}

fn markdown(table: Table, lab: &Lab<'_>, report: &Report, calibration: &Calibration) -> String {
    match table {
        Table::Verdicts => text::verdicts(report),
        Table::LeaveOneOut => {
            let rows: Vec<LeftOut> = leave_out::table(lab, report, calibration);
            text::left_out(&rows, calibration.constants.len(), report)
        }
    }
}

/// A page that holds the section alone.
fn page(report: &Report) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Claims</title></head>\n<body>\n{}</body>\n\
         </html>\n",
        html_section(report)
    )
}

/// Whether standard output takes colours.
fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints; that nobody reads to the end is no failure.
fn print(text: &str) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(Exit::Clean),
    }
}
