//! `pilotlight set budget` and `set tolerance`.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use pilotlight_plant::Goal;

use crate::admin::client::{self, Client, SocketArgs};
use crate::admin::request::{GoalsRequest, LimitRequest, Request};
use crate::config::{format_budget, format_moment};
use crate::console;
use crate::exit::Exit;
use crate::policies::users_of;
use crate::status::goals;
use crate::status::report::{BudgetReport, GoalsResponse, Report};

pub(super) const EXAMPLES: &str = "\
Examples:
  pilotlight set budget 300W
  pilotlight set budget 300W for 2h
  pilotlight set budget 120W --domain cpu --strict
  pilotlight set budget 300W --dry-run
  pilotlight set budget off
  pilotlight set budget 300W until $(awk '{printf \"%.2f\", $1 + 15}' /proc/uptime) then 120W
  pilotlight set tolerance 0.2
  pilotlight set tolerance 500us p99 --namespace 1

The goal applies until it is set again, its time is over, or the section [goals] of the configuration changes; see docs/operate/limit-power.md.

`until DEADLINE then POWER` limits all budgets, for a program that sets the limit again and again: when it stops, POWER holds. DEADLINE is
CLOCK_BOOTTIME in seconds, as the first number of /proc/uptime; one that is past is refused. The server needs `floor` in [goals], which
holds from its start until the first such limit.";

/// How long a budget may take until power is within it; the server calls it unreachable before.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of status requests.
const INTERVAL: Duration = Duration::from_millis(250);

#[derive(Args, Clone, Debug)]
pub(super) struct BudgetArgs {
    /// Such as 300W; off for no limit; default for that of the schedule or the configuration
    power: String,

    /// `for TIME`, such as `for 2h`: then the schedule or the configuration is in force again. `until DEADLINE then POWER`: a limit of all budgets,
    /// and what it is after the deadline, in seconds of CLOCK_BOOTTIME
    #[arg(value_name = "for TIME|until DEADLINE then POWER", num_args = 2..=4)]
    time: Vec<String>,

    /// Domain of budgets: server, or cpu for the CPU packages
    #[arg(long)]
    domain: Option<String>,

    /// Only print the effect
    #[arg(long)]
    dry_run: bool,

    /// Refuse a budget that cannot be held; take it back if that shows only later
    #[arg(long)]
    strict: bool,

    /// Do not wait until power is within the budget or the budget is unreachable; exit code 0 then means only that it is set
    #[arg(long, conflicts_with = "strict")]
    no_wait: bool,

    /// Print the goals as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ToleranceArgs {
    /// Such as 0.2 or 20% above the latency without saving, or at most 500us; or off
    bound: String,

    /// Of which statistic of latency: mean, p50 or p99 [default: mean]
    stat: Option<String>,

    /// Of requests to this namespace only
    #[arg(long, value_name = "NSID")]
    namespace: Option<i64>,

    /// Its subsystem, where the server has more than one
    #[arg(long, requires = "namespace")]
    nqn: Option<String>,

    /// Print the goals as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn set_tolerance(socket: &SocketArgs, args: &ToleranceArgs) -> anyhow::Result<Exit> {
    let tolerance = args.stat.iter().fold(args.bound.clone(), |bound, stat| format!("{bound} {stat}"));
    let tolerance = Some(tolerance);
    let request = GoalsRequest { tolerance, nsid: args.namespace, nqn: args.nqn.clone(), ..GoalsRequest::default() };
    client::run(socket, &Request::SetGoals(request), args.json, |response| tolerance_set(response, args.namespace))
}

pub(super) fn set_budget(socket: &SocketArgs, args: &BudgetArgs) -> anyhow::Result<Exit> {
    let duration = match args.time.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => None,
        ["for", time] => Some((*time).to_owned()),
        ["until", deadline, "then", power] => return set_limit(socket, args, deadline, power),
        words => anyhow::bail!(
            "`{}` is not a time: write `for` and how long, such as `for 2h`, or `until DEADLINE then POWER`",
            words.join(" ")
        ),
    };
    let request = GoalsRequest {
        budget: Some(args.power.clone()),
        duration,
        domain: args.domain.clone(),
        dry_run: args.dry_run,
        strict: args.strict,
        ..GoalsRequest::default()
    };
    let mut client = Client::connect(socket)?;
    let mut answer = match client.request::<GoalsResponse>(&Request::SetGoals(request)) {
        Ok(answer) => answer,
        Err(error) => return client::failed(error),
    };
    if !args.json {
        console::print(budget_set(&answer))?;
    }
    let is_final = |state: &str| state != "settling" && state != "exceeded";
    let waits = !args.dry_run && !args.no_wait && answer.budget.is_some();
    let begin = Instant::now();
    while waits
        && answer.budget.as_ref().is_some_and(|budget| !is_final(&budget.state))
        && begin.elapsed() < BUDGET_TIMEOUT
    {
        thread::sleep(INTERVAL);
        let Report { budget, power, .. } = client.request::<Report>(&Request::Status {})?;
        (answer.budget, answer.power) = (budget, power);
        if answer.budget.as_ref().is_none_or(|budget| budget.withdrawn_uw.is_some()) {
            break;
        }
    }
    if args.json {
        console::println(serde_json::to_string(&answer)?)?;
    } else if waits {
        console::print(outcome(&answer, begin.elapsed()))?;
    }
    Ok(if args.dry_run { Exit::Clean } else { exit_of(&answer, args.no_wait) })
}

/// Limits all budgets until a deadline.
fn set_limit(socket: &SocketArgs, args: &BudgetArgs, deadline: &str, then: &str) -> anyhow::Result<Exit> {
    if args.domain.is_some() || args.dry_run || args.strict {
        anyhow::bail!("a budget with a deadline limits all budgets: omit --domain, --dry-run and --strict");
    }
    let until_boottime_ns = parse_seconds(deadline).with_context(|| {
        format!("`{deadline}` is not a deadline: write seconds of CLOCK_BOOTTIME, such as $(awk '{{printf \"%.2f\", $1 + 15}}' /proc/uptime)")
    })?;
    let request = LimitRequest { power: args.power.clone(), until_boottime_ns, then: then.to_owned() };
    client::run(socket, &Request::SetLimit(request), args.json, |limit| format!("limit {}\n", goals::limit(limit)))
}

/// Seconds with at most nine decimals, in nanoseconds.
fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 9 {
        return None;
    }
    let nanoseconds = format!("{decimals:0<9}").parse::<u64>().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// How the program ends.
fn exit_of(answer: &GoalsResponse, no_wait: bool) -> Exit {
    match &answer.budget {
        Some(budget) if budget.withdrawn_uw.is_some() => Exit::Refused,
        Some(budget) if no_wait || budget.state == "held" => Exit::Clean,
        Some(_) => Exit::NotHeld,
        None => Exit::Clean,
    }
}

/// The tolerance in force, as text.
pub(crate) fn tolerance_set(answer: &GoalsResponse, namespace: Option<i64>) -> String {
    let GoalsResponse { policy, goals: in_force, .. } = answer;
    let Some(tolerance) = in_force.tolerances.iter().find(|one| one.nsid.map(i64::from) == namespace) else {
        return "tolerance off: latency is not limited\n".to_owned();
    };
    let value = goals::tolerance(tolerance);
    format!("tolerance {value}{}\n{}", held_by(answer, Goal::Tolerance, "tolerance", policy), kept(answer))
}

fn held_by(answer: &GoalsResponse, goal: Goal, name: &str, policy: &str) -> String {
    if !answer.goals.unused.iter().any(|unused| unused == name) {
        let inner = answer.inner_policy.as_ref().map_or(String::new(), |chosen| format!(", inner policy {chosen}"));
        return format!(", held by policy {policy}{inner}");
    }
    let users = users_of(goal);
    let why = if goal == Goal::Budget { "; the server's log has their requirements" } else { "" };
    format!(", but policy {policy} does not use it: nothing holds it. Policies that do: {users}{why}")
}

/// The budget in force, or of a dry run, its policy and its duration.
pub(crate) fn budget_set(answer: &GoalsResponse) -> String {
    let value = format_budget(answer.goals.budget_uw);
    let would = if answer.dry_run { "dry run, nothing is changed: " } else { "" };
    let mut text = format!("{would}budget {value}");
    if answer.dry_run {
        let _ = write!(text, " instead of {}", format_budget(answer.before_uw));
    }
    let Some(budget) = &answer.budget else { return text + ": power is not limited\n" };
    let _ = write!(text, " of the {} ({})", goals::domain_name(&budget.domain), budget.origin);
    if let Some(until_s) = budget.until_unix_s {
        let _ = write!(text, " until {}", format_moment(until_s));
    }
    text += &held_by(answer, Goal::Budget, "budget", &answer.policy);
    text += "\n";
    answer.help.iter().for_each(|help| text += &format!("{help}\n"));
    let now = answer.power.as_ref().map_or("no sensor measures it (--sensor)".to_owned(), goals::power);
    let _ = writeln!(text, "power: {now}");
    if let Some(headroom_uw) = budget.headroom_uw.filter(|_| answer.dry_run) {
        let _ = writeln!(text, "{}", consequence(headroom_uw, budget));
    }
    text + &if answer.dry_run { String::new() } else { kept(answer) }
}

/// The effect of a budget on the present power.
fn consequence(headroom_uw: i64, budget: &BudgetReport) -> String {
    let watts = headroom_uw.unsigned_abs() as f64 / 1e6;
    let floor = match budget.floor_uw {
        Some(floor_uw) => format!("the floor is {:.1} W or higher", floor_uw as f64 / 1e6),
        None => "the floor is not known".to_owned(),
    };
    if headroom_uw < 0 {
        format!("power would have to be cut by {watts:.1} W; {floor}")
    } else {
        format!("nothing would be cut: {watts:.1} W of headroom")
    }
}

fn kept(answer: &GoalsResponse) -> String {
    match &answer.kept_in {
        Some(file) => format!("kept over a restart in {file}\n"),
        None => "until the server ends; a restart uses [goals] of the configuration\n".to_owned(),
    }
}

/// The result of a budget.
fn outcome(answer: &GoalsResponse, took: Duration) -> String {
    let Some(budget) = &answer.budget else { return String::new() };
    let from = answer.power.as_ref().and_then(|power| power.modelled.as_ref()).map_or("", |_| " (modelled)");
    let took = took.as_secs_f64();
    if let Some(uw) = budget.withdrawn_uw {
        let floor = goals::floor(budget, from);
        return format!("unreachable: {} is taken back after {took:.1} s{floor}\n", format_budget(Some(uw)));
    }
    match (budget.state.as_str(), budget.power_uw) {
        ("held", Some(uw)) => format!("held after {took:.1} s: {:.1} W{from}\n", uw as f64 / 1e6),
        ("unreachable", _) => format!("unreachable: applied as far as possible{}\n", goals::floor(budget, from)),
        ("settling" | "exceeded", Some(uw)) => format!("not held after {took:.1} s: {:.1} W{from}\n", uw as f64 / 1e6),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_a_deadline_is_right_after_weeks_of_uptime() {
        let program = EXAMPLES.split_once("$(awk '").and_then(|(_, after)| after.split_once('\'')).unwrap().0;
        let folder = tempfile::tempdir().unwrap();
        let uptime = folder.path().join("uptime");
        std::fs::write(&uptime, "1234567.89 2345678.90\n").unwrap();
        match std::process::Command::new("awk").arg(program).arg(&uptime).output() {
            Err(error) => eprintln!("SKIPPED: awk does not run: {error}"),
            Ok(output) => {
                let text = String::from_utf8(output.stdout).unwrap();
                assert_eq!(parse_seconds(&text), Some(1_234_582_890_000_000), "{text}");
            }
        }
    }

    #[test]
    fn deadlines_are_seconds_with_decimals() {
        for (text, expected) in [
            ("0", Some(0)),
            ("8123", Some(8_123_000_000_000)),
            ("8123.45", Some(8_123_450_000_000)),
            ("8123.000000001", Some(8_123_000_000_001)),
            ("8123.0000000001", None),
            ("18446744074", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("-5", None),
            ("+5", None),
            ("5s", None),
            ("1e3", None),
        ] {
            assert_eq!(parse_seconds(text), expected, "{text}");
        }
    }
}
