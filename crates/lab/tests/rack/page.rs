//! The page of results.

use std::fmt::Write as _;

use super::figures::{Figures, measure};
use super::leader::{Change, Method, Rack, Range};
use super::server::PRIORITIES;

/// Numbers of servers, each with the seeds of its racks, and budgets in per cent of the range between all floors and all full powers. At 30 % power is
/// so scarce that priorities decide.
const RACKS: [(usize, u64, &[u64]); 3] = [(3, 20, &[60, 75, 90]), (30, 3, &[30, 60, 75, 90]), (300, 1, &[60, 75, 90])];
/// The simple rules first.
const METHODS: [(Method, &str); 4] = [
    (Method::Equal, "equal"),
    (Method::Size, "by size"),
    (Method::Divide, "`divide`"),
    (Method::Known, "`divide`, demand known"),
];

const HEAD: &str = "\
# One power budget for a rack

For operators and researchers: what does a division by `policy::fleet::divide` deliver, against equal shares and shares by size?

```
cargo test --release -p pilotlight-lab --test rack -- --ignored
```

This command writes the page. All power is modelled, by the machine of PASS in the simulator (profiles/pass-sys-111c-nr.toml); nothing was measured.

**Servers** run policy `pass` with their shares as budgets. They differ, by seed, in size (8 cores and 10 drives; 8 and 5; 4 and 5, with half the power), \
request size (64, 128, 256 KiB), writes (0, 30, 100 %), priority (0 to 2), and demand in each of four phases (idle, 40 %, 85 %, or bursts of 80 %). \
Time is shortened 50 times: `pass` decides and the budget is divided every 20 ms, a phase is 400 ms. A request costs 40 times the CPU time of the \
profile, so that few requests need all cores.

**Budgets** are floors plus a part of the range up to full power. **Methods:** equal shares and shares by size (a part of full power), both from the floor to \
full power; `divide`, by what each server did in the 20 ms before, where a server in use that draws its share is held back by it (`is_held_back`), as a \
server with a profile reports it; and `divide` for what hosts will ask in the next 20 ms, which no leader knows.

**Columns:** bytes delivered, in per cent of those without a budget, of all servers and by priority; p99 latency from the host's sending; highest power of all \
servers in 20 ms, by the budget; intervals of 20 ms above 102 % of it; budget that is not used, per server.

In every run the sum of the highest power that may be in force at each server was within the budget at every exchange.
";

const COLUMNS: &str = "\
| budget | method | delivered | priority 2 | 1 | 0 | p99 ms | peak | above 102 % | unused W |
|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|
";

/// Reasons, as found in the runs.
const REASONS: &str = "
- **Priority.** `divide` serves a higher priority first, so a lower one may get less than by a simple rule, and then all together may (30 %). From 60 % on there is \
power for nearly all, and priorities hardly matter.
- **Delay.** A division follows demand 20 ms late, others are lowered before one is raised, and what hosts of a server that is held back ask is not known: \
the whole machine is assumed.
- **Changes.** A share that changes costs: limits follow it late. So it helps little to know the demand of the next 20 ms at 60 %.
- **The policy.** A server whose load was there when its share changed, or grew by less than a factor of two, can stay with low caps on its drives and a high CPU, until it has \
another share: `pass` moves power to drives at its first budget and after more load only. So a part of the gain over equal shares and shares by size is not that of the division.
- **Small racks.** With three servers there is little to trade, and one server decides the figures, as in the next section.
";

/// Figures by number of servers, budget and method.
struct Row {
    servers: usize,
    percent: u64,
    method: &'static str,
    figures: Figures,
}

impl Row {
    fn text(&self) -> String {
        let Self { percent, method, figures, .. } = self;
        let of =
            |priority: usize| figures.percent_of(priority).map_or("-".to_owned(), |percent| format!("{percent:.1}"));
        format!(
            "| {percent} % | {method} | {:.1} | {} | {} | {} | {:.1} | {:.1} % | {:.1} % | {:.1} |\n",
            figures.percent(),
            of(2),
            of(1),
            of(0),
            figures.p99_ms(),
            figures.peak_percent(),
            figures.over_percent(),
            figures.unused_w()
        )
    }
}

/// Rows of racks of `servers` for these budgets, in order.
fn rows(sizes: &[Range], servers: usize, seeds: u64, budgets: &[u64]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for seed in 1..=seeds {
        let rack = Rack::draw(seed, servers, sizes);
        let free = rack.run(Method::None, u64::MAX, Change::LowerFirst, &[]);
        for &percent in budgets {
            for (method, name) in METHODS {
                let figures = measure(&rack, method, percent, &free);
                match rows.iter_mut().find(|row| (row.percent, row.method) == (percent, name)) {
                    Some(row) => row.figures.add(&figures),
                    None => rows.push(Row { servers, percent, method: name, figures }),
                }
            }
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    rows.iter().fold(COLUMNS.to_owned(), |text, row| text + &row.text())
}

/// The table that `cargo test` recomputes.
pub(crate) fn short(sizes: &[Range]) -> String {
    table(&rows(sizes, 3, 1, &[75]))
}

/// Where a simple rule delivers more than `divide`, by more than 0.1 %.
fn losses(rows: &[Row]) -> String {
    let mut text = String::new();
    let [simple @ .., (_, own), _] = &METHODS;
    for row in rows.iter().filter(|row| row.method == *own) {
        let same = |other: &&Row| (other.servers, other.percent) == (row.servers, row.percent);
        for other in rows.iter().filter(same).filter(|other| simple.iter().any(|(_, name)| *name == other.method)) {
            let mut found = Vec::new();
            let mut compare = |name: String, own: f64, theirs: f64| {
                if theirs > own + 0.1 {
                    found.push(format!("{name} {own:.1} instead of {theirs:.1} %"));
                }
            };
            compare("all".to_owned(), row.figures.percent(), other.figures.percent());
            for priority in (0..PRIORITIES).rev() {
                if let (Some(own), Some(theirs)) =
                    (row.figures.percent_of(priority), other.figures.percent_of(priority))
                {
                    compare(format!("priority {priority}"), own, theirs);
                }
            }
            if !found.is_empty() {
                let _ = writeln!(
                    text,
                    "- {} servers, {} %, against {}: {}",
                    row.servers,
                    row.percent,
                    other.method,
                    found.join(", ")
                );
            }
        }
    }
    text
}

/// The page.
pub(crate) fn full(sizes: &[Range]) -> String {
    let mut text = HEAD.to_owned();
    let mut all = Vec::new();
    for (servers, seeds, budgets) in RACKS {
        let rows = rows(sizes, servers, seeds, budgets);
        let racks = if seeds == 1 { "one rack".to_owned() } else { format!("{seeds} racks") };
        let _ = write!(text, "\n## {servers} servers, {racks}\n\n{}", table(&rows));
        all.extend(rows);
    }
    let longest = all.iter().map(|row| row.figures.longest_over()).max().unwrap_or(0);
    let _ =
        write!(text, "\nPower was above 102 % of the budget for at most {longest} intervals of `pass` in sequence.\n");
    let _ = write!(text, "\n## Where `divide` delivers less\n\n{}\nReasons:\n{REASONS}", losses(&all));
    let _ = write!(text, "\n## The first rack of three servers\n\nRecomputed by `cargo test`.\n\n{}", short(sizes));
    text
}
