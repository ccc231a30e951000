//! The state of a running server: the configuration that is in force, the one that was last read, and what was changed manually since.

use std::net::SocketAddr;

use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::config::{NamespaceConfig, PathRule, ServerConfig, SubsystemConfig};

use super::budget::{BudgetMonitor, Configured, GoalOverrides};
use crate::config::{Cap, Operation};
use crate::policies::{BudgetDomain, PolicyChoice};

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
    /// Subsystems added or removed over the control socket.
    pub(super) subsystem_overrides: Vec<SubsystemOverride>,
    /// Subsystems of which the addresses were changed over the control socket.
    pub(super) offer_overrides: Vec<OfferOverride>,
    /// If states of paths were changed over the control socket: those that were read before.
    pub(super) path_override: Option<Vec<PathRule>>,
    /// If listening addresses were changed over the control socket: the configuration that was read before.
    pub(super) listen_override: Option<ServerConfig>,
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

/// A subsystem added or removed over the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SubsystemOverride {
    /// The subsystem.
    pub(super) nqn: String,
    /// Its configuration at that time.
    pub(super) configured: Option<SubsystemConfig>,
}

/// A subsystem of which the addresses were changed over the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OfferOverride {
    /// The subsystem.
    pub(super) nqn: String,
    /// The addresses that the configuration named at that time.
    pub(super) configured: Vec<SocketAddr>,
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
            configured: Configured::from_operation(operation),
            caps_read: operation.caps.clone(),
            goal_overrides: GoalOverrides::default(),
            strict_before: None,
            withdrawn_uw: None,
            floor: None,
            monitor: BudgetMonitor::default(),
            namespace_overrides: Vec::new(),
            host_overrides: Vec::new(),
            subsystem_overrides: Vec::new(),
            offer_overrides: Vec::new(),
            listen_override: None,
            path_override: None,
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

    /// Orders states of paths: configured ones first, as in the file. The last one that matches holds.
    pub(super) fn order_paths(&self, rules: &mut [PathRule]) {
        rules.sort_by_key(|rule| self.read.paths.iter().position(|read| read == rule).unwrap_or(usize::MAX));
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

    /// Notes that a subsystem is there, or is not, against the configuration.
    pub(super) fn note_subsystem_override(&mut self, nqn: &str) {
        let configured = find_subsystem(&self.read, nqn).cloned();
        self.subsystem_overrides.retain(|other| other.nqn != nqn);
        self.subsystem_overrides.push(SubsystemOverride { nqn: nqn.to_owned(), configured });
    }

    /// Forgets a removed subsystem.
    pub(super) fn forget_subsystem(&mut self, nqn: &str) {
        self.config.subsystems.retain(|subsystem| subsystem.nqn != nqn);
        self.blocks.retain(|(of, _, _)| of != nqn);
        self.namespace_overrides.retain(|entry| entry.nqn != nqn);
        self.host_overrides.retain(|entry| entry.nqn != nqn);
        self.offer_overrides.retain(|entry| entry.nqn != nqn);
        self.subsystem_overrides.retain(|entry| entry.nqn != nqn);
    }

    /// Notes the number of blocks of a namespace; `None`: by the size of its storage.
    pub(super) fn note_size(&mut self, nqn: &str, namespace: &NamespaceConfig, blocks: Option<u64>) {
        let size = || namespace.backend.size().or_else(|| crate::config::file_size(&namespace.backend));
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
    find_subsystem(config, nqn).map(|subsystem| &subsystem.allowed_hosts)
}

/// The addresses on which a subsystem is offered.
pub(super) fn offered_on<'a>(config: &'a ServerConfig, nqn: &str) -> Option<&'a Vec<SocketAddr>> {
    find_subsystem(config, nqn).map(|subsystem| &subsystem.listen)
}

/// A subsystem of a configuration.
pub(super) fn find_subsystem<'a>(config: &'a ServerConfig, nqn: &str) -> Option<&'a SubsystemConfig> {
    config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)
}

/// A namespace of a configuration.
pub(super) fn find_namespace<'a>(config: &'a ServerConfig, nqn: &str, nsid: u32) -> Option<&'a NamespaceConfig> {
    find_subsystem(config, nqn)?.namespaces.iter().find(|namespace| namespace.nsid == nsid)
}

/// Whether a configuration has what is named: a host need not be written.
pub(super) fn exists(config: &ServerConfig, of: &Capped) -> bool {
    match of {
        Capped::Namespace { nqn, nsid } => find_namespace(config, nqn, *nsid).is_some(),
        Capped::Host { .. } => true,
    }
}
