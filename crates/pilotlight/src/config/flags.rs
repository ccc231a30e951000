//! The command line becomes a draft: one subsystem, its namespaces numbered as they stand.

use super::draft::{
    Draft, GoalsDraft, LimitsDraft, NamespaceDraft, Number, PageDraft, PolicyDraft, SubsystemDraft, Text,
};
use super::problem::{Located, Origin, Problem};
use super::units::parse_cores;
use crate::cli::ServeArgs;
use crate::policies::key_and_value;

/// The default namespace.
const DEFAULT_BACKEND: &str = "mem:1GiB";

/// The draft that the flags describe.
pub(crate) fn read(args: &ServeArgs) -> (Draft, Vec<Problem>) {
    let mut problems = Vec::new();
    let draft = Draft {
        listen: texts("--listen", &args.listen),
        advertise: text("--advertise", args.advertise.as_ref()),
        mdns: args.mdns,
        cores: cores(args.cores.as_ref(), &mut problems),
        main_core: number("--main-core", args.main_core),
        reactors: number("--reactors", args.reactors),
        io_threads: number("--io-threads", args.io_threads),
        sleep_after: text("--sleep-after", args.sleep_after.as_ref()),
        hotplug: args.hotplug,
        roots: args.roots.clone(),
        power_states: args.power_states,
        sensor: text("--sensor", args.sensor.as_ref()),
        goals: GoalsDraft {
            budget: text("--budget", args.budget.as_ref()),
            domain: text("--budget-domain", args.budget_domain.as_ref()),
            schedule: text("--budget-schedule", args.budget_schedule.as_ref()),
            profile: text("--budget-profile", args.budget_profile.as_ref()),
            tolerance: text("--tolerance", args.tolerance.as_ref()),
        },
        policy: policy(args, &mut problems),
        admin_socket: text("--admin-socket", args.admin_socket.as_ref()),
        read_group: text("--admin-read-group", args.admin_read_group.as_ref()),
        state_file: text("--state", args.state.as_ref()),
        metrics: text("--metrics", args.metrics.as_ref()),
        energy_shares: text("--energy-shares", args.energy_shares.as_ref()),
        log_format: text("--log-format", args.log_format.as_ref()),
        page: PageDraft {
            listen: text("--page", args.page.as_ref()),
            hosts: Vec::new(),
            token_file: text("--page-token-file", args.page_token_file.as_ref()),
            tick_ms: args.page_tick,
        },
        limits: LimitsDraft {
            max_memory: text("--max-memory", args.max_memory.as_ref()),
            drain_timeout: text("--drain-timeout", args.drain_timeout.as_ref()),
            ..LimitsDraft::default()
        },
        subsystems: vec![subsystem(args)],
        ..Draft::default()
    };
    (draft, problems)
}

/// Flags that have a key in the file, each with the key to write instead.
pub(crate) fn conflicts(args: &ServeArgs, file: &str) -> Vec<Problem> {
    let stated: [(&'static str, bool, &str); 32] = [
        ("--listen", !args.listen.is_empty(), "`listen = [...]` in [server]"),
        ("--advertise", args.advertise.is_some(), "`advertise = \"...\"` in [server]"),
        ("--mdns", args.mdns, "`mdns = true` in [discovery]"),
        ("--namespace", !args.namespace.is_empty(), "a [[subsystem.namespace]] with `nsid` and `backend`"),
        ("--block-size", args.block_size.is_some(), "`block_size = ...` in [[subsystem.namespace]]"),
        ("--cores", args.cores.is_some(), "`cores = \"...\"` in [server]"),
        ("--main-core", args.main_core.is_some(), "`main_core = ...` in [server]"),
        ("--reactors", args.reactors.is_some(), "`reactors = ...` in [server]"),
        ("--io-threads", args.io_threads.is_some(), "`io_threads = ...` in [server]"),
        ("--policy", args.policy.is_some(), "`name = \"...\"` in [policy]"),
        ("--policy-set", !args.policy_set.is_empty(), "`KEY = \"VALUE\"` in [policy]"),
        ("--sleep-after", args.sleep_after.is_some(), "`sleep_after = \"...\"` in [server]"),
        ("--hotplug", args.hotplug, "`hotplug = true` in [server]"),
        ("--power-states", args.power_states, "`power_states = true` in [server]"),
        ("--sensor", args.sensor.is_some(), "`sensor = \"...\"` in [server]"),
        ("--budget", args.budget.is_some(), "`budget = \"...\"` in [goals]"),
        ("--budget-domain", args.budget_domain.is_some(), "`domain = \"...\"` in [goals]"),
        ("--budget-schedule", args.budget_schedule.is_some(), "`schedule = \"...\"` in [goals]"),
        ("--budget-profile", args.budget_profile.is_some(), "`profile = \"...\"` in [goals]"),
        ("--tolerance", args.tolerance.is_some(), "`tolerance = \"...\"` in [goals]"),
        ("--admin-socket", args.admin_socket.is_some(), "`socket = \"...\"` in [admin]"),
        ("--admin-read-group", args.admin_read_group.is_some(), "`read_group = \"...\"` in [admin]"),
        ("--state", args.state.is_some(), "`state = \"...\"` in [admin]"),
        ("--metrics", args.metrics.is_some(), "`listen = \"...\"` in [metrics]"),
        ("--energy-shares", args.energy_shares.is_some(), "`energy_shares = \"...\"` in [server]"),
        ("--log-format", args.log_format.is_some(), "`format = \"...\"` in [log]"),
        ("--page", args.page.is_some(), "`listen = \"...\"` in [page]"),
        ("--page-token-file", args.page_token_file.is_some(), "`token_file = \"...\"` in [page]"),
        ("--nqn", args.nqn.is_some(), "`nqn = \"...\"` in [[subsystem]]"),
        ("--allow-host", !args.allow_host.is_empty(), "`allowed_hosts = [...]` in [[subsystem]]"),
        ("--max-memory", args.max_memory.is_some(), "`max_memory = \"...\"` in [limits]"),
        ("--drain-timeout", args.drain_timeout.is_some(), "`drain_timeout = \"...\"` in [limits]"),
    ];
    let refuse = |(flag, _, instead): (&'static str, bool, &str)| {
        Problem::error(&Origin::Flag(flag), "cannot be used together with --config")
            .help(format!("write {instead}, in {file}"))
    };
    stated.into_iter().filter(|(_, given, _)| *given).map(refuse).collect()
}

fn subsystem(args: &ServeArgs) -> SubsystemDraft {
    let mut backends = texts("--namespace", &args.namespace);
    if backends.is_empty() {
        backends.push(Located::new(DEFAULT_BACKEND.to_owned(), Origin::Default));
    }
    let namespace = |(index, backend): (usize, Text)| NamespaceDraft {
        at: backend.at.clone(),
        nsid: Some(Located::new(index as i64 + 1, backend.at.clone())),
        backend: Some(backend),
        block_size: args.block_size.map(|size| Located::new(i64::from(size), Origin::Flag("--block-size"))),
        ..NamespaceDraft::default()
    };
    SubsystemDraft {
        at: Origin::Default,
        nqn: text("--nqn", args.nqn.as_ref()),
        allowed_hosts: texts("--allow-host", &args.allow_host),
        namespaces: backends.into_iter().enumerate().map(namespace).collect(),
        ..SubsystemDraft::default()
    }
}

/// `--policy` and every `--policy-set`.
fn policy(args: &ServeArgs, problems: &mut Vec<Problem>) -> PolicyDraft {
    let at = Origin::Flag("--policy-set");
    let mut settings = Vec::new();
    for written in &args.policy_set {
        match key_and_value(written) {
            Some((key, value)) => settings.push((Located::new(key, at.clone()), Located::new(value, at.clone()))),
            None => {
                let problem = Problem::error(&at, format!("`{written}` sets nothing"));
                problems.push(problem.help("write KEY=VALUE, such as window=64"));
            }
        }
    }
    PolicyDraft { at, name: text("--policy", args.policy.as_ref()), settings }
}

fn cores(list: Option<&String>, problems: &mut Vec<Problem>) -> Vec<Located<i64>> {
    let Some(list) = list else { return Vec::new() };
    let at = Origin::Flag("--cores");
    match parse_cores(list) {
        Ok(cores) => cores.into_iter().map(|core| Located::new(i64::from(core), at.clone())).collect(),
        Err(what) => {
            problems.push(Problem::error(&at, what));
            Vec::new()
        }
    }
}

fn number(flag: &'static str, value: Option<u32>) -> Option<Number> {
    value.map(|value| Located::new(i64::from(value), Origin::Flag(flag)))
}

fn text(flag: &'static str, value: Option<&String>) -> Option<Text> {
    value.map(|value| Located::new(value.clone(), Origin::Flag(flag)))
}

fn texts(flag: &'static str, values: &[String]) -> Vec<Text> {
    values.iter().map(|value| Located::new(value.clone(), Origin::Flag(flag))).collect()
}
