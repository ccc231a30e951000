//! `pilotlab fleet`: the servers of a rack that share a power budget, and the budget; and the agent of a server.

mod agent;
mod control;
mod need;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use pilotlight_auth::secrets_file;
use pilotlight_fleet::documents::{Documents, is_name};
use pilotlight_fleet::rack::{Decision, decide};
use pilotlight_fleet::view::Rack;
use pilotlight_fleet::{Etcd, Tls};
use pilotlight_input::quantity::{self, POWERS};
use serde_json::{Value, json};

use crate::console;
use crate::exit::Exit;
use crate::table::{Table, printable};

const ABOUT: &str = "\
Show the servers of a rack that share one power budget over etcd: what each draws, its share, and what it gives to others or takes from them, \
relative to a division by full power. Watts are as the servers measure or model them; column `source` says which.

A server joins through its agent: `pilotlab fleet RACK agent NAME` on its machine.";

const EXAMPLES: &str = "\
Examples:
  pilotlab fleet rack-7 --etcd http://192.0.2.11:2379
  pilotlab fleet rack-7 --etcd https://192.0.2.11:2379 --ca ca.pem --watch
  pilotlab fleet rack-7 budget 4kW             set the budget
  pilotlab fleet rack-7 agent disks-9 --full 400W   the agent of the server of this machine
  pilotlab fleet rack-7 reserve disks-9 120W   before its first start: others are lowered
  pilotlab fleet rack-7 forget disks-9         off for good: its floor is free
  PILOTLIGHT_ETCD=http://192.0.2.11:2379 pilotlab fleet rack-7 --json

Exit codes:
  0  shown or changed
  1  etcd cannot be reached, or refuses
  3  shown, and there is a problem: the last lines name it;
     or reserved, and others are not lowered yet, or floors exceed the budget";

/// Interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a reservation waits until others are lowered.
const RESERVATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of `pilotlab fleet`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct FleetArgs {
    /// Name of the rack
    rack: String,

    #[command(subcommand)]
    command: Option<Command>,

    /// Client addresses of etcd
    #[arg(long, value_name = "URL", env = "PILOTLIGHT_ETCD", value_delimiter = ',', global = true)]
    etcd: Vec<String>,

    /// PEM file of the authorities that sign certificates of etcd; required with https
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,

    /// PEM file of a certificate for etcd
    #[arg(long, value_name = "FILE", requires = "key", global = true)]
    cert: Option<PathBuf>,

    /// PEM file of its key, which other users may not access
    #[arg(long, value_name = "FILE", requires = "cert", global = true)]
    key: Option<PathBuf>,

    /// User of etcd
    #[arg(long, requires = "password_file", global = true)]
    user: Option<String>,

    /// File of the user's password, which other users may not access
    #[arg(long, value_name = "FILE", requires = "user", global = true)]
    password_file: Option<PathBuf>,

    /// Show it every second until Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Set the budget of the rack
    #[command(after_help = "Examples:\n  pilotlab fleet rack-7 budget 4kW --etcd http://192.0.2.11:2379")]
    Budget {
        /// Such as 4kW
        power: String,
    },
    /// Reserve the floor of a server before its first start
    #[command(after_help = "Examples:\n  pilotlab fleet rack-7 reserve disks-9 120W --etcd http://192.0.2.11:2379")]
    Reserve {
        /// Name of the server
        name: String,
        /// Such as 120W
        floor: String,
    },
    /// Run as the agent of a server of this machine: its share becomes a limit of its budget
    #[command(after_long_help = agent::EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
    Agent(agent::AgentArgs),
    /// Give the floor of a server that is off for good to others
    #[command(after_help = "Examples:\n  pilotlab fleet rack-7 forget disks-9 --etcd http://192.0.2.11:2379")]
    Forget {
        /// Name of the server
        name: String,
    },
}

/// Runs the command.
pub(crate) fn run(args: &FleetArgs) -> anyhow::Result<ExitCode> {
    check_name(&args.rack)?;
    if let Some(Command::Agent(agent)) = &args.command {
        return agent::run(args, agent);
    }
    let mut rack = Rack::connect(&etcd(args)?, &args.rack)?;
    match &args.command {
        None | Some(Command::Agent(_)) => return show(args, &mut rack),
        Some(Command::Budget { power }) => rack.set_budget(watts(power)?)?,
        Some(Command::Reserve { name, floor }) => {
            check_name(name)?;
            rack.reserve(name, watts(floor)?)?;
            return await_room(args, &mut rack, name);
        }
        Some(Command::Forget { name }) => rack.forget(name)?,
    }
    Ok(Exit::Clean.into())
}

fn check_name(name: &str) -> anyhow::Result<()> {
    anyhow::ensure!(is_name(name), "`{name}` is not a name: use 1 to 64 letters, digits, and `-`, `_` or `.`");
    Ok(())
}

/// Waits until others have been lowered, so that the new server can start. Does not wait where floors alone exceed the budget: nobody is
/// lowered below one.
fn await_room(args: &FleetArgs, rack: &mut Rack, name: &str) -> anyhow::Result<ExitCode> {
    let end = Instant::now() + RESERVATION_TIMEOUT;
    loop {
        let documents = rack.read()?;
        let budget_uw = documents.budget_uw.unwrap_or(0);
        let floors_uw = documents.members.values().fold(0_u64, |sum, floor_uw| sum.saturating_add(*floor_uw));
        if floors_uw > budget_uw {
            let (watts, rack) = (in_watts(floors_uw - budget_uw), &args.rack);
            console::eprint(format!(
                "reserved, but the floors exceed the budget by {watts} W: raise it with `pilotlab fleet {rack} budget`, \
                 or undo this with `pilotlab fleet {rack} forget {name}`\n"
            ));
            return Ok(ExitCode::from(3));
        }
        let excess_uw = documents.bounds_uw().saturating_sub(budget_uw);
        if excess_uw == 0 {
            return Ok(Exit::Clean.into());
        }
        if Instant::now() >= end {
            let watts = in_watts(excess_uw);
            console::eprint(format!(
                "reserved, but {watts} W are not free yet: start the server once `pilotlab fleet` shows them, or raise the budget\n"
            ));
            return Ok(ExitCode::from(3));
        }
        std::thread::sleep(WATCH_INTERVAL / 4);
    }
}

fn watts(text: &str) -> anyhow::Result<u64> {
    let power_uw = quantity::parse(text, POWERS).ok().filter(|uw| (1_000_000..=1_000_000_000_000_000).contains(uw));
    power_uw.with_context(|| format!("`{text}` is not a power: write one such as 300W or 4kW, from 1W to 1000000kW"))
}

/// What is not safe, or has no effect, in the access to etcd.
fn doubt(args: &FleetArgs) -> Option<String> {
    let url = args.etcd.iter().find(|url| url.starts_with("http://"))?;
    if args.password_file.is_some() {
        return Some(format!("the password goes to {url} in clear text: use https and --ca"));
    }
    let has_files = args.ca.is_some() || args.cert.is_some();
    has_files.then(|| format!("--ca and --cert have no effect on {url}: use https"))
}

fn etcd(args: &FleetArgs) -> anyhow::Result<Etcd> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let file = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let read_secret = |path: &Path| secrets_file::read_by(path, credentials.as_deref(), secrets_file::open_file);
    let secret = |path: &Option<PathBuf>| path.as_deref().map(read_secret).transpose();
    if args.etcd.is_empty() {
        anyhow::bail!("where is etcd? Give its client addresses: --etcd http://ADDRESS:2379, or PILOTLIGHT_ETCD");
    }
    let is_address = |url: &&String| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    if let Some(url) = args.etcd.iter().find(|url| !is_address(url)) {
        anyhow::bail!("{url} is not an address of etcd: write http://ADDRESS:2379 or https://ADDRESS:2379");
    }
    let (ca, password) = (file(&args.ca)?, secret(&args.password_file)?);
    if let Some(url) = args.etcd.iter().find(|url| url.starts_with("https:") && ca.is_none()) {
        anyhow::bail!("{url} needs --ca FILE: the authorities that sign the certificates of etcd");
    }
    Ok(Etcd {
        endpoints: args.etcd.clone(),
        tls: Tls { ca, identity: file(&args.cert)?.zip(secret(&args.key)?.map(|key| key.to_string())) },
        user: args.user.clone().zip(password.map(|password| password.trim_end().to_owned())),
    })
}

fn show(args: &FleetArgs, rack: &mut Rack) -> anyhow::Result<ExitCode> {
    const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";
    let is_terminal = std::io::stdout().is_terminal();
    loop {
        let documents = rack.read()?;
        let decision = decide(&documents);
        if args.json {
            let value = as_value(&args.rack, &documents, &decision);
            console::println(if args.watch { value.to_string() } else { serde_json::to_string_pretty(&value)? })?;
        } else {
            let top = if args.watch && is_terminal { CLEAR_SCREEN } else { "" };
            console::print(top.to_owned() + &text(&args.rack, &documents, &decision))?;
        }
        if !args.watch {
            return Ok(if decision.problems.is_empty() { Exit::Clean.into() } else { ExitCode::from(3) });
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// A member as it is shown.
struct Row<'a> {
    name: &'a str,
    floor_uw: u64,
    /// Without a status it is off.
    status: Option<&'a pilotlight_fleet::documents::Status>,
    share_uw: u64,
    aim_uw: Option<u64>,
    /// What a division of the budget by full power would give it.
    by_size_uw: Option<u64>,
}

fn rows<'a>(documents: &'a Documents, decision: &Decision) -> Vec<Row<'a>> {
    let mut floors: BTreeMap<&str, u64> = documents.members.iter().map(|(name, uw)| (name.as_str(), *uw)).collect();
    for (name, status) in &documents.statuses {
        floors.entry(name).or_insert(status.floor_uw);
    }
    let all_uw: u128 = documents.statuses.values().map(|status| u128::from(status.full_uw)).sum();
    let by_size = |full_uw: u64| {
        let budget_uw = u128::from(documents.budget_uw?);
        Some((budget_uw * u128::from(full_uw) / all_uw.max(1)).min(u128::from(full_uw)) as u64)
    };
    let row = |(name, floor_uw): (&'a str, u64)| {
        let status = documents.statuses.get(name);
        Row {
            name,
            floor_uw,
            status,
            share_uw: status.map_or(floor_uw, |status| status.in_force_uw),
            aim_uw: decision.shares_uw.get(name).copied(),
            by_size_uw: status.and_then(|status| by_size(status.full_uw)),
        }
    };
    floors.into_iter().map(row).collect()
}

fn in_watts(uw: u64) -> String {
    format!("{:.1}", uw as f64 / 1e6)
}

fn signed(uw: i128) -> String {
    format!("{:+.1}", uw as f64 / 1e6)
}

fn text(rack: &str, documents: &Documents, decision: &Decision) -> String {
    let rows = rows(documents, decision);
    let mut out = String::new();
    let sum = |of: fn(&Row<'_>) -> u64| rows.iter().fold(0_u64, |sum, row| sum.saturating_add(of(row)));
    let drawn_uw = sum(|row| row.status.and_then(|status| status.measured_uw).unwrap_or(0));
    let budget = documents.budget_uw.map_or("none".to_owned(), |uw| format!("{} W", in_watts(uw)));
    let leader = documents.leader().map_or("nobody".to_owned(), printable);
    let _ = writeln!(
        out,
        "{}: budget {budget}, shares {} W, drawn {} W; leader {leader}\n",
        printable(rack),
        in_watts(sum(|row| row.share_uw)),
        in_watts(drawn_uw)
    );
    let headings = [
        "<server",
        "drawn W",
        "share W",
        "headroom W",
        "next W",
        "floor W",
        "full W",
        "takes W",
        "priority",
        "<limit",
        "<source",
    ];
    let mut table = Table::new(&headings);
    for row in &rows {
        let status = |of: &dyn Fn(&pilotlight_fleet::documents::Status) -> Option<String>| {
            row.status.and_then(of).unwrap_or_else(|| "-".to_owned())
        };
        let difference = |a: u64, b: u64| signed(i128::from(a) - i128::from(b));
        table.row([
            printable(row.name),
            status(&|status| status.measured_uw.map(in_watts)),
            if row.status.is_some() { in_watts(row.share_uw) } else { "off".to_owned() },
            status(&|status| status.measured_uw.map(|uw| difference(row.share_uw, uw))),
            row.aim_uw.filter(|aim_uw| *aim_uw != row.share_uw).map_or("-".to_owned(), in_watts),
            in_watts(row.floor_uw),
            status(&|status| Some(in_watts(status.full_uw))),
            row.by_size_uw.map_or("-".to_owned(), |uw| difference(row.share_uw, uw)),
            status(&|status| Some(status.priority.to_string())),
            status(&|status| status.bottleneck.as_deref().map(printable)),
            status(&|status| Some(printable(&status.source))),
        ]);
    }
    let _ = writeln!(out, "{table}");
    for (name, problem) in &decision.problems {
        let name = name.as_ref().map_or(String::new(), |name| format!("{}: ", printable(name)));
        let _ = writeln!(out, "{name}{}", printable(problem));
    }
    out
}

fn as_value(rack: &str, documents: &Documents, decision: &Decision) -> Value {
    let row = |row: &Row<'_>| {
        let status = row.status;
        json!({
            "name": row.name,
            "running": status.is_some(),
            "floor_uw": row.floor_uw,
            "full_uw": status.map(|status| status.full_uw),
            "share_uw": row.share_uw,
            "next_share_uw": row.aim_uw,
            "share_by_size_uw": row.by_size_uw,
            "measured_uw": status.and_then(|status| status.measured_uw),
            "source": status.map(|status| &status.source),
            "priority": status.map(|status| status.priority),
            "bottleneck": status.and_then(|status| status.bottleneck.as_ref()),
        })
    };
    let problem = |(name, problem): &(Option<String>, String)| json!({ "name": name, "problem": problem });
    json!({
        "format": 1,
        "rack": rack,
        "budget_uw": documents.budget_uw,
        "leader": documents.leader(),
        "members": rows(documents, decision).iter().map(row).collect::<Vec<_>>(),
        "problems": decision.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use pilotlight_fleet::documents::{FORMAT, Status};

    use super::*;

    fn status(in_force_uw: u64, full_uw: u64) -> Status {
        Status {
            format: FORMAT,
            session: 1,
            floor_uw: 100_000_000,
            full_uw,
            measured_uw: Some(in_force_uw - 10_000_000),
            source: "modelled: a \u{1b}machine".to_owned(),
            priority: 5,
            bottleneck: Some("drives".to_owned()),
            curve: Vec::new(),
            applied: 0,
            in_force_uw,
        }
    }

    fn documents() -> Documents {
        let mut documents = Documents { budget_uw: Some(600_000_000), ..Documents::default() };
        documents.members.extend([("a".to_owned(), 100_000_000), ("off".to_owned(), 50_000_000)]);
        documents.statuses.insert("a".to_owned(), status(350_000_000, 400_000_000));
        documents.statuses.insert("b".to_owned(), status(100_000_000, 400_000_000));
        documents.candidates.insert("leader/1".to_owned(), (7, "a".to_owned()));
        documents
    }

    #[test]
    fn each_server_has_its_share_and_what_it_takes() {
        let documents = documents();
        let text = text("rack-7", &documents, &decide(&documents));
        let line = |name: &str| {
            text.lines().find(|line| line.starts_with(name)).map(|line| line.split_whitespace().collect::<Vec<_>>())
        };
        assert!(text.starts_with("rack-7: budget 600.0 W, shares 500.0 W, drawn 430.0 W; leader a\n"), "{text}");
        let a = line("a ").unwrap();
        assert_eq!((a[1], a[2], a[3], a[7]), ("340.0", "350.0", "+10.0", "+50.0"), "{text}");
        assert_eq!(line("off ").unwrap()[2], "off");
        assert!(!text.contains('\u{1b}'), "names come from other machines");
    }

    #[test]
    fn json_has_the_same() {
        let documents = documents();
        let value = as_value("rack-7", &documents, &decide(&documents));
        assert_eq!(
            (value["leader"].as_str(), value["members"][0]["share_uw"].as_u64()),
            (Some("a"), Some(350_000_000))
        );
        assert_eq!(value["members"][2]["running"], false);
    }

    #[test]
    fn powers_need_units() {
        assert_eq!(watts("4kW").unwrap(), 4_000_000_000);
        for text in ["4", "0W", "-4W", "many"] {
            assert!(watts(text).unwrap_err().to_string().contains("300W"), "{text}");
        }
    }
}
