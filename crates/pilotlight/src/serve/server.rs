//! Starts the target with what measures its power, and passes calls on to it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use pilotlight_nvmf_target::config::Advertised;
use pilotlight_nvmf_target::config::{NamespaceConfig, PathRule, ServerConfig, SubsystemConfig};
use pilotlight_nvmf_target::hosts::authentication::AuthenticationConfig;
use pilotlight_nvmf_target::{
    AssociationStats, Capped, DrainError, Draining, NamespaceUsage, ReservationStore, Server, ServerError, ServerStats,
};
use pilotlight_plant::{Component, Goals, Policy, Scope, Source, Tolerance, Unreachable, Unsupported, View};
use pilotlight_reactor::{Housekeeping, Idle, RuntimeOptions, RuntimeStats};
use pilotlight_storage::background::control::Class;
use pilotlight_storage::{Access, MemoryBudget, open_by};

use super::budget::{self, NO_SENSOR, NO_SENSOR_HELP};
use super::holder;
use super::knobs::{self, KnobAccess, Settings};
use super::power::{self, Meter, Power};
use super::reservations::Reservations;
use super::running::Running;
use crate::config::{NamespaceTolerance, Operation, Priority, Reactors};
use crate::metrics::PowerFacts;
use crate::policies::{BudgetDomain, PolicyChoice};
use crate::privileges;
use crate::privileges::files::{Files, has_helper};
use crate::status::report::{NameAndValue, PowerReport};

/// A server with what measures its power.
struct MeteredServer {
    server: Server,
    power: Option<Power>,
    settings: Settings,
    goals: Mutex<ClampedGoals>,
}

/// The goals in force, below the limit that has a deadline. Locked for moments.
#[derive(Default)]
struct ClampedGoals {
    goals: Goals,
    limit_uw: Option<u64>,
}

impl ClampedGoals {
    fn in_force(&self) -> Goals {
        let budget_uw = self.goals.budget_uw.into_iter().chain(self.limit_uw).min();
        Goals { budget_uw, ..self.goals.clone() }
    }
}

/// Opens the sensor of power, which can take privileges; `None` where there is none.
pub(super) fn open_meter(operation: &Operation) -> anyhow::Result<Option<Meter>> {
    let reach = KnobAccess::from_operation(operation);
    let meter = power::open(&operation.sensor, &reach.roots).map_err(|why| anyhow!("the sensor of power: {why}"))?;
    if meter.is_none() {
        power::log_missing_sensor(&operation.sensor, &reach.roots);
    }
    Ok(meter)
}

/// Whether a budget has its sensor.
pub(super) fn check_meter(meter: Option<&Meter>, operation: &Operation) -> anyhow::Result<()> {
    if meter.is_none() && (operation.goals.budget_uw.is_some() || operation.schedule.is_some()) {
        return Err(anyhow!("{NO_SENSOR}: {NO_SENSOR_HELP}"));
    }
    Ok(())
}

/// Starts the server that `config` and `operation` describe; returns the active policy too.
pub(super) fn start(
    config: &ServerConfig,
    operation: &Operation,
    meter: Option<Meter>,
) -> anyhow::Result<(Box<dyn Running>, PolicyChoice)> {
    let (cores, reach) = (&operation.reactors.cores, KnobAccess::from_operation(operation));
    let power = meter.map(|meter| meter.start(cores)).transpose().context("cannot start a thread for the sensor")?;
    let readings = power.as_ref().map(Power::readings);
    let settings = Settings::default();
    let knobs = if has_helper() {
        knobs::open_on(privileges::machine(&settings), config, cores, &reach.roots)
    } else {
        knobs::open(config, cores, &reach, &settings)
    };
    let knobs = Some(knobs);
    let options = RuntimeOptions { knobs, readings, ..options(operation) };
    let named = operation.caps.iter().map(|(of, _)| of).chain(operation.priorities.iter().map(|(of, _)| of));
    let named_hosts = named.filter_map(|of| match of {
        Capped::Host { nqn } => Some(nqn.clone()),
        Capped::Namespace { .. } => None,
    });
    let config = ServerConfig { named_hosts: named_hosts.collect(), ..config.clone() };
    let memory = Arc::new(MemoryBudget::new(config.limits.namespace_memory()));
    let opener = move |ns: &NamespaceConfig| open_by(&ns.backend, ns.block_size, &memory, &Files);
    let store = operation.reservations.as_deref().map(Reservations::open).transpose()?;
    let store = store.map(|store| Arc::new(store) as Arc<dyn ReservationStore>);
    let started = Server::start_with_store(config, options, Box::new(opener), store);
    let server = started.context("the server cannot start")?;
    server.set_goals(operation.goals.clone());
    server.set_priorities(operation.priorities.clone());
    server.set_tolerances(by_name(&operation.tolerances));
    for (of, bytes_per_s) in &operation.caps {
        server.set_cap(of, Some(*bytes_per_s)).context("the server cannot start")?;
    }
    let sources = power.as_ref().map(Power::sources).unwrap_or_default();
    let domain = budget::domain(operation.domain, &sources);
    let goals = Mutex::new(ClampedGoals { goals: operation.goals.clone(), limit_uw: None });
    let served = MeteredServer { server, power, settings, goals };
    let active_policy = holder::activate_first(&holder::candidates(operation, domain), operation, holder::set(&served))
        .map_err(|why| anyhow!("the server cannot start: {why}"))?;
    Ok((Box::new(served), active_policy))
}

/// Tolerances as a server takes them.
fn by_name(tolerances: &[NamespaceTolerance]) -> Vec<(Capped, Tolerance)> {
    tolerances.iter().map(|(of, bound)| (of.clone(), bound.in_scope(Scope::Server))).collect()
}

/// How reactors are started, but for what sets knobs.
pub(super) fn options(operation: &Operation) -> RuntimeOptions {
    let Reactors { cores, topology } = operation.reactors.clone();
    let idle = if operation.reactors.is_test_mode() { Idle::Yield } else { Idle::Spin };
    let idle_timeout = operation.sleep_after.idle_timeout();
    RuntimeOptions { topology, idle_timeout, ..RuntimeOptions::new(cores, idle) }
}

impl Running for MeteredServer {
    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.server.local_addrs()
    }

    fn tls_addrs(&self) -> Vec<SocketAddr> {
        self.server.tls_addrs()
    }

    fn concatenation_addrs(&self) -> Vec<SocketAddr> {
        self.server.concatenation_addrs()
    }

    fn set_listeners(&self, config: &ServerConfig) -> Result<Draining, ServerError> {
        self.server.set_listeners(config)
    }

    fn set_subsystem_listen(&self, nqn: &str, listen: &[SocketAddr]) -> Result<Draining, ServerError> {
        self.server.set_subsystem_listen(nqn, listen)
    }

    fn set_paths(&self, rules: &[PathRule]) -> Draining {
        self.server.set_paths(rules)
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

    fn set_authentication(&self, authentication: AuthenticationConfig) {
        self.server.set_authentication(authentication);
    }

    fn set_discovery(&self, advertised: Advertised, referrals: Vec<(String, u16)>) {
        self.server.set_discovery(advertised, referrals);
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

    fn access(&self, nqn: &str, nsid: u32) -> Result<Option<Access>, ServerError> {
        self.server.access(nqn, nsid)
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

    fn housekeeping(&self) -> Option<&Housekeeping> {
        Some(self.server.housekeeping())
    }

    fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        self.server.set_policy(policy)
    }

    fn set_goals(&self, goals: Goals) {
        let mut clamped = self.goals.lock().unwrap_or_else(PoisonError::into_inner);
        clamped.goals = goals;
        self.server.set_goals(clamped.in_force());
    }

    fn set_limit(&self, limit_uw: u64) {
        let mut clamped = self.goals.lock().unwrap_or_else(PoisonError::into_inner);
        clamped.limit_uw = Some(limit_uw);
        self.server.set_goals(clamped.in_force());
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

    fn published_window(&self, domain: BudgetDomain) -> Option<(u64, u64, u64)> {
        self.power.as_ref()?.published_window(domain)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_budget_in_force_needs_a_sensor() {
        let mut operation = crate::serve::reload::tests::operation("static");
        operation.sensor = crate::config::SensorChoice::None;
        operation.goals.budget_uw = Some(1);
        let meter = open_meter(&operation).expect("a state file can have the budget off");
        assert!(check_meter(meter.as_ref(), &operation).is_err());
        operation.goals.budget_uw = None;
        assert!(check_meter(meter.as_ref(), &operation).is_ok());
    }

    #[test]
    fn the_limit_is_above_no_budget_and_changes_nothing_else() {
        let minimums = vec![(5, 300)];
        let in_force = |budget_uw, limit_uw| {
            let goals = Goals { budget_uw, minimums: minimums.clone(), ..Goals::default() };
            ClampedGoals { goals, limit_uw }.in_force()
        };
        for (budget_uw, limit_uw, expected) in [
            (Some(5), Some(3), Some(3)),
            (Some(3), Some(5), Some(3)),
            (None, Some(3), Some(3)),
            (Some(5), None, Some(5)),
            (None, None, None),
        ] {
            let goals = in_force(budget_uw, limit_uw);
            assert_eq!((goals.budget_uw, &goals.minimums), (expected, &minimums));
        }
    }
}
