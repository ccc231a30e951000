//! Tests of the plan of a reload, and of its effect on a recording server.

mod differences;
mod moves;
mod order;
mod shrink;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilotlight_auth::{Secret, SecretLen};
use pilotlight_nvmf_target::config::Advertised;
use pilotlight_nvmf_target::config::{NamespaceConfig, PathRule, SubsystemConfig};
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};
use pilotlight_nvmf_target::{Capped, DrainError, Draining, ServerError, ServerStats};
use pilotlight_plant::{Goals, Policy, Unsupported, View};
use pilotlight_power::shares::Idle;
use pilotlight_storage::Access;

use super::*;
use crate::admin::group::Group;
use crate::config::tests::machine;
use crate::config::{
    AdminSocket, NamespaceTolerance, Page, PageAddress, Priority, Reactors, SensorChoice, ServeArgs, SleepAfter,
    TokenFile, load_text,
};
use crate::policies::BudgetDomain;
use crate::serve::budget::BudgetOverride;
use crate::serve::state::NamespaceOverride;
use crate::status::report::PowerReport;

/// Records calls, and refuses those with this prefix.
#[derive(Default)]
pub(in crate::serve) struct Recorder {
    calls: Mutex<Vec<String>>,
    refuse: Option<&'static str>,
    /// Returns the number of undrained associations; without it, waiting panics.
    undrained: Option<Arc<dyn Fn() -> usize + Send + Sync>>,
}

impl Recorder {
    /// With this number of undrained associations.
    pub(in crate::serve) fn with_undrained(undrained: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self { undrained: Some(Arc::new(undrained)), ..Self::default() }
    }

    fn note(&self, what: String) -> Result<(), ServerError> {
        let refused = self.refuse.is_some_and(|refused| what.starts_with(refused));
        self.calls.lock().unwrap().push(what);
        if refused { Err(std::io::Error::other("refused by the test").into()) } else { Ok(()) }
    }
}

impl Running for Recorder {
    fn local_addrs(&self) -> Vec<SocketAddr> {
        Vec::new()
    }
    fn set_listeners(&self, config: &ServerConfig) -> Result<Draining, ServerError> {
        self.note(format!("listen {:?}", config.all_listeners())).map(|()| Draining::default())
    }
    fn set_paths(&self, rules: &[PathRule]) -> Draining {
        let _ = self.note(format!("paths {}", rules.len()));
        Draining::default()
    }
    fn set_subsystem_listen(&self, nqn: &str, listen: &[SocketAddr]) -> Result<Draining, ServerError> {
        self.note(format!("offer {nqn} {listen:?}")).map(|()| Draining::default())
    }
    fn add_subsystem(&self, subsystem: &SubsystemConfig) -> Result<(), ServerError> {
        assert_eq!(subsystem.namespaces, [], "they are added one by one");
        self.note(format!("add subsystem {}", subsystem.nqn))
    }
    fn remove_subsystem(&self, nqn: &str) -> Result<(), ServerError> {
        self.note(format!("remove subsystem {nqn}"))
    }
    fn set_namespace_hosts(&self, nqn: &str, nsid: u32, hosts: &[String]) -> Result<(), ServerError> {
        self.note(format!("show {nqn} {nsid} {hosts:?}"))
    }
    fn set_allowed_hosts(&self, nqn: &str, allowed_hosts: &[String]) -> Result<Draining, ServerError> {
        let undrained = self.undrained.clone().unwrap_or_else(|| Arc::new(|| panic!("a reload waits")));
        self.note(format!("allow {nqn} {allowed_hosts:?}")).map(|()| Draining::new(Vec::new(), move || undrained()))
    }
    fn set_discovery(&self, advertised: Advertised, referrals: Vec<(String, u16)>) {
        let _ = self.note(format!("discovery {:?} {referrals:?}", advertised.plain));
    }
    fn add_namespace(&self, nqn: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        self.note(format!("add {nqn} {}", namespace.nsid))
    }
    fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), ServerError> {
        self.note(format!("remove {nqn} {nsid}"))
    }
    fn move_namespace(&self, from: (&str, u32), to: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        self.note(format!("move {} {} to {to} {}", from.0, from.1, namespace.nsid))
    }
    fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError> {
        self.note(format!("resize {nqn} {nsid} {blocks:?}")).map(|()| blocks.unwrap_or(0))
    }
    fn access(&self, _nqn: &str, _nsid: u32) -> Result<Option<Access>, ServerError> {
        Ok(None)
    }

    fn allocated_bytes(&self, _nqn: &str, _nsid: u32) -> Result<u64, ServerError> {
        Ok(0)
    }
    fn stats(&self) -> ServerStats {
        ServerStats::default()
    }
    fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        let unsupported = Unsupported { policy: policy.name(), feature: "a test", remedy: "none" };
        self.note(format!("policy {}", policy.name())).map_err(|_| unsupported)
    }
    fn set_goals(&self, goals: Goals) {
        let _ = self.note(format!("goals {:?} {:?}", goals.budget_uw, goals.tolerances));
    }
    fn set_tolerances(&self, named: &[NamespaceTolerance]) {
        let _ = self.note(format!("tolerances {named:?}"));
    }
    fn set_priorities(&self, named: Vec<Priority>) {
        let _ = self.note(format!("priorities {named:?}"));
    }
    fn set_cap(&self, of: &Capped, bytes_per_s: Option<u64>) -> Result<(), ServerError> {
        self.note(format!("cap {of:?} {bytes_per_s:?}"))
    }
    fn power(&self) -> Option<PowerReport> {
        None
    }
    fn view(&self) -> View {
        View::new()
    }
    fn stop(self: Box<Self>, _within: Duration) -> Result<(), DrainError> {
        Ok(())
    }
}

fn namespace(nsid: u32, backend: &str) -> NamespaceConfig {
    NamespaceConfig::new(nsid, backend.parse().unwrap(), 4096)
}

fn subsystem(nqn: &str, namespaces: Vec<NamespaceConfig>) -> SubsystemConfig {
    SubsystemConfig::new(nqn, namespaces)
}

fn server(namespaces: Vec<NamespaceConfig>) -> ServerConfig {
    ServerConfig { subsystems: vec![subsystem("a", namespaces)], ..ServerConfig::default() }
}

pub(in crate::serve) fn operation(policy: &str) -> Operation {
    Operation {
        reactors: Reactors::pinned(&[0], 0, &[]),
        sleep_after: SleepAfter::Never,
        policy: PolicyChoice { name: policy.to_owned(), parameters: Vec::new() },
        goals: Goals::default(),
        hotplug: false,
        keep_limits: false,
        roots: None,
        caps: Vec::new(),
        priorities: Vec::new(),
        tolerances: Vec::new(),
        domain: None,
        schedule: None,
        profile: None,
        sensor: SensorChoice::Auto,
        admin_socket: None,
        energy_shares: None,
        metrics: None,
        mdns: false,
        log_format: crate::log::Format::default(),
        floor_uw: None,
        seccomp: None,
        user: None,
        page: None,
        state_file: None,
        reservations: None,
    }
}

fn state(config: &ServerConfig) -> State {
    State::new(config, &operation("static"))
}

/// Reloads; returns the recorded calls.
fn reload_state(state: &mut State, to: &ServerConfig, recorder: Recorder) -> Vec<String> {
    apply(state, Wanted { config: to, operation: &operation("static"), may_shrink: &[] }, &recorder);
    recorder.calls.into_inner().unwrap()
}

/// Reloads from one configuration to another; returns the recorded calls, and the resulting configuration.
fn reload(from: &ServerConfig, to: &ServerConfig, recorder: Recorder) -> (Vec<String>, ServerConfig) {
    let mut state = state(from);
    let calls = reload_state(&mut state, to, recorder);
    (calls, state.config)
}

#[test]
fn without_changes_only_file_sizes_are_checked() {
    let config = server(vec![namespace(1, "mem:1GiB"), namespace(2, "file:/disk"), namespace(3, "null:1GiB")]);
    let (calls, running) = reload(&config, &config, Recorder::default());
    assert_eq!(calls, ["resize a 2 None"]);
    assert_eq!(running, config);
}

#[test]
fn namespaces_go_before_others_come() {
    let from = server(vec![namespace(1, "null:1GiB"), namespace(2, "mem:1GiB"), namespace(4, "mem:1MiB,hugepages")]);
    let to = server(vec![namespace(2, "mem:2GiB"), namespace(3, "file:/disk"), namespace(4, "mem:2MiB,hugepages")]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, ["remove a 1", "resize a 2 Some(524288)", "resize a 4 Some(512)", "add a 3"]);
    // what follows is quiet: the same configuration holds, in another order of its namespaces
    let (calls, _) = reload(&running, &to, Recorder::default());
    assert_eq!(calls, ["resize a 3 None"]);
}

#[test]
fn a_number_keeps_its_storage() {
    let first =
        [namespace(1, "mem:1GiB"), namespace(2, "file:/disk"), namespace(3, "mem:1GiB"), namespace(4, "mem:1GiB")];
    let from = server(first.to_vec());
    let larger_blocks = NamespaceConfig { block_size: 512, ..namespace(3, "mem:2GiB") };
    let preallocated = namespace(4, "mem:1GiB,hugepages");
    let to = server(vec![namespace(1, "null:1GiB"), namespace(2, "file:/other"), larger_blocks, preallocated]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, [""; 0]);
    assert_eq!(running, from);
    assert_eq!(plan(&from, &to).waiting.len(), 4);
}

#[test]
fn a_file_is_as_large_as_it_is() {
    let from = server(vec![namespace(1, "file:/disk?size=1GiB"), namespace(2, "delay:1ms:file:/other")]);
    let to = server(vec![namespace(1, "file:/disk"), namespace(2, "delay:1ms:file:/other?size=1GiB")]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, ["resize a 1 None", "resize a 2 None"]);
    assert_eq!(running, to);
    let later = server(vec![namespace(1, "file:/disk"), namespace(2, "delay:2ms:file:/other?size=1GiB")]);
    assert_eq!(plan(&to, &later).waiting.len(), 1, "another delay is another backend");
}

#[test]
fn a_refused_change_is_retried() {
    let from = server(vec![namespace(1, "mem:1GiB")]);
    let to = server(vec![namespace(1, "mem:1GiB"), namespace(2, "mem:1GiB")]);
    let refusing = Recorder { refuse: Some("add a 2"), ..Recorder::default() };
    let (_, running) = reload(&from, &to, refusing);
    assert_eq!(running, from);
    let (calls, running) = reload(&running, &to, Recorder::default());
    assert_eq!(calls, ["add a 2"]);
    assert_eq!(running, to);
}

#[test]
fn addresses_change_before_a_subsystem_is_offered_on_more_and_after_it_is_on_less() {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let with = |listeners: &[u16], listen: &[u16]| {
        let mut config = server(vec![]);
        config.listeners = listeners.iter().map(|port| at(*port)).collect();
        config.subsystems[0].listen = listen.iter().map(|port| at(*port)).collect();
        config
    };
    let (calls, running) = reload(&with(&[1, 2], &[1]), &with(&[2, 3], &[3]), Recorder::default());
    let nowhere = "offer a [0.0.0.0:0]";
    assert_eq!(calls, [nowhere, "listen [127.0.0.1:2, 127.0.0.1:3]", "offer a [127.0.0.1:3]"]);
    assert_eq!(running, with(&[2, 3], &[3]));
    let refusing = || Recorder { refuse: Some("offer a [0"), ..Recorder::default() };
    let (calls, running) = reload(&with(&[1, 2], &[1]), &with(&[1, 2], &[2]), refusing());
    assert_eq!((calls, running), (vec![nowhere.to_owned()], with(&[1, 2], &[1])), "it is not offered on more");
    let (calls, _) = reload(&with(&[1, 2], &[]), &with(&[1, 2], &[2]), Recorder::default());
    assert_eq!(calls, ["offer a [127.0.0.1:2]"]);
    assert_eq!(plan(&with(&[1], &[]), &with(&[1], &[])).changes, []);
}

#[test]
fn manual_addresses_and_subsystems_stay_until_their_configuration_changes() {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let read = server(vec![]);
    let mut state = state(&read);
    state.config.listeners.push(at(2));
    state.listen_override = Some(read.clone());
    state.config.subsystems[0].listen = vec![at(2)];
    state.offer_overrides.push(OfferOverride { nqn: "a".to_owned(), configured: Vec::new() });
    state.config.subsystems.push(subsystem("manual", Vec::new()));
    state.note_subsystem_override("manual");
    let runs = state.config.clone();
    let (wanted, words) = with_what_stays(&mut state, &read);
    assert_eq!((&wanted, words.len()), (&runs, 3));
    assert_eq!(plan(&runs, &wanted).changes, []);
    let mut changed = read.clone();
    changed.listeners.push(at(3));
    changed.subsystems.push(SubsystemConfig { listen: vec![at(3)], ..subsystem("manual", Vec::new()) });
    changed.subsystems[0].listen = vec![at(3)];
    assert_eq!(with_what_stays(&mut state, &changed), (changed, Vec::new()));
    state.forget_subsystem("a");
    state.note_subsystem_override("a");
    let (wanted, words) = with_what_stays(&mut state, &read);
    assert_eq!((wanted.subsystems, words.len()), (Vec::new(), 1), "it was removed manually");
}

#[test]
fn the_rest_waits_for_a_restart() {
    let from = server(vec![]);
    let mut to = ServerConfig { cores: vec![0, 1], ..from.clone() };
    to.subsystems[0].serial = Some("1".to_owned());
    to.limits.max_connections = 7;
    let plan = plan(&from, &to);
    assert_eq!(plan.changes, []);
    assert_eq!(
        plan.waiting,
        [
            "server.cores has changed; it takes effect at a restart",
            "limits.max_connections has changed; it takes effect at a restart",
            "serial of a has changed; it takes effect at a restart",
        ]
    );
}

#[test]
fn a_key_that_follows_from_another_is_not_named() {
    let waiting = |from: &str, to: &str| {
        let read = |keys: &str| {
            let args = ServeArgs::default();
            let text = format!("[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n{keys}");
            load_text(&args, Path::new("server.toml"), text, &machine()).unwrap()
        };
        let (from, to) = (read(from), read(to));
        [plan(&from.config, &to.config).waiting, settled_operation(&from.operation, &to.operation)].concat()
    };
    let named = |keys: &[&str]| -> Vec<String> {
        keys.iter().map(|key| format!("{key} has changed; it takes effect at a restart")).collect()
    };
    assert_eq!(waiting("[server]\ncores = 0", "[server]\ncores = [0, 1]"), named(&["server.cores"]));
    assert_eq!(waiting("[server]\ncores = 0", "[server]\ncores = 1"), named(&["server.cores"]));
    assert_eq!(waiting("", "[server]\nio_threads = 4"), named(&["server.io_threads"]));
    assert_eq!(waiting("", "[limits]\nmax_memory = \"512MiB\""), named(&["limits.max_memory"]));
    assert_eq!(
        waiting("", "[limits]\nqueue_memory = \"8MiB\"\nmax_pending = 9"),
        named(&["limits.queue_memory", "limits.max_pending"])
    );
}

#[test]
fn a_changed_key_that_waits_for_a_restart_is_named() {
    let socket = |read_group: Option<Group>| AdminSocket { path: "/a.sock".into(), is_explicit: true, read_group };
    let group = Group { name: "readers".to_owned(), gid: 7 };
    let page = Page {
        listen: PageAddress::Tcp(([127, 0, 0, 1], 9809).into()),
        hosts: Vec::new(),
        token: TokenFile::Configured("/token".into()),
        tick: Duration::from_secs(1),
    };
    let from = Operation { admin_socket: Some(socket(None)), ..operation("static") };
    let changes = [
        ("server.sleep_after", Operation { sleep_after: SleepAfter::Time(Duration::from_secs(1)), ..from.clone() }),
        ("server.energy_shares", Operation { energy_shares: Some(Idle::Equal), ..from.clone() }),
        ("goals.floor", Operation { floor_uw: Some(1_000_000), ..from.clone() }),
        ("metrics.listen", Operation { metrics: Some(([127, 0, 0, 1], 9808).into()), ..from.clone() }),
        ("page", Operation { page: Some(page), ..from.clone() }),
        ("admin.socket", Operation { admin_socket: None, ..from.clone() }),
        ("admin.read_group", Operation { admin_socket: Some(socket(Some(group))), ..from.clone() }),
    ];
    for (key, to) in changes {
        assert_eq!(settled_operation(&from, &to), [format!("{key} has changed; it takes effect at a restart")]);
    }
}

#[test]
fn subsystems_hosts_and_referrals_change_while_the_server_runs() {
    let mut from = server(vec![namespace(1, "mem:1GiB")]);
    from.subsystems.push(subsystem("old", vec![namespace(1, "mem:1GiB"), namespace(2, "mem:1GiB")]));
    let mut to = server(vec![]);
    to.subsystems[0].allowed_hosts.push("host".to_owned());
    to.subsystems.push(subsystem("new", vec![namespace(1, "mem:1GiB")]));
    to.referrals.push(("10.0.0.2".to_owned(), 8009));
    let (calls, running) = reload(&from, &to, Recorder::default());
    let expected = [
        r#"allow a ["host"]"#,
        r#"discovery None [("10.0.0.2", 8009)]"#,
        "add subsystem new",
        "remove a 1",
        "remove subsystem old",
        "add new 1",
    ];
    assert_eq!(calls, expected);
    assert_eq!(running, to);
    assert_eq!(reload(&running, &to, Recorder::default()).0, [""; 0]);
}

#[test]
fn a_subsystem_that_cannot_be_added_or_removed_is_tried_again() {
    let from = server(vec![]);
    let mut to = from.clone();
    to.subsystems.push(subsystem("new", vec![]));
    let (_, running) = reload(&from, &to, Recorder { refuse: Some("add subsystem"), ..Recorder::default() });
    assert_eq!(running, from);
    assert_eq!(reload(&running, &to, Recorder::default()).1, to);
    let (_, running) = reload(&to, &from, Recorder { refuse: Some("remove subsystem"), ..Recorder::default() });
    assert_eq!(running, to);
    assert_eq!(reload(&running, &from, Recorder::default()).1, from);
}

/// A namespace added at run time is removed with its subsystem, and does not come back with it.
#[test]
fn namespaces_added_at_run_time_are_removed_with_their_subsystem() {
    let read = server(vec![]);
    let mut state = state(&read);
    state.config = server(vec![namespace(5, "mem:1GiB")]);
    state.note_override("a", 5);
    let none = ServerConfig { subsystems: Vec::new(), ..read.clone() };
    assert_eq!(reload_state(&mut state, &none, Recorder::default()), ["remove subsystem a"]);
    assert_eq!(state.namespace_overrides, [] as [NamespaceOverride; 0]);
    assert_eq!(reload_state(&mut state, &read, Recorder::default()), ["add subsystem a"]);
    assert_eq!(state.config, read);
}

#[test]
fn changes_at_run_time_hold_until_the_configuration_changes() {
    let read = server(vec![namespace(1, "mem:1GiB"), namespace(2, "mem:1GiB"), namespace(3, "mem:1GiB")]);
    let mut state = state(&read);
    // 2 was removed, 3 has grown, and 5 was added
    state.config = server(vec![namespace(1, "mem:1GiB"), namespace(3, "mem:2GiB"), namespace(5, "null:1GiB")]);
    for nsid in [2, 3, 5] {
        state.note_override("a", nsid);
    }
    let quiet = [""; 0];
    assert_eq!(reload_state(&mut state, &read, Recorder::default()), quiet);
    assert_eq!(with_what_stays(&mut state, &read).1.len(), 3);
    let other = server(vec![namespace(1, "mem:1GiB"), namespace(2, "mem:1GiB"), namespace(3, "mem:3GiB")]);
    assert_eq!(reload_state(&mut state, &other, Recorder::default()), ["resize a 3 Some(786432)"]);
    let overridden: Vec<u32> = state.namespace_overrides.iter().map(|entry| entry.nsid).collect();
    assert_eq!(overridden, [2, 5], "3 is the configuration's again");
    let more = server(vec![namespace(1, "mem:1GiB"), namespace(2, "mem:4GiB"), namespace(5, "null:2GiB")]);
    let calls = reload_state(&mut state, &more, Recorder::default());
    assert_eq!(calls, ["remove a 3", "resize a 5 Some(524288)", "add a 2"]);
    assert_eq!(state.namespace_overrides, [] as [NamespaceOverride; 0]);
    assert_eq!(reload_state(&mut state, &more, Recorder::default()), quiet);
}

#[test]
fn a_configuration_equal_to_manual_changes_does_nothing() {
    let mut state = state(&server(vec![]));
    state.config = server(vec![namespace(5, "null:1GiB")]);
    state.note_override("a", 5);
    let read = server(vec![namespace(5, "null:1GiB")]);
    assert_eq!(reload_state(&mut state, &read, Recorder::default()), [""; 0]);
    assert_eq!(reload_state(&mut state, &server(vec![]), Recorder::default()), ["remove a 5"]);
}

#[test]
fn a_changed_policy_is_set() {
    let config = server(vec![]);
    let mut state = state(&config);
    let mut apply = |policy: &str, refuse: Option<&'static str>| {
        let recorder = Recorder { refuse, ..Recorder::default() };
        let wanted = Wanted { config: &config, operation: &operation(policy), may_shrink: &[] };
        super::apply(&mut state, wanted, &recorder);
        (recorder.calls.into_inner().unwrap(), state.operation.policy.name.clone())
    };
    let nothing = Vec::<String>::new;
    assert_eq!(apply("static", None), (nothing(), "static".to_owned()));
    assert_eq!(apply("interrupt", Some("policy")), (vec!["policy interrupt".to_owned()], "static".to_owned()));
    assert_eq!(apply("interrupt", None), (vec!["policy interrupt".to_owned()], "interrupt".to_owned()));
    state.operation.policy = operation("sandman").policy; // set manually
    let mut apply = |policy: &str| {
        let recorder = Recorder::default();
        let wanted = Wanted { config: &config, operation: &operation(policy), may_shrink: &[] };
        super::apply(&mut state, wanted, &recorder);
        (recorder.calls.into_inner().unwrap(), state.operation.policy.name.clone())
    };
    assert_eq!(apply("interrupt"), (nothing(), "sandman".to_owned()));
    assert_eq!(apply("static"), (vec!["policy static".to_owned()], "static".to_owned()));
}

#[test]
fn manual_goals_are_kept_until_the_configuration_changes() {
    let config = server(vec![]);
    let mut state = state(&config);
    let goals = |watts: u64| Goals { budget_uw: Some(watts * 1_000_000), ..Goals::default() };
    let apply = |state: &mut State, goals: &Goals| {
        let recorder = Recorder::default();
        let operation = Operation { goals: goals.clone(), ..operation("static") };
        super::apply(state, Wanted { config: &config, operation: &operation, may_shrink: &[] }, &recorder);
        (recorder.calls.into_inner().unwrap(), state.operation.goals.clone())
    };
    let nothing = Vec::<String>::new;
    let held = vec!["goals Some(300000000) []".to_owned(), "policy rapl-only".to_owned()];
    assert_eq!(apply(&mut state, &goals(300)), (held, goals(300)));
    let budget = Some(BudgetOverride { budget_uw: goals(200).budget_uw, until_s: None });
    state.goal_overrides.budget = budget;
    state.operation.goals = goals(200);
    assert_eq!(apply(&mut state, &goals(300)), (nothing(), goals(200)));
    let free = vec!["goals None []".to_owned(), "policy static".to_owned()];
    assert_eq!(apply(&mut state, &Goals::default()), (free, Goals::default()));
}

#[test]
fn a_manual_domain_ends_with_its_budget() {
    let mut state = state(&server(vec![]));
    state.configured.domain = Some(BudgetDomain::Server);
    state.goal_overrides.domain = Some(BudgetDomain::Cpu);
    let set = state.goal_overrides.clone();
    for (overrides, domain) in [(set, BudgetDomain::Cpu), (Default::default(), BudgetDomain::Server)] {
        state.goal_overrides = overrides; // set, and taken back as unreachable (--strict)
        refresh(&mut state, &Recorder::default(), 0).unwrap();
        assert_eq!(state.operation.domain, Some(domain));
    }
}

#[test]
fn manual_caps_are_kept_until_their_configuration_changes() {
    let config = server(vec![namespace(1, "mem:1GiB")]);
    let mut state = state(&config);
    let of = |nsid: u32| Capped::Namespace { nqn: "a".to_owned(), nsid };
    let mut apply = |caps: &[(Capped, u64)]| {
        let recorder = Recorder::default();
        let operation = Operation { caps: caps.to_vec(), ..operation("static") };
        super::apply(&mut state, Wanted { config: &config, operation: &operation, may_shrink: &[] }, &recorder);
        recorder.calls.into_inner().unwrap()
    };
    let cap = |nsid: u32, rate: Option<u64>| format!("cap {:?} {rate:?}", of(nsid));
    assert_eq!(apply(&[(of(1), 7), (of(2), 8)]), [cap(1, Some(7)), cap(2, Some(8))]);
    assert_eq!(apply(&[(of(1), 7), (of(2), 8)]), [""; 0], "what is set manually meanwhile stays");
    assert_eq!(apply(&[(of(2), 9)]), [cap(1, None), cap(2, Some(9))]);
}

#[test]
fn a_host_is_admitted_only_with_its_secret_in_force() {
    let secret = || {
        let mut zero = |_: &mut [u8]| Ok(());
        let host = Secret::generate(None, SecretLen::Bytes32, &mut zero).unwrap();
        HostSecrets { host, controller: None }
    };
    let config = |host: &str| {
        let hosts = [(host.to_owned(), secret())].into();
        let subsystem = SubsystemConfig { allowed_hosts: vec![host.to_owned()], ..subsystem("nqn.a", Vec::new()) };
        let authentication = AuthenticationConfig { hosts, ..AuthenticationConfig::default() };
        ServerConfig { authentication, subsystems: vec![subsystem], ..ServerConfig::default() }
    };
    let plan = plan(&config("nqn.old"), &config("nqn.new"));
    let secrets_of = |loosens: bool| {
        let is_it =
            move |change: &Change| matches!(change, Change::Authentication { loosens: this, .. } if *this == loosens);
        plan.changes.iter().position(is_it).unwrap()
    };
    let admits = |change: &Change| matches!(change, Change::AllowHosts { admits: true, .. });
    let admitted = plan.changes.iter().position(admits).unwrap();
    assert!(secrets_of(false) < admitted && admitted < secrets_of(true), "{:?}", plan.changes);
    let Change::Authentication { authentication, .. } = &plan.changes[secrets_of(false)] else { unreachable!() };
    assert_eq!(authentication.hosts.len(), 2, "what both require");
    assert!(plan.waiting.iter().any(|line| line.contains("nqn.old has no secret any more")), "{:?}", plan.waiting);
}
