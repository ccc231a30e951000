//! A running server and its state, changed by SIGHUP and over the control socket.
//!
//! # The problem
//! SIGHUP applies the configuration, which does not contain the changes made over the control socket. Undoing them because of an unrelated
//! signal would take namespaces from hosts; keeping them without limit would make the file wrong.
//!
//! # The rule
//! A change holds as long as the configuration of its object is the same as at the time of the change. After that the configuration is in
//! force again. A restart applies the configuration only. Each reload logs the changes that hold.
//!
//! # Terms
//! *Running* is the present state; *read* is the configuration that was last read.

mod audit;
mod energy;
mod facts;
mod free_space;
mod goals;
mod hosts;
mod namespaces;
mod page;
mod priorities;
mod requests;
mod save;

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::config::{NamespaceConfig, ServerConfig};
use pilotlight_reactor::RuntimeStats;
use tracing::warn;

use super::budget::{BudgetMonitor, Configured, GoalOverrides, Store};
use super::holder;
use super::reload::{self, Wanted};
use super::server::Running;
use crate::cli::ServeArgs;
use crate::config::{BudgetDomain, Cap, Loaded, Machine, Operation};
use crate::metrics::ReloadFacts;
use crate::page::PageReport;
use crate::policies::PolicyChoice;
use free_space::FreeSpace;
use goals::Watch;
pub(super) use goals::{refresh, tolerance_of};

/// A server and its state.
pub(super) struct Admin {
    server: Box<dyn Running>,
    machine: Machine,
    listening: Vec<SocketAddr>,
    started: Instant,
    drain_timeout: Duration,
    store: Store,
    watch: Watch,
    energy_watch: Watch,
    energy: energy::Energy,
    /// The last time the configuration was read again.
    reloaded: Mutex<ReloadFacts>,
    /// When it was started, in seconds since 1970.
    started_s: f64,
    volumes: FreeSpace,
    /// How it was started.
    args: ServeArgs,
    /// The live page, if one is served.
    page: OnceLock<PageReport>,
    /// Held while a request is handled, so that each change is logged with its author.
    turn: Mutex<()>,
    state: Mutex<State>,
}

/// How a server was started.
pub(super) struct Started {
    /// With the goals in force at that time, which can be others by now.
    pub(super) operation: Operation,
    /// The goals that were set manually before.
    pub(super) overrides: GoalOverrides,
    /// The active policy.
    pub(super) active_policy: PolicyChoice,
}

/// The state of a server.
#[derive(Debug)]
pub(super) struct State {
    /// The running configuration.
    pub(super) config: ServerConfig,
    /// How it runs.
    pub(super) operation: Operation,
    /// The configuration that was last read.
    pub(super) read: ServerConfig,
    /// The policy that was read last.
    pub(super) policy_read: PolicyChoice,
    /// The active policy: the chosen one, or one that wraps it.
    pub(super) active_policy: PolicyChoice,
    /// The candidates for the active policy, at the last change.
    pub(super) candidates: Vec<PolicyChoice>,
    /// The goals that were read last.
    pub(super) configured: Configured,
    /// The bandwidth caps that were read last.
    pub(super) caps_read: Vec<Cap>,
    /// The goals that were set manually.
    pub(super) goal_overrides: GoalOverrides,
    /// Overrides before a `strict` budget, which is withdrawn if it is unreachable.
    pub(super) strict_before: Option<GoalOverrides>,
    /// The last budget that was taken back, in microwatts.
    pub(super) withdrawn_uw: Option<u64>,
    /// The lowest power that was reached: of which domain, with which policy, in microwatts.
    pub(super) floor: Option<(BudgetDomain, String, u64)>,
    /// Whether power stays within the budget.
    pub(super) monitor: BudgetMonitor,
    /// Namespaces changed over the control socket.
    pub(super) namespace_overrides: Vec<NamespaceOverride>,
    /// Subsystems whose allowed hosts were changed over the control socket.
    pub(super) host_overrides: Vec<HostsOverride>,
    /// The text of the configuration file that was read last.
    pub(super) text_read: Option<String>,
    /// Blocks of each namespace.
    pub(super) blocks: Vec<(String, u32, u64)>,
}

/// A namespace added, removed or resized over the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamespaceOverride {
    /// The subsystem.
    pub(super) nqn: String,
    /// The namespace.
    pub(super) nsid: u32,
    /// Its configuration at that time.
    pub(super) configured: Option<NamespaceConfig>,
}

/// A subsystem whose allowed hosts were changed over the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostsOverride {
    /// The subsystem.
    pub(super) nqn: String,
    /// The hosts that the configuration named at that time.
    pub(super) configured: Vec<String>,
}

impl Admin {
    /// Takes charge of a server that was started from this configuration.
    pub(super) fn new(
        server: Box<dyn Running>,
        loaded: &Loaded,
        Started { operation, overrides, active_policy }: Started,
        machine: &Machine,
        args: &ServeArgs,
    ) -> Self {
        let mut state = State::new(&loaded.config, &loaded.operation);
        state.text_read = loaded.text().map(str::to_owned);
        (state.operation, state.goal_overrides) = (operation, overrides);
        state.candidates = holder::candidates_for(&state.operation, server.as_ref());
        state.active_policy = active_policy;
        Self {
            listening: server.local_addrs(),
            server,
            machine: machine.clone(),
            started: Instant::now(),
            drain_timeout: loaded.config.limits.drain_timeout,
            store: Store::at(loaded.operation.state_file.clone()),
            watch: Watch::default(),
            energy_watch: Watch::default(),
            energy: energy::Energy::default(),
            reloaded: Mutex::new(ReloadFacts { is_good: true, taken_s: facts::unix_s() }),
            started_s: facts::unix_s(),
            volumes: FreeSpace::default(),
            args: args.clone(),
            page: OnceLock::new(),
            turn: Mutex::new(()),
            state: Mutex::new(state),
        }
    }

    /// Addresses that the server listens on.
    pub(super) fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// Counters of the reactors.
    pub(super) fn runtime_stats(&self) -> RuntimeStats {
        self.server.runtime_stats()
    }

    /// Applies a configuration.
    pub(super) fn reload(&self, loaded: &Loaded) {
        let Loaded { config, operation, may_shrink, .. } = loaded;
        let mut state = self.state();
        let before = state.goal_overrides.clone();
        let draining = reload::apply(&mut state, Wanted { config, operation, may_shrink }, self.server.as_ref());
        state.text_read = loaded.text().map(str::to_owned);
        if state.goal_overrides != before {
            self.keep(&state); // otherwise they return at a restart with the earlier configuration
        }
        drop(state);
        self.goals_have_changed();
        let undrained: usize = hosts::drained(&draining).map(|ended| ended.undrained).sum();
        if undrained > 0 {
            warn!("{undrained} of the associations that are ended have requests that their backends have not returned");
        }
    }

    /// How long a stop may take. It is the same for the server's life.
    pub(super) fn drain_timeout(&self) -> Duration {
        self.drain_timeout
    }

    /// The server, and the configuration that holds at the end.
    pub(super) fn close(self) -> (Box<dyn Running>, ServerConfig) {
        (self.server, self.state.into_inner().unwrap_or_else(PoisonError::into_inner).config)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Of a server that was started from this configuration.
    pub(super) fn new(config: &ServerConfig, operation: &Operation) -> Self {
        let mut state = Self {
            config: config.clone(),
            operation: operation.clone(),
            read: config.clone(),
            policy_read: operation.policy.clone(),
            active_policy: operation.policy.clone(),
            candidates: vec![operation.policy.clone()],
            configured: Configured::of(operation),
            caps_read: operation.caps.clone(),
            goal_overrides: GoalOverrides::default(),
            strict_before: None,
            withdrawn_uw: None,
            floor: None,
            monitor: BudgetMonitor::default(),
            namespace_overrides: Vec::new(),
            host_overrides: Vec::new(),
            text_read: None,
            blocks: Vec::new(),
        };
        for subsystem in &config.subsystems {
            for namespace in &subsystem.namespaces {
                state.note_size(&subsystem.nqn, namespace, None);
            }
        }
        state
    }

    /// The namespaces of a subsystem that run.
    pub(super) fn namespaces(&mut self, nqn: &str) -> Option<&mut Vec<NamespaceConfig>> {
        self.config.subsystems.iter_mut().find(|other| other.nqn == nqn).map(|found| &mut found.namespaces)
    }

    /// A namespace as it was last read.
    pub(super) fn configured_namespace(&self, nqn: &str, nsid: u32) -> Option<&NamespaceConfig> {
        find_namespace(&self.read, nqn, nsid)
    }

    /// Notes that a namespace is no longer what the configuration makes of it.
    pub(super) fn note_override(&mut self, nqn: &str, nsid: u32) {
        let configured = self.configured_namespace(nqn, nsid).cloned();
        self.namespace_overrides.retain(|other| (other.nqn.as_str(), other.nsid) != (nqn, nsid));
        self.namespace_overrides.push(NamespaceOverride { nqn: nqn.to_owned(), nsid, configured });
    }

    /// Notes the number of blocks of a namespace; `None`: by the size of its storage.
    pub(super) fn note_size(&mut self, nqn: &str, namespace: &NamespaceConfig, blocks: Option<u64>) {
        let size = || namespace.backend.size().or_else(|| crate::config::size_of(namespace.backend.path()?).ok());
        let blocks = blocks.unwrap_or_else(|| size().unwrap_or(0) / u64::from(namespace.block_size));
        self.forget_size(nqn, namespace.nsid);
        self.blocks.push((nqn.to_owned(), namespace.nsid, blocks));
    }

    /// Forgets the size of a removed namespace.
    pub(super) fn forget_size(&mut self, nqn: &str, nsid: u32) {
        self.blocks.retain(|(other, id, _)| (other.as_str(), *id) != (nqn, nsid));
    }

    /// How many blocks a namespace has.
    pub(super) fn blocks(&self, nqn: &str, nsid: u32) -> u64 {
        let found = self.blocks.iter().find(|(other, id, _)| (other.as_str(), *id) == (nqn, nsid));
        found.map_or(0, |(_, _, blocks)| *blocks)
    }
}

/// The allowed hosts of a subsystem.
pub(super) fn allowed_hosts<'a>(config: &'a ServerConfig, nqn: &str) -> Option<&'a Vec<String>> {
    config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn).map(|subsystem| &subsystem.allowed_hosts)
}

/// A namespace of a configuration.
pub(super) fn find_namespace<'a>(config: &'a ServerConfig, nqn: &str, nsid: u32) -> Option<&'a NamespaceConfig> {
    let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)?;
    subsystem.namespaces.iter().find(|namespace| namespace.nsid == nsid)
}

/// Whether a configuration has what is named: a host need not be written.
pub(super) fn exists(config: &ServerConfig, of: &Capped) -> bool {
    match of {
        Capped::Namespace { nqn, nsid } => find_namespace(config, nqn, *nsid).is_some(),
        Capped::Host { .. } => true,
    }
}
