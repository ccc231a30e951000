//! The interface between this program and the target.
//!
//! A trait, so that what a reload does can be tested without sockets and cores.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use pilotlight_nvmf_target::background::control::Class;
use pilotlight_nvmf_target::config::{NamespaceConfig, ServerConfig, SubsystemConfig};
use pilotlight_nvmf_target::{
    AssociationStats, Capped, DrainError, Draining, NamespaceUsage, Server, ServerError, ServerStats,
};
use pilotlight_plant::{Component, Goals, Policy, Scope, Source, Tolerance, Unreachable, Unsupported, View};
use pilotlight_reactor::{Idle, RuntimeOptions, RuntimeStats};

use super::knobs::{self, KnobAccess, Settings};
use super::power::{self, Power};
use super::{budget, holder};
use crate::config::{BudgetDomain, NamespaceTolerance, Operation, Priority, Reactors};
use crate::metrics::PowerFacts;
use crate::policies::PolicyChoice;
use crate::status::report::{NameAndValue, PowerReport};

/// A server that runs.
pub(super) trait Running: Send + Sync {
    /// Addresses it listens on, with the ports that port 0 became.
    fn local_addrs(&self) -> Vec<SocketAddr>;
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
    /// Sets the address that the discovery log gives to hosts instead of the one they have reached, and
    /// its referrals.
    fn set_discovery(&self, advertise: Option<(String, u16)>, referrals: Vec<(String, u16)>);
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
    /// Sends this to it and to later policies.
    fn set_goals(&self, goals: Goals);
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

/// A server with what measures its power.
struct MeteredServer {
    server: Server,
    power: Option<Power>,
    settings: Settings,
}

/// The error for a budget without a sensor.
pub(super) const NO_SENSOR: &str = "a power budget needs a sensor of power, and there is none that this server reads";
/// How to get a sensor.
pub(super) const NO_SENSOR_HELP: &str = "start the server with --sensor rapl or hwmon; or with --sensor modelled, which computes watts from CPU time and measures nothing";

/// Starts the server that `config` and `operation` describe; returns the active policy too.
pub(super) fn start(config: &ServerConfig, operation: &Operation) -> anyhow::Result<(Box<dyn Running>, PolicyChoice)> {
    let (cores, reach) = (&operation.reactors.cores, KnobAccess::of(operation));
    let meter = power::open(&operation.sensor, &reach.roots).map_err(|why| anyhow!("the sensor of power: {why}"))?;
    if meter.is_none() && (operation.goals.budget_uw.is_some() || operation.schedule.is_some()) {
        return Err(anyhow!("{NO_SENSOR}: {NO_SENSOR_HELP}"));
    }
    if meter.is_none() {
        power::log_missing_sensor(&operation.sensor, &reach.roots);
    }
    let power = meter.map(|meter| meter.start(cores)).transpose().context("cannot start a thread for the sensor")?;
    let readings = power.as_ref().map(Power::readings);
    let settings = Settings::default();
    let knobs = Some(knobs::open(config, cores, &reach, &settings));
    let options = RuntimeOptions { knobs, readings, ..options(operation) };
    let named = operation.caps.iter().map(|(of, _)| of).chain(operation.priorities.iter().map(|(of, _)| of));
    let named_hosts = named.filter_map(|of| match of {
        Capped::Host { nqn } => Some(nqn.clone()),
        Capped::Namespace { .. } => None,
    });
    let config = ServerConfig { named_hosts: named_hosts.collect(), ..config.clone() };
    let server = Server::start_on(config, options).context("the server cannot start")?;
    server.set_goals(operation.goals.clone());
    server.set_priorities(operation.priorities.clone());
    server.set_tolerances(by_name(&operation.tolerances));
    for (of, bytes_per_s) in &operation.caps {
        server.set_cap(of, Some(*bytes_per_s)).context("the server cannot start")?;
    }
    let sources = power.as_ref().map(Power::sources).unwrap_or_default();
    let domain = budget::domain(operation.domain, &sources);
    let served = MeteredServer { server, power, settings };
    let active_policy = holder::activate_first(&holder::candidates(operation, domain), holder::set(&served))
        .map_err(|why| anyhow!("the server cannot start: {why}"))?;
    Ok((Box::new(served), active_policy))
}

/// Tolerances as a server takes them.
fn by_name(tolerances: &[NamespaceTolerance]) -> Vec<(Capped, Tolerance)> {
    tolerances.iter().map(|(of, bound)| (of.clone(), bound.of(Scope::Server))).collect()
}

/// How reactors are started, but for what sets knobs.
pub(super) fn options(operation: &Operation) -> RuntimeOptions {
    let Reactors { cores, topology } = operation.reactors.clone();
    let idle = if operation.reactors.is_test_mode() { Idle::Yield } else { Idle::Spin };
    let quiet = operation.sleep_after.quiet();
    RuntimeOptions { topology, quiet, ..RuntimeOptions::new(cores, idle) }
}

impl Running for MeteredServer {
    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.server.local_addrs().to_vec()
    }

    fn add_subsystem(&self, subsystem: &SubsystemConfig) -> Result<(), ServerError> {
        self.server.add_subsystem(subsystem)
    }

    fn remove_subsystem(&self, nqn: &str) -> Result<(), ServerError> {
        self.server.remove_subsystem(nqn)
    }

    fn set_allowed_hosts(&self, nqn: &str, allowed_hosts: &[String]) -> Result<Draining, ServerError> {
        self.server.set_allowed_hosts(nqn, allowed_hosts)
    }

    fn set_namespace_hosts(&self, nqn: &str, nsid: u32, hosts: &[String]) -> Result<(), ServerError> {
        self.server.set_namespace_hosts(nqn, nsid, hosts)
    }

    fn associations(&self) -> Vec<AssociationStats> {
        self.server.associations()
    }

    fn disconnect(&self, host: &str, nqn: Option<&str>) -> Result<Draining, ServerError> {
        self.server.disconnect(host, nqn)
    }

    fn set_discovery(&self, advertise: Option<(String, u16)>, referrals: Vec<(String, u16)>) {
        self.server.set_discovery(advertise, referrals);
    }

    fn add_namespace(&self, nqn: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        self.server.add_namespace(nqn, namespace)
    }

    fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), ServerError> {
        self.server.remove_namespace(nqn, nsid)
    }

    fn move_namespace(&self, from: (&str, u32), to: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        self.server.move_namespace(from, to, namespace)
    }

    fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError> {
        self.server.resize_namespace(nqn, nsid, blocks)
    }

    fn allocated_bytes(&self, nqn: &str, nsid: u32) -> Result<u64, ServerError> {
        self.server.allocated_bytes(nqn, nsid)
    }

    fn stats(&self) -> ServerStats {
        self.server.stats()
    }

    fn runtime_stats(&self) -> RuntimeStats {
        self.server.runtime_stats()
    }

    fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        self.server.set_policy(policy)
    }

    fn set_goals(&self, goals: Goals) {
        self.server.set_goals(goals);
    }

    fn set_priorities(&self, named: Vec<Priority>) {
        self.server.set_priorities(named);
    }

    fn set_tolerances(&self, named: &[NamespaceTolerance]) {
        self.server.set_tolerances(by_name(named));
    }

    fn watch_latency(&self) {
        self.server.watch_latency();
    }

    fn set_cap(&self, of: &Capped, bytes_per_s: Option<u64>) -> Result<(), ServerError> {
        self.server.set_cap(of, bytes_per_s)
    }

    fn set_paused(&self, class: Class, paused: bool) {
        self.server.set_paused(class, paused);
    }

    fn power(&self) -> Option<PowerReport> {
        self.power.as_ref().map(Power::report)
    }

    fn usages_by_thread(&self) -> Vec<Vec<NamespaceUsage>> {
        self.server.usages_by_thread()
    }

    fn power_facts(&self) -> Option<PowerFacts> {
        self.power.as_ref().map(Power::facts)
    }

    fn sources(&self) -> Vec<Source> {
        self.power.as_ref().map(Power::sources).unwrap_or_default()
    }

    fn window(&self, domain: BudgetDomain) -> Option<(u64, u64, u64)> {
        self.power.as_ref()?.window(domain)
    }

    fn floor_uw(&self, domain: BudgetDomain) -> Option<u64> {
        self.power.as_ref()?.floor_uw(domain)
    }

    fn throttled(&self) -> Vec<NameAndValue> {
        self.settings.throttled()
    }

    fn view(&self) -> View {
        self.server.policy().map(|(_, view)| view).unwrap_or_default()
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.server.unreachable()
    }

    fn bottleneck(&self) -> Option<Component> {
        self.server.bottleneck()
    }

    fn stop(self: Box<Self>, within: Duration) -> Result<(), DrainError> {
        self.server.stop(within)
    }
}
