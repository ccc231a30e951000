//! `pilotlab advise`: recommends a value of each knob.

pub(crate) mod map;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use pilotlight_input::Time;
use pilotlight_lab::advise::{Advice, Best, Outcome, Question, Row, Work, advise};
use pilotlight_lab::result_set::ResultSet;
use pilotlight_lab::study::map::{Measure, Question as MapQuestion};
use pilotlight_report::table::short;
use pilotlight_stats::Estimate;

use crate::compare::{p, pair, unreadable};
use crate::console;
use crate::exit::Exit;
use crate::table::Table;

const ABOUT: &str = "\
Recommend a value of each knob that an experiment varied, for small (IOPS-bound) and large (throughput-bound) requests, as Table 5.1 \
of the thesis does.

Values are compared by work per joule of the measured scope, or with a note by CPU time or speed if power is unknown; each pair of \
values at equal values of all other knobs. A value is recommended only if another is significantly worse: p below 0.05, corrected by \
Holm for all pairs of values of all knobs. Savings and latencies have 95 % intervals.

With --map KNOB, the output is the most efficient value of that knob for each combination of two other knobs, such as request size \
and jobs, with its lead over the second; \"tie\" means that Welch's p is above 0.05. With --map mechanism, only completion mechanisms \
that actually ran are compared.";

const EXAMPLES: &str = "\
Examples:
  pilotlab advise results/today
  pilotlab advise results/today --baseline iodepth=1 --baseline machine.scheduler=none
  pilotlab advise results/today --p99-at-most 2ms
  pilotlab advise results/today --scope ssd_cpu --json
  pilotlab advise results/completion --map mechanism
  pilotlab advise results/completion --map mechanism --by latency --json

Exit codes:
  0  printed, with or without a recommendation
  1  the folder cannot be read; the message names the file
  2  the command line was refused, or the folder has no counted work";

/// Options of `pilotlab advise`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct AdviseArgs {
    /// Results of `pilotlab run`
    results: PathBuf,

    /// Setting that savings refer to; repeatable [default: the worst one]
    #[arg(long, value_name = "KNOB=VALUE", value_parser = pair)]
    baseline: Vec<(String, String)>,

    /// Upper limit of the p99 latency of recommended settings, such as 2ms
    #[arg(long, value_name = "TIME", value_parser = time_us)]
    p99_at_most: Option<f64>,

    /// Scope of energy [default: the widest measured one]
    #[arg(long, value_parser = ["system", "ssd_cpu", "ssd", "cpu"])]
    scope: Option<String>,

    /// Minimum number of repeats of a point
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..))]
    at_least: u16,

    /// Show the most efficient value of this knob by two other knobs
    #[arg(long, value_name = "KNOB", conflicts_with_all = ["baseline", "p99_at_most"])]
    map: Option<String>,

    /// Measure of a map [default: energy if power is known, otherwise CPU time and latency]
    #[arg(long, requires = "map", value_enum)]
    by: Option<MeasureArg>,

    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// The measure of a map.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MeasureArg {
    /// Bytes per joule
    Energy,
    /// Bytes per second of CPU time
    CpuTime,
    /// Mean latency
    Latency,
}

impl From<MeasureArg> for Measure {
    fn from(by: MeasureArg) -> Self {
        match by {
            MeasureArg::Energy => Self::Energy,
            MeasureArg::CpuTime => Self::CpuTime,
            MeasureArg::Latency => Self::Latency,
        }
    }
}

fn time_us(text: &str) -> anyhow::Result<f64> {
    let time = Time::parse(text).filter(|time| time.0 > 0);
    time.map(|time| time.seconds() * 1e6).context("expected a time with its unit, such as 2ms")
}

/// Runs the command.
pub(crate) fn run(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    let result_set = ResultSet::read(&args.results).map_err(|error| unreadable(&args.results, error))?;
    if let Some(knob) = &args.map {
        let question =
            MapQuestion { knob: Some(knob.clone()), by: args.by.map(Measure::from), scope: args.scope.clone() };
        return map_of(&result_set, &question, args.json);
    }
    let question = Question {
        at_least: usize::from(args.at_least),
        baseline: args.baseline.clone(),
        p99_at_most_us: args.p99_at_most,
        scope: args.scope.clone(),
    };
    if let Some(wrong) = unknown(&result_set, &args.baseline) {
        console::eprintln(format_args!("error: {wrong}"));
        return Ok(Exit::Refused.into());
    }
    let advice = advise(&result_set, &question);
    if advice.works.is_empty() {
        let name = args.results.display();
        console::eprintln(format_args!(
            "error: {name}: no I/Os, transactions or operations were counted, so nothing can be recommended"
        ));
        return Ok(Exit::Refused.into());
    }
    console::print(if args.json { serde_json::to_string_pretty(&advice)? + "\n" } else { text(&advice) })?;
    Ok(Exit::Clean.into())
}

fn map_of(result_set: &ResultSet, question: &MapQuestion, as_json: bool) -> anyhow::Result<ExitCode> {
    match map::render(result_set, question, as_json) {
        Ok(text) => console::print(text).map(|()| Exit::Clean.into()),
        Err(error) => {
            console::eprintln(format_args!("error: {}: {error}", result_set.name));
            Ok(Exit::Refused.into())
        }
    }
}

/// A message about a baseline that no point has.
fn unknown(result_set: &ResultSet, baseline: &[(String, String)]) -> Option<String> {
    let stands = |knob: &str, value: &str| {
        result_set
            .results
            .points
            .iter()
            .any(|point| point.knobs.get(knob).is_some_and(|stands| stands.to_string() == value))
    };
    let wrong = baseline.iter().find(|(knob, value)| !stands(knob, value))?;
    Some(format!(
        "--baseline {}={}: no point has that; the knobs are {}",
        wrong.0,
        wrong.1,
        result_set.results.knobs.join(", ")
    ))
}

fn text(advice: &Advice) -> String {
    let mut text = format!("{}\n", advice.of);
    for work in &advice.works {
        text += &format!("\n{} ({} points)\n", work.about, work.points);
        text += &match &work.by {
            _ if work.points == 0 && !work.rows.iter().any(is_judged) => "  no such points were measured\n".to_owned(),
            None => "  no measure of efficiency is known\n".to_owned(),
            Some(by) => {
                format!("measure: {by}\n\n{}{}{}", table(work), exceptions(work), reasons(work, advice.at_least))
            }
        };
    }
    text += &format!(
        "\nRecommended only where p is below 0.05, corrected by Holm for {} tests; 95 % intervals; {} repeats or more. Latencies are \
         those of the best setting over those of what it is compared with.\n",
        advice.tests, advice.at_least
    );
    text + &advice.warnings.iter().map(|warning| format!("note: {warning}\n")).collect::<String>()
}

fn table(work: &Work) -> Table {
    let saves = match (work.is_energy, work.modelled) {
        (true, false) => "saves energy",
        (true, true) => "saves energy (modelled)",
        _ => "saves (power unknown)",
    };
    let headings = [
        "<  variable",
        "<knob",
        "<best setting",
        "<against",
        saves,
        "mean latency",
        "p99 latency",
        "p",
        "best in",
        "<thesis's machine",
    ];
    let mut table = Table::new(&headings);
    for row in &work.rows {
        table.row(cells(row));
    }
    table
}

fn cells(row: &Row) -> [String; 10] {
    let nothing = || "-".to_owned();
    let thesis = row.thesis.map_or_else(nothing, ToOwned::to_owned);
    let (variable, knob) = (format!("  {}", row.variable), row.knob.clone().unwrap_or_else(nothing));
    let (said, against, rest) = match &row.outcome {
        Outcome::NotVaried => ("not varied".to_owned(), nothing(), None),
        Outcome::NotDerived(_) => ("not derived".to_owned(), nothing(), None),
        Outcome::InsufficientData(_) => ("insufficient data".to_owned(), nothing(), None),
        Outcome::NoneWithinLimit => ("none within the latency limit".to_owned(), nothing(), None),
        Outcome::NoDifference { p: least, .. } => {
            (format!("no significant difference (p {})", p(*least)), nothing(), None)
        }
        Outcome::Best(best) => (settings(best), best.against.clone(), Some(best)),
    };
    let [saves, mean, p99, p, holds] = rest.map_or_else(|| [(); 5].map(|()| nothing()), |best| figures(best));
    [variable, knob, said, against, saves, mean, p99, p, holds, thesis]
}

fn settings(best: &Best) -> String {
    let Some((first, others)) = best.values.split_first() else { return String::new() };
    if others.is_empty() { first.clone() } else { format!("{first} (not shown better than {})", others.join(", ")) }
}

fn figures(best: &Best) -> [String; 5] {
    let times = |ratio: &Option<Estimate>| {
        ratio.map_or("-".to_owned(), |r| format!("x{} ({} to {})", short(r.value), short(r.low), short(r.high)))
    };
    let Estimate { value, low, high, .. } = best.saves_percent;
    [
        format!("{value:.1} % ({low:.1} to {high:.1})"),
        times(&best.latency_mean),
        times(&best.latency_p99),
        p(best.p),
        format!("{} of {}", best.holds_in, best.circumstances),
    ]
}

/// Whether the values of a knob were compared.
fn is_judged(row: &Row) -> bool {
    matches!(row.outcome, Outcome::Best(_) | Outcome::NoDifference { .. } | Outcome::NoneWithinLimit)
}

/// Reasons for missing recommendations, too long for the table.
fn reasons(work: &Work, at_least: usize) -> String {
    let mut text = String::new();
    for row in &work.rows {
        match &row.outcome {
            Outcome::NotDerived(why) => text += &format!("  {}: {why}\n", row.variable),
            Outcome::InsufficientData(why) => text += &format!("  {}: {why}\n", row.variable),
            _ if row.left_out > 0 && is_judged(row) => {
                text += &format!(
                    "  {}: circumstances that do not count, because some value was measured in them fewer than {at_least} times: {}\n",
                    row.variable, row.left_out
                );
            }
            _ => {}
        }
    }
    text
}

/// Combinations in which another setting is better.
fn exceptions(work: &Work) -> String {
    let mut text = String::new();
    for row in &work.rows {
        let Outcome::Best(best) = &row.outcome else { continue };
        for (circumstance, value) in &best.except {
            text += &format!("  except {circumstance}: there {} = {value} is better\n", row.variable);
        }
    }
    text
}
