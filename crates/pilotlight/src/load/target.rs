//! The target of `pilotlight load`: its address, how to connect to it, and the subsystem where none is named.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use pilotlight_auth::secrets_file::{self, HostSecrets};
use pilotlight_auth::{Concatenation, Config, Policy, Secret, SequenceNumbers, kernel_random};
use pilotlight_host::{ConnectOptions, Key, TlsOptions, discover};
use pilotlight_nvme::pdu::Digests;

use super::LoadArgs;
use crate::address::{self, AddressError, INTERFACE_HELP};

impl LoadArgs {
    pub(super) fn connect_options(&self) -> anyhow::Result<ConnectOptions> {
        let mut options = ConnectOptions::new(resolve(&self.target)?, "");
        if let Some(hostnqn) = &self.hostnqn {
            options.hostnqn.clone_from(hostnqn);
        }
        if let Some(file) = &self.secrets_file {
            let secrets = secrets_file::load(file, None).context("--secrets-file")?.remove(&options.hostnqn);
            let HostSecrets { host, controller, tls } = secrets.unwrap_or_default();
            let missing = |kind: &str| {
                let (file, hostnqn) = (file.display(), &options.hostnqn);
                format!("--secrets-file {file}: no {kind} for {hostnqn}; add one, or name the host with --hostnqn")
            };
            if self.tls {
                let key = tls.with_context(|| missing("tls_key"))?;
                options.tls = Some(TlsOptions::new(Key::Configured(key)));
            }
            if !self.tls || host.is_some() || controller.is_some() {
                let host = host.with_context(|| missing("dhchap_key"))?;
                let mut config = authentication(host, controller, &options.hostnqn)?;
                if self.concat {
                    config.policy.concatenation = Concatenation::New;
                }
                options.authentication = Some(Arc::new(config));
            }
        }
        options.handshake.digests = Digests { header: self.hdr_digest, data: self.data_digest };
        options.handshake.max_r2t = self.max_r2t.max(1);
        options.disable_sq_flow = !self.sq_flow;
        options.kato_ms = u32::try_from(self.keep_alive_tmo / 1_000_000).context("--keep-alive-tmo is too long")?;
        Ok(options)
    }
}

/// The secrets of this host. Without the controller's only the host is authenticated.
fn authentication(host_secret: Secret, controller_secret: Option<Secret>, hostnqn: &str) -> anyhow::Result<Config> {
    let mut start = [0; 4];
    kernel_random(&mut start).map_err(|_| anyhow!("the kernel has no random bytes"))?;
    Ok(Config {
        hostnqn: hostnqn.to_owned(),
        subnqn: String::new(), // that of the connection
        host_secret,
        controller_secret,
        policy: Policy::default(),
        sequence: Arc::new(SequenceNumbers::new(u32::from_le_bytes(start))),
    })
}

fn resolve(target: &str) -> anyhow::Result<SocketAddr> {
    match address::parse(target) {
        Ok(address) => return Ok(address),
        Err(AddressError::Format(_)) => {} // perhaps a name
        Err(error) => bail!("--target: {error}; {INTERFACE_HELP}"),
    }
    let mut addrs = target
        .to_socket_addrs()
        .with_context(|| format!("--target '{target}' is not ADDR:PORT, such as 127.0.0.1:4420"))?;
    addrs.next().ok_or_else(|| anyhow!("--target '{target}' has no address"))
}

/// The default subsystem. The outer error is the network's, the inner the user's.
pub(super) fn only_subsystem(options: &ConnectOptions) -> anyhow::Result<anyhow::Result<String>> {
    let entries = discover(options).with_context(|| format!("asking {} for its subsystems", options.addr))?;
    let mut nqns: Vec<String> =
        entries.into_iter().filter(|e| e.trtype == 3 && e.subtype == 2).map(|e| e.subnqn).collect();
    nqns.sort_unstable();
    nqns.dedup();
    Ok(match <[String; 1]>::try_from(nqns) {
        Ok([nqn]) => Ok(nqn),
        Err(nqns) => several(&nqns),
    })
}

fn several(nqns: &[String]) -> anyhow::Result<String> {
    if nqns.is_empty() {
        bail!("the target shows no subsystem to this host; name one with --nqn, or the host with --hostnqn");
    }
    bail!("the target has several subsystems; choose one with --nqn: {}", nqns.join(", "))
}
