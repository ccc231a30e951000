//! The interface between this program and the target.
//!
//! A trait, so that what a reload does can be tested without sockets and cores.

use std::net::SocketAddr;
use std::time::Duration;

use pilotlight_nvmf_target::config::Advertised;
use pilotlight_nvmf_target::config::{NamespaceConfig, PathRule, ServerConfig, SubsystemConfig};
use pilotlight_nvmf_target::hosts::authentication::AuthenticationConfig;
use pilotlight_nvmf_target::{
    AssociationStats, Capped, DrainError, Draining, NamespaceUsage, ServerError, ServerStats,
};
use pilotlight_plant::{Component, Goals, Policy, Source, Unreachable, Unsupported, View};
use pilotlight_reactor::{Housekeeping, RuntimeStats};
use pilotlight_storage::Access;
use pilotlight_storage::background::control::Class;

use crate::config::{NamespaceTolerance, Priority};
use crate::metrics::PowerFacts;
use crate::policies::BudgetDomain;
use crate::status::report::{NameAndValue, PowerReport};

/// A server that runs.
pub(super) trait Running: Send + Sync {
    /// Addresses it listens on, with the ports that port 0 became.
    fn local_addrs(&self) -> Vec<SocketAddr>;
    /// Addresses on which hosts with TLS are accepted.
    fn tls_addrs(&self) -> Vec<SocketAddr> {
        Vec::new()
    }
    /// Addresses for secure channel concatenation.
    fn concatenation_addrs(&self) -> Vec<SocketAddr> {
        Vec::new()
    }
    /// Listens on the addresses of a configuration, and no others. Associations of others end.
    fn set_listeners(&self, config: &ServerConfig) -> Result<Draining, ServerError>;
    /// Offers a subsystem on these addresses; none named: on all. Associations of others end.
    fn set_subsystem_listen(&self, nqn: &str, listen: &[SocketAddr]) -> Result<Draining, ServerError>;
    /// Sets the states of paths. Commands in progress on closed ones are finished.
    fn set_paths(&self, rules: &[PathRule]) -> Draining;
    /// Adds a subsystem without namespaces.
    fn add_subsystem(&self, subsystem: &SubsystemConfig) -> Result<(), ServerError>;
    /// Removes a subsystem with its namespaces and ends its connections.
    fn remove_subsystem(&self, nqn: &str) -> Result<(), ServerError>;
    /// Says which hosts may connect to a subsystem from now on; none named: any. Associations of others end.
    fn set_allowed_hosts(&self, nqn: &str, allowed_hosts: &[String]) -> Result<Draining, ServerError>;
    /// Sets the hosts that see a namespace; an empty list means all allowed hosts.
    fn set_namespace_hosts(&self, nqn: &str, nsid: u32, hosts: &[String]) -> Result<(), ServerError>;
    /// Every association.
    fn associations(&self) -> Vec<AssociationStats> {
        Vec::new()
    }
    /// Ends the associations of a host with this subsystem, or with every one.
    fn disconnect(&self, _host: &str, _nqn: Option<&str>) -> Result<Draining, ServerError> {
        Ok(Draining::default())
    }
    /// Sets the secrets of hosts. Connections are kept.
    fn set_authentication(&self, _authentication: AuthenticationConfig) {}
    /// Sets the address that the discovery log gives to hosts instead of the one they have reached, and
    /// its referrals.
    fn set_discovery(&self, advertised: Advertised, referrals: Vec<(String, u16)>);
    /// Adds a namespace to the subsystem `nqn` and notifies its hosts.
    fn add_namespace(&self, nqn: &str, namespace: &NamespaceConfig) -> Result<(), ServerError>;
    /// Removes a namespace from the subsystem `nqn` and notifies its hosts.
    fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), ServerError>;
    /// Gives namespace `from` (NQN and NSID) the number that `namespace` has, in subsystem `to`, without closing its storage,
    /// and notifies the hosts of both.
    fn move_namespace(&self, from: (&str, u32), to: &str, namespace: &NamespaceConfig) -> Result<(), ServerError>;
    /// Resizes a namespace to `blocks` blocks, or for `None` to the size of its medium, and notifies its hosts. Returns the
    /// new number.
    fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError>;
    /// How requests of a namespace reach its medium.
    fn access(&self, nqn: &str, nsid: u32) -> Result<Option<Access>, ServerError>;
    /// Bytes that hold data in a namespace.
    fn allocated_bytes(&self, nqn: &str, nsid: u32) -> Result<u64, ServerError>;
    /// All counters.
    fn stats(&self) -> ServerStats;
    /// Counters of the reactors.
    fn runtime_stats(&self) -> RuntimeStats {
        self.stats().runtime
    }
    /// Lets this policy decide from now on.
    fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported>;
    /// The thread for short periodic work; `None` in tests.
    fn housekeeping(&self) -> Option<&Housekeeping> {
        None
    }
    /// Sends this to it and to later policies.
    fn set_goals(&self, goals: Goals);
    /// No budget exceeds this limit, in microwatts, from now on. Waits for nothing but other goals.
    fn set_limit(&self, _limit_uw: u64) {}
    /// Gives these namespaces and hosts these priorities, and all others none.
    fn set_priorities(&self, named: Vec<Priority>);
    /// Gives these namespaces these tolerances, and all others none.
    fn set_tolerances(&self, named: &[NamespaceTolerance]);
    /// Samples latencies for a reader of the status.
    fn watch_latency(&self) {}
    /// Caps the bandwidth of a namespace or a host from now on; `None`: no longer.
    fn set_cap(&self, of: &Capped, bytes_per_s: Option<u64>) -> Result<(), ServerError>;
    /// Pauses a class of background work, or resumes it.
    fn set_paused(&self, _class: Class, _paused: bool) {}
    /// Power; `None` without a sensor.
    fn power(&self) -> Option<PowerReport>;
    /// Requests and bytes by host and namespace, of each I/O thread.
    fn usages_by_thread(&self) -> Vec<Vec<NamespaceUsage>> {
        Vec::new()
    }
    /// Power and energy for metrics; `None` without a sensor.
    fn power_facts(&self) -> Option<PowerFacts> {
        None
    }
    /// Sources of power readings.
    fn sources(&self) -> Vec<Source> {
        Vec::new()
    }
    /// The last window of power of a domain: when it began and ended ([`clock`]), and its power in microwatts; not one that is stale.
    fn window(&self, _domain: BudgetDomain) -> Option<(u64, u64, u64)> {
        None
    }
    /// The same for others to see: of a second or more.
    fn published_window(&self, domain: BudgetDomain) -> Option<(u64, u64, u64)> {
        self.window(domain)
    }
    /// Lowest power of a domain that the policy can reach, in microwatts, if known.
    fn floor_uw(&self, _domain: BudgetDomain) -> Option<u64> {
        None
    }
    /// Knobs that are set below what was found.
    fn throttled(&self) -> Vec<NameAndValue> {
        Vec::new()
    }
    /// The policy's view.
    fn view(&self) -> View;
    /// The goal that the policy does not reach.
    fn unreachable(&self) -> Option<Unreachable> {
        None
    }
    /// The component that limits throughput, if the policy knows it.
    fn bottleneck(&self) -> Option<Component> {
        None
    }
    /// Stops accepting, finishes what is in flight within a time, flushes.
    fn stop(self: Box<Self>, within: Duration) -> Result<(), DrainError>;
}
