//! Flags of the command line: as a draft, and with their keys in a file.

use super::args::ServeArgs;
use super::keys::{
    Admin, Discovery, Draft, Goals, Limits, Log, Metrics, Namespace, Page, Policy, SCHEMAS, Security, Server, Subsystem,
};
use super::problem::{Located, Number, Origin, Problem, Text};
use super::units::parse_cores;
use crate::policies::{key_and_value, not_an_assignment};

/// The default namespace.
const DEFAULT_BACKEND: &str = "mem:1GiB";

/// The value of a flag that has a key of its own.
#[derive(Clone, Copy)]
pub(crate) enum FlagValue<'a> {
    Text(&'a str),
    /// A path from the current directory.
    Path(&'a str),
    /// The same, or `none`.
    PathOrNone(&'a str),
    /// A text that has a path after this prefix.
    Prefixed(&'static str, &'a str),
    Number(u32),
    /// A flag without a value.
    Set,
    List(&'a [String]),
}

/// Section, key and value of each flag that is set and has a key of its own.
pub(crate) fn keyed(args: &ServeArgs) -> Vec<(&'static str, &'static str, FlagValue<'_>)> {
    use FlagValue::{List, Number, Path, PathOrNone, Prefixed, Set, Text};
    fn text(text: &Option<String>) -> Option<FlagValue<'_>> {
        text.as_deref().map(Text)
    }
    fn path(text: &Option<String>) -> Option<FlagValue<'_>> {
        text.as_deref().map(Path)
    }
    fn path_or_none(text: &Option<String>) -> Option<FlagValue<'_>> {
        text.as_deref().map(PathOrNone)
    }
    let flags = [
        ("server", "listen", (!args.listen.is_empty()).then_some(List(&args.listen))),
        ("server", "tls_listen", (!args.tls_listen.is_empty()).then_some(List(&args.tls_listen))),
        ("server", "concat_listen", (!args.concat_listen.is_empty()).then_some(List(&args.concat_listen))),
        ("server", "advertise", text(&args.advertise)),
        ("server", "cores", text(&args.cores)),
        ("server", "main_core", args.main_core.map(Number)),
        ("server", "reactors", args.reactors.map(Number)),
        ("server", "io_threads", args.io_threads.map(Number)),
        ("server", "placement", text(&args.placement)),
        ("server", "sleep_after", text(&args.sleep_after)),
        ("server", "hotplug", args.hotplug.then_some(Set)),
        ("server", "power_states", args.power_states.then_some(Set)),
        ("server", "sensor", args.sensor.as_deref().map(|sensor| Prefixed("modelled:", sensor))),
        ("server", "energy_shares", text(&args.energy_shares)),
        ("goals", "budget", text(&args.budget)),
        ("goals", "domain", text(&args.budget_domain)),
        ("goals", "schedule", path(&args.budget_schedule)),
        ("goals", "profile", path(&args.budget_profile)),
        ("goals", "keep_limits", args.keep_limits.then_some(Set)),
        ("goals", "tolerance", text(&args.tolerance)),
        ("limits", "max_memory", text(&args.max_memory)),
        ("limits", "drain_timeout", text(&args.drain_timeout)),
        ("admin", "socket", path_or_none(&args.admin_socket)),
        ("admin", "read_group", text(&args.admin_read_group)),
        ("admin", "state", path_or_none(&args.state)),
        ("metrics", "listen", text(&args.metrics)),
        ("log", "format", text(&args.log_format)),
        ("security", "secrets_file", args.secrets_file.as_deref().map(|file| Prefixed("credential:", file))),
        ("security", "seccomp", text(&args.seccomp)),
        ("security", "user", text(&args.user)),
        ("security", "group", text(&args.group)),
        ("discovery", "mdns", args.mdns.then_some(Set)),
        ("page", "listen", args.page.as_deref().map(|page| Prefixed("unix:", page))),
        ("page", "token_file", path(&args.page_token_file)),
    ];
    flags.into_iter().filter_map(|(section, key, value)| Some((section, key, value?))).collect()
}

/// The draft that the flags describe.
pub(crate) fn read(args: &ServeArgs) -> (Draft, Vec<Problem>) {
    let mut problems = Vec::new();
    let draft = Draft {
        server: Server {
            listen: texts("--listen", &args.listen),
            tls_listen: texts("--tls-listen", &args.tls_listen),
            concat_listen: texts("--concat-listen", &args.concat_listen),
            advertise: text("--advertise", args.advertise.as_ref()),
            cores: cores(args.cores.as_ref(), &mut problems),
            main_core: number("--main-core", args.main_core),
            reactors: number("--reactors", args.reactors),
            io_threads: number("--io-threads", args.io_threads),
            placement: text("--placement", args.placement.as_ref()),
            sleep_after: text("--sleep-after", args.sleep_after.as_ref()),
            hotplug: args.hotplug,
            power_states: args.power_states,
            sensor: text("--sensor", args.sensor.as_ref()),
            energy_shares: text("--energy-shares", args.energy_shares.as_ref()),
            ..Server::default()
        },
        policy: Policy { at: Origin::Flag("--policy-set"), name: text("--policy", args.policy.as_ref()) },
        parameters: parameters(args, &mut problems),
        goals: goals(args),
        limits: Limits {
            max_memory: text("--max-memory", args.max_memory.as_ref()),
            drain_timeout: text("--drain-timeout", args.drain_timeout.as_ref()),
            ..Limits::default()
        },
        admin: Admin {
            socket: text("--admin-socket", args.admin_socket.as_ref()),
            read_group: text("--admin-read-group", args.admin_read_group.as_ref()),
            state: text("--state", args.state.as_ref()),
            ..Admin::default()
        },
        metrics: Metrics { listen: text("--metrics", args.metrics.as_ref()), ..Metrics::default() },
        security: Security {
            secrets_file: text("--secrets-file", args.secrets_file.as_ref()),
            seccomp: text("--seccomp", args.seccomp.as_ref()),
            user: text("--user", args.user.as_ref()),
            group: text("--group", args.group.as_ref()),
            ..Security::default()
        },
        log: Log { format: text("--log-format", args.log_format.as_ref()), ..Log::default() },
        discovery: Discovery { mdns: args.mdns, ..Discovery::default() },
        page: Page {
            listen: text("--page", args.page.as_ref()),
            token_file: text("--page-token-file", args.page_token_file.as_ref()),
            ..Page::default()
        },
        subsystems: vec![subsystem(args)],
        roots: args.roots.clone(),
        page_tick_ms: args.page_tick,
        ..Draft::default()
    };
    (draft, problems)
}

fn goals(args: &ServeArgs) -> Goals {
    Goals {
        at: Origin::Default,
        budget: text("--budget", args.budget.as_ref()),
        domain: text("--budget-domain", args.budget_domain.as_ref()),
        floor: None,
        schedule: text("--budget-schedule", args.budget_schedule.as_ref()),
        profile: text("--budget-profile", args.budget_profile.as_ref()),
        keep_limits: args.keep_limits,
        tolerance: text("--tolerance", args.tolerance.as_ref()),
    }
}

/// Flags that have a key in the file, each with the key to write instead.
pub(crate) fn conflicts(args: &ServeArgs, file: &str) -> Vec<Problem> {
    let mut set: Vec<(&str, &str)> = keyed(args).into_iter().map(|(section, key, _)| (section, key)).collect();
    let others = [
        ("policy", "name", args.policy.is_some()),
        ("subsystem", "nqn", args.nqn.is_some()),
        ("subsystem", "allowed_hosts", !args.allow_host.is_empty()),
        ("subsystem.namespace", "backend", !args.namespace.is_empty()),
        ("subsystem.namespace", "block_size", args.block_size.is_some()),
    ];
    set.extend(others.into_iter().filter(|(.., is_set)| *is_set).map(|(section, key, _)| (section, key)));
    let refuse = |flag: &'static str, key: &str, section: &str| {
        Problem::error(&Origin::Flag(flag), "cannot be used together with --config")
            .help(format!("write `{key}` in {section}, in {file}"))
    };
    let keys = SCHEMAS.iter().flat_map(|schema| schema.keys.iter().map(move |key| (schema, key)));
    let is_set = keys.filter(|(schema, key)| set.contains(&(schema.header, key.name)));
    let mut problems: Vec<Problem> =
        is_set.map(|(schema, key)| refuse(key.flag, key.name, &schema.heading())).collect();
    if !args.policy_set.is_empty() {
        problems.push(refuse("--policy-set", "KEY = \"VALUE\"", "[policy]"));
    }
    problems
}

fn subsystem(args: &ServeArgs) -> Subsystem {
    let mut backends = texts("--namespace", &args.namespace);
    if backends.is_empty() {
        backends.push(Located::new(DEFAULT_BACKEND.to_owned(), Origin::Default));
    }
    let namespace = |(index, backend): (usize, Text)| Namespace {
        at: backend.at.clone(),
        nsid: Some(Located::new(index as i64 + 1, backend.at.clone())),
        backend: Some(backend),
        block_size: args.block_size.map(|size| Located::new(i64::from(size), Origin::Flag("--block-size"))),
        ..Namespace::default()
    };
    Subsystem {
        nqn: text("--nqn", args.nqn.as_ref()),
        allowed_hosts: texts("--allow-host", &args.allow_host),
        namespace: backends.into_iter().enumerate().map(namespace).collect(),
        ..Subsystem::default()
    }
}

/// `--policy-set`.
fn parameters(args: &ServeArgs, problems: &mut Vec<Problem>) -> Vec<(Text, Text)> {
    let at = Origin::Flag("--policy-set");
    let mut parameters = Vec::new();
    for written in &args.policy_set {
        match key_and_value(written) {
            Some((key, value)) => parameters.push((Located::new(key, at.clone()), Located::new(value, at.clone()))),
            None => problems.push(Problem::error(&at, not_an_assignment(written))),
        }
    }
    parameters
}

fn cores(list: Option<&String>, problems: &mut Vec<Problem>) -> Vec<Number> {
    let Some(list) = list else { return Vec::new() };
    let at = Origin::Flag("--cores");
    match parse_cores(list) {
        Ok(cores) => cores.into_iter().map(|core| Located::new(i64::from(core), at.clone())).collect(),
        Err(message) => {
            problems.push(Problem::error(&at, message));
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
