//! The seam between this program and the target: what `serve` asks of a running server.
//!
//! A trait, so that what a reload does can be tested without sockets and cores.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use pilotlight_plant::{Policy, Unsupported, View};
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_target::config::{NamespaceConfig, ServerConfig};
use pilotlight_target::{DrainError, Server, ServerError, ServerStats};

use super::knobs;
use crate::config::{Operation, Reactors};

/// A server that runs.
pub(super) trait Running: Sync {
    /// Addresses it listens on, with the ports that port 0 became.
    fn local_addrs(&self) -> Vec<SocketAddr>;
    /// Adds a namespace to the subsystem `nqn` and tells its hosts.
    fn add_namespace(&self, nqn: &str, namespace: &NamespaceConfig) -> Result<(), ServerError>;
    /// Removes a namespace from the subsystem `nqn` and tells its hosts.
    fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), ServerError>;
    /// Gives namespace `from` (NQN and NSID) the number that `namespace` has, in subsystem `to`, without closing its storage,
    /// and tells the hosts of both.
    fn move_namespace(&self, from: (&str, u32), to: &str, namespace: &NamespaceConfig) -> Result<(), ServerError>;
    /// Gives a namespace `blocks` blocks, or for `None` as many as its medium now has, and tells its hosts. Returns how
    /// many it has now.
    fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError>;
    /// Bytes that hold data in a namespace.
    fn allocated_bytes(&self, nqn: &str, nsid: u32) -> Result<u64, ServerError>;
    /// What it has counted.
    fn stats(&self) -> ServerStats;
    /// Lets this policy decide from now on.
    fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported>;
    /// What the policy sees.
    fn view(&self) -> View;
    /// Stops accepting, finishes what is in flight within a time, flushes.
    fn stop(self: Box<Self>, within: Duration) -> Result<(), DrainError>;
}

/// Starts the server that `config` and `operation` describe, its policy in charge.
pub(super) fn start(config: &ServerConfig, operation: &Operation) -> anyhow::Result<Box<dyn Running>> {
    let options = RuntimeOptions { knobs: knobs::open(config, &operation.reactors.cores), ..options(operation) };
    let server = Server::start_on(config.clone(), options).context("the server cannot start")?;
    let policy = operation.policy.build().map_err(|unfit| anyhow!("{}: {}", unfit.what, unfit.help))?;
    server.set_policy(policy).context("the server cannot start")?;
    Ok(Box::new(server))
}

/// How reactors are started, but for what sets knobs.
pub(super) fn options(operation: &Operation) -> RuntimeOptions {
    let Reactors { cores, topology } = operation.reactors.clone();
    let idle = if operation.reactors.is_test_mode() { Idle::Yield } else { Idle::Spin };
    let quiet = operation.sleep_after.quiet();
    RuntimeOptions { topology, quiet, ..RuntimeOptions::new(cores, idle) }
}

impl Running for Server {
    fn local_addrs(&self) -> Vec<SocketAddr> {
        self.local_addrs().to_vec()
    }

    fn add_namespace(&self, nqn: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        self.add_namespace(nqn, namespace)
    }

    fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), ServerError> {
        self.remove_namespace(nqn, nsid)
    }

    fn move_namespace(&self, from: (&str, u32), to: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        self.move_namespace(from, to, namespace)
    }

    fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<u64, ServerError> {
        self.resize_namespace(nqn, nsid, blocks)
    }

    fn allocated_bytes(&self, nqn: &str, nsid: u32) -> Result<u64, ServerError> {
        self.allocated_bytes(nqn, nsid)
    }

    fn stats(&self) -> ServerStats {
        self.stats()
    }

    fn set_policy(&self, policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        self.set_policy(policy)
    }

    fn view(&self) -> View {
        self.policy().map(|(_, view)| view).unwrap_or_default()
    }

    fn stop(self: Box<Self>, within: Duration) -> Result<(), DrainError> {
        (*self).stop(within)
    }
}
