//! Compares two builds of a benchmark in alternating rounds, which cancels changes of the machine's speed.
//!
//! Each round runs both programs once with `--target-only --rounds 1 --json`, in alternating order. The output has the medians of both,
//! and the median, minimum and maximum of the ratios (this build over the other).
//!
//! ```text
//! cargo bench -p pilotlight-nvmf-target --bench throughput --no-run       # in the other commit's worktree: prints the program's path
//! cargo bench -p pilotlight-nvmf-target --bench throughput -- --against PATH --rounds 9 --seconds 0.3 [--only ...]
//! ```

use std::path::Path;
use std::process::Command;

use super::{Column, Options, Output, fail, median};

const COLUMNS: [Column; 9] = [
    ("iops", 0),
    ("other_iops", 0),
    ("ratio", 3),
    ("lowest", 3),
    ("highest", 3),
    ("p99_us", 1),
    ("other_p99_us", 1),
    ("p50_ratio", 3),
    ("p99_ratio", 3),
];

/// A case in one run of one program.
struct Run {
    case: String,
    iops: f64,
    p50_us: f64,
    p99_us: f64,
}

/// Both programs' runs of a case, by round.
struct Case {
    name: String,
    rounds: Vec<(Run, Run)>,
}

/// Runs this program and `other` in alternated rounds and prints the comparison.
pub(crate) fn compare(options: &Options, other: &Path) {
    let this = std::env::current_exe().unwrap_or_else(|error| fail(&format!("this program has no path: {error}")));
    let mut cases: Vec<Case> = Vec::new();
    for round in 0..options.rounds {
        let (owns, others) = if round % 2 == 0 {
            let owns = run(&this, options);
            (owns, run(other, options))
        } else {
            let others = run(other, options);
            (run(&this, options), others)
        };
        for own in owns {
            let Some(at) = others.iter().position(|run| run.case == own.case) else {
                fail(&format!("{} has no case {}", other.display(), own.case))
            };
            let pair = (own, Run { case: others[at].case.clone(), ..others[at] });
            match cases.iter_mut().find(|case| case.name == pair.0.case) {
                Some(case) => case.rounds.push(pair),
                None => cases.push(Case { name: pair.0.case.clone(), rounds: vec![pair] }),
            }
        }
    }
    let title = format!(
        "{}; this build over {}; {} rounds of {} s",
        options.backend,
        other.display(),
        options.rounds,
        options.seconds
    );
    let output = Output::begin(options.json, &title, COLUMNS.to_vec());
    for case in &cases {
        output.row(&case.name, &case.row());
    }
}

impl Case {
    fn row(&self) -> [f64; 9] {
        let column = |f: &dyn Fn(&(Run, Run)) -> f64| self.rounds.iter().map(f).collect::<Vec<f64>>();
        let ratios = column(&|(own, other)| own.iops / other.iops);
        [
            median(column(&|(own, _)| own.iops)),
            median(column(&|(_, other)| other.iops)),
            median(ratios.iter().copied()),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            median(column(&|(own, _)| own.p99_us)),
            median(column(&|(_, other)| other.p99_us)),
            median(column(&|(own, other)| own.p50_us / other.p50_us)),
            median(column(&|(own, other)| own.p99_us / other.p99_us)),
        ]
    }
}

fn run(program: &Path, options: &Options) -> Vec<Run> {
    let mut command = Command::new(program);
    command.args(["--json", "--target-only", "--rounds", "1", "--seconds", &options.seconds.to_string()]);
    command.args(["--backend", &options.backend]);
    if !options.only.is_empty() {
        command.args(["--only", &options.only.join(",")]);
    }
    let output = command.output().unwrap_or_else(|error| fail(&format!("{} does not run: {error}", program.display())));
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        fail(&format!("{} failed ({}): {}", program.display(), output.status, errors.trim()));
    }
    String::from_utf8_lossy(&output.stdout).lines().map(|line| parse(program, line)).collect()
}

fn parse(program: &Path, line: &str) -> Run {
    let object: serde_json::Value = serde_json::from_str(line)
        .unwrap_or_else(|error| fail(&format!("{} printed '{line}': {error}", program.display())));
    let number = |key: &str| object[key].as_f64().unwrap_or(f64::NAN);
    Run {
        case: object["case"].as_str().unwrap_or_default().to_owned(),
        iops: number("iops"),
        p50_us: number("p50_us"),
        p99_us: number("p99_us"),
    }
}
