//! The seam between this program and the target: what `serve` asks of a running server.

use std::net::SocketAddr;
use std::time::Duration;

use pilotlight_target::config::{NamespaceConfig, ServerConfig};

/// A server that runs.
pub(super) trait Running {
    /// Addresses it listens on, with the ports that port 0 became.
    fn local_addrs(&self) -> Vec<SocketAddr>;
    /// Adds a namespace to the subsystem `nqn` and tells its hosts.
    fn add_namespace(&self, nqn: &str, namespace: &NamespaceConfig) -> Result<(), String>;
    /// Removes a namespace from the subsystem `nqn` and tells its hosts.
    fn remove_namespace(&self, nqn: &str, nsid: u32) -> Result<(), String>;
    /// Gives a namespace `blocks` blocks, or for `None` as many as its medium now has, and tells its hosts.
    fn resize_namespace(&self, nqn: &str, nsid: u32, blocks: Option<u64>) -> Result<(), String>;
    /// Stops accepting, finishes what is in flight within a time, flushes.
    fn stop(self: Box<Self>, within: Duration) -> Result<(), StopFailure>;
}

/// How a stop can fall short; what exactly, in words.
#[derive(Debug)]
pub(super) enum StopFailure {
    /// Requests were unfinished when the time was over.
    Undrained(String),
    /// A flush failed.
    Unflushed(String),
}

/// Starts the server that `config` describes.
pub(super) fn start(config: &ServerConfig) -> anyhow::Result<Box<dyn Running>> {
    let _ = config;
    anyhow::bail!("this build has no target to start")
}
