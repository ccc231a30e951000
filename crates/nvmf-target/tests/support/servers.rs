//! Servers on the loopback interface, for tests and benchmarks.
#![allow(dead_code)] // each user needs a part

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::{BackendSpec, MemoryBudget, open};

/// Timeout of [`eventually`].
const TIMEOUT: Duration = Duration::from_secs(60);

/// A namespace with blocks of 4 KiB for all hosts.
pub(crate) fn namespace(nsid: u32, backend: BackendSpec) -> NamespaceConfig {
    NamespaceConfig::new(nsid, backend, 4096)
}

/// A subsystem for all hosts.
pub(crate) fn subsystem(nqn: &str, namespaces: Vec<NamespaceConfig>) -> SubsystemConfig {
    SubsystemConfig::new(nqn, namespaces)
}

/// A server on a free port.
pub(crate) fn config(subsystems: Vec<SubsystemConfig>) -> ServerConfig {
    ServerConfig { listeners: vec![(Ipv4Addr::LOCALHOST, 0).into()], subsystems, ..ServerConfig::default() }
}

/// Starts a server on `reactors` reactors that share the CPUs.
pub(crate) fn start(config: ServerConfig, reactors: usize) -> Server {
    start_on(config, RuntimeOptions::new(vec![None; reactors], Idle::Yield))
}

/// Starts a server on these reactors, without a limit of memory.
pub(crate) fn start_on(config: ServerConfig, options: RuntimeOptions) -> Server {
    let budget = Arc::new(MemoryBudget::unlimited());
    let opener = move |ns: &NamespaceConfig| open(&ns.backend, ns.block_size, &budget);
    Server::start_with(config, options, Box::new(opener)).expect("the server starts")
}

/// Waits until `holds`.
pub(crate) fn eventually(event: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "timed out after {TIMEOUT:?}: {event}");
        std::thread::sleep(Duration::from_micros(50));
    }
}
