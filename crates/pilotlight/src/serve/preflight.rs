//! Checks of `--check` beyond the values of the configuration: resources of this machine that the start needs.
//!
//! Each is acquired as at the start, and released at once. Nothing is locked, listened on or changed, so that the check can run
//! while a server runs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use pilotlight_nvmf_target::config::{NamespaceConfig, ServerConfig};
use pilotlight_nvmf_target::server::listener::bind;
use pilotlight_plant::{Capabilities, CoreId, CoreSample, CoreState, Goals, Start, Topology};
use pilotlight_reactor::runtime::capabilities;
use pilotlight_storage::{Backend, MemoryBudget, open};
use rustix::io::Errno;

use super::budget::{self, Configured, NO_SENSOR, NO_SENSOR_HELP};
use super::holder;
use super::knobs::{self, KnobAccess};
use super::power;
use super::reservations::Reservations;
use super::server::options;
use crate::admin::socket::{BindError, ControlSocket};
use crate::config::{AdminSocket, Operation, Page, PageAddress, Problem};
use crate::page::{token, unix_error};
use crate::policies::{BudgetDomain, PolicyChoice};

/// Problems of this machine with a configuration.
pub(super) fn find_problems(config: &ServerConfig, operation: &Operation) -> Vec<Problem> {
    let mut problems: Vec<Problem> = config
        .all_listeners()
        .into_iter()
        .filter_map(|listener| address(listener, config.is_v6_only(listener)))
        .collect();
    let (options, reach) = (options(operation), KnobAccess::from_operation(operation));
    let sources = match power::open(&operation.sensor, &reach.roots) {
        Ok(Some(meter)) => meter.sources(),
        Ok(None) => {
            if Configured::from_operation(operation).has_budget() {
                problems.push(Problem::of_machine(NO_SENSOR).help(NO_SENSOR_HELP));
            }
            Vec::new()
        }
        Err(why) => {
            problems.push(Problem::of_machine(why).help("choose another sensor: --sensor, or `sensor` in [server]"));
            Vec::new()
        }
    };
    let knobs = knobs::find(config, &options.cores, &reach);
    let capabilities = Capabilities { knobs, sources, ..capabilities(&options) };
    let domain = budget::domain(operation.domain, &capabilities.sources);
    let choice = operation.policy.with_domain(domain, operation.domain.is_some());
    let check = |choice: &PolicyChoice| policy(choice, &options.topology, &capabilities, config.io_threads);
    problems.extend(check(&choice));
    if !capabilities.sources.is_empty() {
        problems.extend(no_holder(operation, domain, check));
    }
    problems.extend(memory(config));
    problems.extend(operation.admin_socket.as_ref().and_then(control_socket));
    let reservations = operation.reservations.as_deref().map(Reservations::check);
    problems.extend(reservations.and_then(Result::err).map(|error| Problem::of_machine(format!("{error:#}"))));
    problems.extend(operation.page.iter().flat_map(page));
    problems
}

/// Whether the page can be served.
fn page(page: &Page) -> Vec<Problem> {
    let place = match &page.listen {
        PageAddress::Tcp(listen) => address(*listen, false),
        PageAddress::Unix(path) => ControlSocket::check(path).err().map(|error| {
            let problem = Problem::of_machine(format!("{:#}", unix_error(&error, path)));
            if matches!(error, BindError::Live { .. }) { problem.into_warning() } else { problem }
        }),
    };
    let token = token::check(&page.token).err().map(|error| Problem::of_machine(format!("{error:#}")));
    place.into_iter().chain(token).collect()
}

/// Whether the control socket can be made.
fn control_socket(wanted: &AdminSocket) -> Option<Problem> {
    let error = ControlSocket::check(&wanted.path).err()?;
    let problem = Problem::of_machine(&error);
    Some(match error {
        BindError::Live { .. } => {
            problem.into_warning().help("expected if this is the running server's; otherwise choose another path")
        }
        BindError::System { .. } if !wanted.is_explicit => {
            problem.into_warning().help("the server starts without a control socket")
        }
        _ => problem,
    })
}

/// Whether an address can be listened on.
fn address(address: SocketAddr, is_v6_only: bool) -> Option<Problem> {
    let error = bind(address, is_v6_only).err()?;
    let cannot = |why: &str| Problem::of_machine(format!("cannot listen on {address}: {why}"));
    Some(match error {
        Errno::ADDRINUSE => cannot("the address is in use").into_warning().help(
            "expected if the running server listens there; otherwise stop the program that does, or change the port",
        ),
        Errno::ADDRNOTAVAIL => cannot("the address is not one of this machine")
            .help("`ip address` lists its addresses; 0.0.0.0 means all of them"),
        Errno::ACCESS => {
            cannot("the port needs a privilege").help("use a port from 1024 on, or grant CAP_NET_BIND_SERVICE")
        }
        other => cannot(&io::Error::from(other).to_string()),
    })
}

/// Whether the policy would take charge of these reactors.
fn policy(choice: &PolicyChoice, topology: &Topology, capabilities: &Capabilities, io_threads: u32) -> Option<Problem> {
    let mut policy = match choice.build() {
        Ok(policy) => policy,
        Err(unfit) => return Some(Problem::of_machine(unfit.what).help(unfit.help)),
    };
    let cores: Vec<CoreSample> = topology.cores().map(|_| CoreSample::new(CoreState::Awake)).collect();
    let homes: Vec<CoreId> = (0..io_threads as usize).map(|id| CoreId((id % cores.len()) as u16)).collect();
    let start = Start { now_ns: 0, topology, capabilities, cores: &cores, homes: &homes, goals: &Goals::default() };
    let unsupported = policy.start(&start, &mut Vec::new()).err()?;
    let what = format!("policy {} needs {}, which is not available here", unsupported.policy, unsupported.feature);
    Some(Problem::of_machine(what).help(unsupported.remedy))
}

/// Whether no policy can hold the budget by wrapping the chosen one, which does not use it: a warning only.
fn no_holder(
    operation: &Operation,
    domain: BudgetDomain,
    check: impl Fn(&PolicyChoice) -> Option<Problem>,
) -> Option<Problem> {
    let mut operation = operation.clone();
    if operation.schedule.is_some() {
        operation.goals.budget_uw.get_or_insert(0);
    }
    let candidates = holder::candidates(&operation, domain);
    let (_, around) = candidates.split_last()?;
    let refused: Vec<Problem> = around.iter().map_while(check).collect();
    if refused.is_empty() || refused.len() < around.len() {
        return None;
    }
    let (why, help): (Vec<_>, Vec<_>) = refused.into_iter().map(|problem| (problem.what, problem.help)).unzip();
    let (name, why) = (&operation.policy.name, holder::joined(why));
    let what = format!("nothing holds the budget: policy {name} does not use it, and {why}");
    Some(Problem { help: help.concat(), ..Problem::of_machine(what).into_warning() })
}

/// Namespaces without a file, opened all together and closed again: they take address space and no memory, because nothing
/// is preallocated here.
fn memory(config: &ServerConfig) -> Vec<Problem> {
    let budget = Arc::new(MemoryBudget::new(config.limits.max_memory));
    let mut opened: Vec<Arc<dyn Backend>> = Vec::new();
    let mut problems = Vec::new();
    let all = config.subsystems.iter().flat_map(|subsystem| subsystem.namespaces.iter().map(move |ns| (subsystem, ns)));
    for (subsystem, namespace) in all.filter(|(_, namespace)| has_no_file(namespace)) {
        match open(&namespace.backend.clone().without_preallocation(), namespace.block_size, &budget) {
            Ok(backend) => opened.push(backend),
            Err(error) => {
                let what = format!("namespace {} of {} cannot be opened: {error}", namespace.nsid, subsystem.nqn);
                problems.push(Problem::of_machine(what).help("make the namespaces in memory smaller"));
            }
        }
    }
    problems
}

fn has_no_file(namespace: &NamespaceConfig) -> bool {
    namespace.backend.path().is_none()
}

#[cfg(test)]
mod tests {
    use pilotlight_nvmf_target::config::{Limits, SubsystemConfig};
    use pilotlight_policy::{Needs, POLICIES};
    use pilotlight_reactor::{Idle, RuntimeOptions};

    use super::*;
    use crate::config::Reactors;
    use crate::serve::reload::tests::operation;

    fn problem(name: &str) -> Option<Problem> {
        let Reactors { cores, topology } = Reactors::for_tests(2);
        let options = RuntimeOptions { topology, ..RuntimeOptions::new(cores, Idle::Yield) };
        let choice = PolicyChoice { name: name.to_owned(), parameters: Vec::new() };
        policy(&choice, &options.topology, &capabilities(&options), 2)
    }

    #[test]
    fn an_unsupported_policy_is_refused() {
        for entry in POLICIES {
            let problem = problem(entry.name);
            let is_error = problem.as_ref().is_some_and(Problem::is_error);
            assert_eq!(is_error, entry.needs != Needs::Nothing, "{}: {problem:?}", entry.name);
        }
        let problem = problem("governor").unwrap();
        assert!(problem.what.contains("policy governor needs") && !problem.help.is_empty(), "{problem:?}");
    }

    #[test]
    fn a_budget_that_no_policy_can_hold_is_reported() {
        let mut operation = operation("static");
        let refused = |names: &'static [&'static str]| {
            let why = |choice: &PolicyChoice| {
                let name = &choice.name;
                Problem::of_machine(format!("{name} needs a test")).help(format!("help for {name}"))
            };
            move |choice: &PolicyChoice| names.contains(&&*choice.name).then(|| why(choice))
        };
        let none = refused(&["rapl-only", "cpu-bandwidth", "pass"]);
        assert!(no_holder(&operation, BudgetDomain::Server, none).is_none(), "there is no budget");
        operation.goals.budget_uw = Some(1);
        let problem = no_holder(&operation, BudgetDomain::Server, none).unwrap();
        assert!(
            !problem.is_error() && problem.what.contains("rapl-only needs a test; cpu-bandwidth needs"),
            "{problem:?}"
        );
        assert_eq!(problem.help, ["help for rapl-only", "help for cpu-bandwidth", "help for pass"]);
        assert!(
            no_holder(&operation, BudgetDomain::Server, refused(&["rapl-only", "cpu-bandwidth"])).is_none(),
            "pass"
        );
    }

    #[test]
    fn nothing_is_preallocated_by_the_check() {
        let backend = "mem:4MiB,hugepages".parse().unwrap();
        let namespace = NamespaceConfig::new(1, backend, 4096);
        let subsystem = SubsystemConfig::new("nqn.2024-05.com.example:a", vec![namespace]);
        let limits = Limits { max_memory: 1 << 20, ..Limits::default() };
        let config = ServerConfig { subsystems: vec![subsystem], limits, ..ServerConfig::default() };
        assert!(memory(&config).is_empty());
    }

    #[test]
    fn foreign_addresses_are_refused_and_used_ones_reported() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let problem = address(taken.local_addr().unwrap(), false).unwrap();
        assert!(!problem.is_error() && problem.what.contains("in use"), "{problem:?}");
        let problem = address("192.0.2.7:4420".parse().unwrap(), false).unwrap();
        assert!(problem.is_error() && problem.what.contains("not one of this machine"), "{problem:?}");
        assert!(address("127.0.0.1:0".parse().unwrap(), false).is_none());
    }
}
