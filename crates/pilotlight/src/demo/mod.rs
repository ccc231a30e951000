//! `pilotlight demo`: the main job in under a minute. Serves a namespace in memory over real NVMe/TCP connections, writes
//! and verifies it, and then sends SANDMAN's bursts under several policies in turn.
//!
//! | file | content |
//! |---|---|
//! | `budget.rs` | `--budget`: steps of a power budget, and how they are followed |
//! | `stage.rs` | the server, the load and the CPUs that they share |
//! | `bursts.rs` | the bursts, and what is measured of one under a policy |
//! | `median.rs` | a median with its interval |
//! | `table.rs` | the result: a table and a sentence, or JSON |

mod budget;
mod bursts;
mod median;
mod profile;
mod stage;
mod table;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use stage::Stage;
use table::Row;

use crate::console;

const ABOUT: &str = "\
Serve 1 GiB of memory over NVMe/TCP, write and verify it, and send SANDMAN's bursts under three policies: in about a minute.

Bursts are those of the paper: a long time at 5 % of the maximum, then a short one at the maximum, repeated. Each policy gets the \
same requests at the same times, and the policies alternate, burst by burst. Needs no root, no drive and no configuration. The figures \
depend on this machine and its other load; watts are modelled by the named power profile.";

const EXAMPLES: &str = "\
Examples:
  pilotlight demo
  pilotlight demo --bursts 10 --time-scale 1    as long as the paper's: 10 s at 5 %, 1 s at 100 %
  pilotlight demo --policy sandman --json
  pilotlight demo --budget                      a power budget that steps down and up: 20 s

Exit codes:
  0  all requests succeeded and all blocks were verified
  1  it could not start, or a block was wrong";

/// Options of `pilotlight demo`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct DemoArgs {
    /// Bursts under each policy; six or more give intervals
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    bursts: u32,

    /// How many times shorter than in the paper everything is: its 10 s and its 1 s
    #[arg(long, value_name = "FACTOR", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    time_scale: u32,

    /// This policy, with its defaults; repeatable [default: static, interrupt and sandman]
    #[arg(long, value_name = "NAME")]
    policy: Vec<String>,

    /// The load's seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Instead of bursts: step a power budget down and up, and report the settling time and the deviation
    #[arg(long, conflicts_with_all = ["bursts", "time_scale", "policy", "seed"])]
    budget: bool,

    /// Print the result as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    if args.budget {
        return budget::run(args.json);
    }
    let contenders = bursts::contenders(&args.policy)?;
    let stage = Stage::new().context("the demo's server does not start")?;
    let print = |text: String| if args.json { Ok(()) } else { console::println(text) };
    print(stage.description())?;
    let verified = stage.verify(2_000_000_000).context("verifying")?;
    print(table::verified(&verified))?;
    let clean = verified.is_clean();
    let measured = if clean { measure(args, &stage, &contenders, &print)? } else { None };
    stage.stop().context("stopping the demo's server")?;
    let clean = clean && measured.as_ref().is_some_and(table::Outcome::is_clean);
    if args.json {
        console::println(serde_json::to_string_pretty(&table::json(&verified, measured.as_ref()))?)?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(
    args: &DemoArgs,
    stage: &Stage,
    contenders: &[String],
    print: &dyn Fn(String) -> anyhow::Result<()>,
) -> anyhow::Result<Option<table::Outcome>> {
    stage.fill()?;
    let maximum = stage.maximum().context("measuring the maximum")?;
    let bursts = bursts::Bursts::new(maximum, args.time_scale, args.bursts, args.seed);
    print(bursts.description(stage))?;
    let mut rows: Vec<Row> =
        contenders.iter().map(|policy| Row { policy: policy.clone(), samples: Vec::new() }).collect();
    let bar = waiting(u64::from(args.bursts) * contenders.len() as u64, bursts.lasts(), args.json);
    for round in 0..args.bursts {
        // the first policy rotates, as one policy's after-effects may affect the next
        for at in (0..contenders.len()).map(|nth| (nth + round as usize) % contenders.len()) {
            let policy = &contenders[at];
            let sample = bursts::measure(stage, &bursts, policy, round);
            rows[at].samples.push(sample.with_context(|| format!("under {policy}"))?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let outcome = table::Outcome { bursts, rows, cpus: stage.cpus() };
    print(outcome.table())?;
    Ok(Some(outcome))
}

/// A progress bar for bursts of this length, on a terminal.
fn waiting(bursts: u64, each: Duration, hidden: bool) -> ProgressBar {
    if hidden || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("burst {pos} of {len} {bar:40} {elapsed} of {prefix}");
    let in_all = each.as_secs_f64() * bursts as f64;
    let bar = ProgressBar::new(bursts).with_prefix(format!("{in_all:.0} s"));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
