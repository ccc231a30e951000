//! `pilotlab compare`: compares two results folders, or two settings of one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use pilotlight_lab::compare::{Comparison, Pair, Question, Side, compare};
use pilotlight_lab::result_set::ResultSet;
use pilotlight_lab::results::FolderError;
use pilotlight_report::table::short;

use crate::console;
use crate::exit::Exit;
use crate::table::Table;

const ABOUT: &str = "\
Compare B with A: two folders of results, or two settings of one, point by point and metric by metric.

Differences are B minus A, ratios B over A, each with its 95 % interval; g is Hedges' g, the difference in standard deviations. A \
difference is shown where Welch's t-test, corrected by Holm for all comparisons made, gives p below 0.05. Points that were \
measured once are not tested. Differences between the two machines and experiments are listed.";

const EXAMPLES: &str = "\
Examples:
  pilotlab compare results/before results/after
  pilotlab compare results/today --point ioengine=libaio --versus ioengine=io_uring
  pilotlab compare papers/sandman/results/fig4 --point policy=spdk-static --versus policy=sandman
  pilotlab compare before after --point bs=4k --metric iops --metric io_per_j_system
  pilotlab compare before after --margin 5%       also show metrics that are equal within 5 %
  pilotlab compare before after --exit-code       for scripts: 3 if a difference is shown

Exit codes:
  0  compared, whatever the result
  1  a folder cannot be read; the message names the file
  2  the command line was refused, or nothing can be compared
  3  with --exit-code: a difference is shown";

/// Exit code for significant differences.
const DIFFERENT: u8 = 3;

/// Options of `pilotlab compare`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct CompareArgs {
    /// Results A, the reference
    a: PathBuf,

    /// Results B [default: A]
    b: Option<PathBuf>,

    /// Select points by the value of a knob; repeatable
    #[arg(long, value_name = "KNOB=VALUE", value_parser = pair)]
    point: Vec<(String, String)>,

    /// Value of the knob in B; repeatable
    #[arg(long, value_name = "KNOB=VALUE", value_parser = pair)]
    versus: Vec<(String, String)>,

    /// A metric (docs/metrics.md); repeatable [default: rates, latencies, power, efficiency, CPU time]
    #[arg(long, value_name = "KEY")]
    metric: Vec<String>,

    /// Test equivalence within this share of A's mean, such as 5%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    margin: Option<f64>,

    /// Also compare metrics with different models or parts of the machine
    #[arg(long)]
    mixed: bool,

    /// Exit with code 3 if a difference is significant
    #[arg(long)]
    exit_code: bool,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// A knob and its value.
pub(crate) fn pair(text: &str) -> anyhow::Result<(String, String)> {
    let pair = text.split_once('=').filter(|(knob, value)| !knob.is_empty() && !value.is_empty());
    let (knob, value) = pair.context("expected KNOB=VALUE, such as bs=4k")?;
    Ok((knob.trim().to_owned(), value.trim().to_owned()))
}

fn share(text: &str) -> anyhow::Result<f64> {
    let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let percent = percent.filter(|percent| *percent > 0.0 && *percent < 100.0);
    percent.map(|percent| percent / 100.0).context("expected a share such as 5%")
}

/// Runs the command.
pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| ResultSet::read(path).map_err(|error| unreadable(path, error));
    let a = read(&args.a)?;
    let b = args.b.as_ref().map(read).transpose()?.unwrap_or_else(|| a.clone());
    let question = Question {
        metrics: args.metric.clone(),
        point: args.point.clone(),
        versus: args.versus.clone(),
        margin: args.margin,
        mixed: args.mixed,
    };
    let comparison = match compare(&a, &b, &question) {
        Ok(comparison) => comparison,
        Err(refused) => {
            console::eprintln(format_args!("error: {refused}"));
            return Ok(Exit::Refused.into());
        }
    };
    if args.json {
        console::println(serde_json::to_string_pretty(&comparison)?)?;
    } else {
        console::print(text(&comparison))?;
    }
    let differs = comparison.pairs.iter().any(|pair| pair.verdict.is_difference());
    Ok(if args.exit_code && differs { DIFFERENT.into() } else { Exit::Clean.into() })
}

/// The error for a folder without readable results.
pub(crate) fn unreadable(folder: &Path, error: FolderError) -> anyhow::Error {
    let folder = folder.display();
    let missing = matches!(&error, FolderError::File { error, .. } if error.kind() == ErrorKind::NotFound);
    let what = match &error {
        _ if missing => format!("{folder} holds no results of `pilotlab run`; name a folder that does"),
        FolderError::Numbers(_) => format!("the results in {folder} cannot be read"),
        _ => format!("the results in {folder} cannot be read; `pilotlab run --resume {folder}` writes them again"),
    };
    anyhow::Error::new(error).context(what)
}

fn text(comparison: &Comparison) -> String {
    let Comparison { a, b, warnings, differing, tests, margin, pairs } = comparison;
    let mut text = format!("A  {a}\nB  {b}\n\n");
    for point in pairs.chunk_by(|one, other| one.point == other.point) {
        text += &format!("{}\n{}\n", point[0].point, table(point, *margin));
    }
    text += &format!(
        "Differences are B less A, with 95 % intervals; p is Welch's, corrected by Holm for {tests} tests; below 0.05 it tells a \
         difference.\n"
    );
    if pairs.iter().any(|pair| pair.a.modelled || pair.b.modelled) {
        text += "* rests on a model, not on a measurement of power.\n";
    }
    text += &warnings.iter().map(|warning| format!("warning: {warning}\n")).collect::<String>();
    text + &differing.iter().map(|(key, a, b)| format!("  {key}: {a} in A, {b} in B\n")).collect::<String>()
}

fn table(pairs: &[Pair], margin: Option<f64>) -> Table {
    let headings = ["<  metric", "<unit", "A (n)", "B (n)", "difference", "ratio", "g", "p", "<B is"];
    let mut table = Table::new(&headings);
    for pair in pairs {
        let interval = |estimate: Option<pilotlight_stats::Estimate>| {
            estimate.map_or("-".to_owned(), |e| format!("{} ({} to {})", short(e.value), end(e.low), end(e.high)))
        };
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let cells = [
            format!("  {}", pair.metric),
            pair.unit.clone(),
            side(&pair.a),
            side(&pair.b),
            interval(pair.difference),
            interval(pair.ratio),
            number(pair.hedges_g),
            pair.p_holm.map_or("-".to_owned(), p),
            verdict(pair, margin),
        ];
        table.row(cells);
    }
    table
}

fn end(value: f64) -> String {
    if value.is_finite() { short(value) } else { "?".to_owned() }
}

pub(crate) fn p(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

fn side(side: &Side) -> String {
    format!("{}{} ({})", short(side.mean), if side.modelled { "*" } else { "" }, side.n)
}

fn verdict(pair: &Pair, margin: Option<f64>) -> String {
    let worth = pair.is_better.map_or("", |is_better| if is_better { ": better" } else { ": worse" });
    let words = format!("{}{worth}", pair.verdict.label());
    let within = margin.map(|margin| format!("within {}%", short(margin * 100.0)));
    match (pair.within, within) {
        (Some(true), Some(within)) => format!("{words}, {within}"),
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_knobs_are_parsed() {
        assert_eq!((share("5%").unwrap(), share("5").is_err(), share("-1%").is_err()), (0.05, true, true));
        assert_eq!(pair("machine.scheduler=none").unwrap(), ("machine.scheduler".to_owned(), "none".to_owned()));
        assert!(pair("bs").is_err() && pair("=4k").is_err());
        assert_eq!([p(0.000_2), p(0.049_6)], ["<0.001", "0.050"]);
    }
}
