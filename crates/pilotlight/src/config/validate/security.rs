//! Checks of `[security]`: secrets of hosts, and what exchanges with them allow.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::bail;
use pilotlight_auth::tls::ConfiguredPsk;
use pilotlight_auth::{Concatenation, Group, HashFunction, Policy, secrets_file};
use pilotlight_nvmf_target::hosts::authentication::{AuthenticationConfig, HostSecrets};

use super::Checker;
use crate::config::keys::{Draft, Security};
use crate::config::problem::{Origin, Problem, Text};
use crate::privileges::Account;
use crate::privileges::files::open_text_with;

/// Prefix of the name of a credential of systemd, in place of a path.
const CREDENTIAL: &str = "credential:";

impl Checker<'_> {
    /// Authentication of hosts.
    pub(super) fn authentication(&mut self, draft: &Security) -> AuthenticationConfig {
        let default = Policy::default();
        let hashes = self.listed(&draft.hashes, HashFunction::from_name, "sha256, sha384 or sha512");
        let groups = self.listed(&draft.dh_groups, Group::from_name, "null, ffdhe2048, 3072, 4096, 6144 or 8192");
        let policy = Policy {
            hashes: if hashes.is_empty() { default.hashes } else { hashes },
            groups: if groups.is_empty() { default.groups } else { groups },
            require_bidirectional: draft.mutual,
            ..default
        };
        let Secrets { hosts, tls_keys } =
            draft.secrets_file.as_ref().map(|file| self.secrets(file)).unwrap_or_default();
        if let Some(file) = draft.secrets_file.as_ref().filter(|_| draft.mutual)
            && let Some((nqn, _)) = hosts.iter().find(|(_, secrets)| secrets.controller.is_none())
        {
            let what = format!("host {nqn} has no dhchap_ctrl_key, and `mutual` requires one");
            self.problem(Problem::error(&file.at, what).help("add one to the file of secrets, or omit `mutual`"));
        }
        AuthenticationConfig {
            hosts,
            policy,
            for_discovery: draft.authenticate_discovery,
            tls_keys,
            allows_plain: draft.allow_plain,
            accepts_old_libnvme: draft.accept_old_libnvme,
        }
    }

    /// Keys without a listener for them, and a listener without keys.
    pub(super) fn note_tls(&mut self, draft: &Draft, authentication: &AuthenticationConfig) {
        let has_keys = !authentication.tls_keys.is_empty();
        if let Some(listener) = draft.server.tls_listen.first().filter(|_| !has_keys) {
            let what = "no host can connect here: `secrets_file` in [security] has no tls_key";
            let help = "add a line HOSTNQN tls_key NVMeTLSkey-1:...: for each host (nvme gen-tls-key makes a key)";
            self.problem(Problem::warning(&listener.at, what).help(help));
        }
        if let Some(listener) = draft.server.concat_listen.first().filter(|_| authentication.hosts.is_empty()) {
            let what = "no host can connect here: `secrets_file` in [security] has no dhchap_key";
            let help = "add a line HOSTNQN dhchap_key DHHC-1:...: for each host (nvme gen-dhchap-key makes a key)";
            self.problem(Problem::warning(&listener.at, what).help(help));
        }
        let (policy, concatenation) = (&authentication.policy, Concatenation::New);
        let is_usable = policy.hashes.iter().any(|&hash| concatenation.takes_hash(hash))
            && policy.groups.iter().any(|&group| concatenation.takes_group(group));
        if let Some(listener) = draft.server.concat_listen.first().filter(|_| !is_usable) {
            let what = "no host can connect here: `hashes` and `dh_groups` in [security] generate no key of TLS";
            let help = "allow sha256 or sha384, and a group other than null";
            self.problem(Problem::warning(&listener.at, what).help(help));
        }
        if let Some(file) = draft.security.secrets_file.as_ref().filter(|_| has_keys)
            && draft.server.tls_listen.is_empty()
            && !draft.security.allow_plain
        {
            let what = "a host with a tls_key cannot connect: the server does not listen with TLS";
            let help = "set `tls_listen` in [server], or `allow_plain` in [security]";
            self.problem(Problem::warning(&file.at, what).help(help));
        }
    }

    /// Subsystems that a host can connect to without a secret: under a name that has none.
    pub(super) fn note_open_subsystems(&mut self, draft: &Draft) {
        let Some(file) = &draft.security.secrets_file else { return };
        for subsystem in draft.subsystems.iter().filter(|subsystem| subsystem.allowed_hosts.is_empty()) {
            let at = if subsystem.at == Origin::Default { &file.at } else { &subsystem.at };
            let what = "a host without a secret can connect too: it needs only a name that is not in `secrets_file`";
            let help = "list the hosts in `allowed_hosts` of [[subsystem]], or --allow-host";
            self.problem(Problem::warning(at, what).help(help));
        }
    }

    /// The user as which the server is to run.
    pub(super) fn account(&mut self, draft: &Security) -> Option<Account> {
        let group = draft.group.as_ref();
        let Some(user) = &draft.user else {
            let group = group?;
            self.problem(Problem::warning(&group.at, "has no effect without `user`"));
            return None;
        };
        let found = Account::find(&user.value, group.map(|group| group.value.as_str()));
        found.map_err(|wrong| self.problem(Problem::error(&user.at, wrong))).ok()
    }

    fn secrets(&mut self, file: &Text) -> Secrets {
        let credentials = credentials();
        let Some(path) = secrets_path(&file.value, self.base, credentials.as_deref()) else {
            let what = "systemd has passed no credentials to this process";
            let help = "add LoadCredential= to the unit, or give the path of a file";
            self.problem(Problem::error(&file.at, what).help(help));
            return Default::default();
        };
        match load(&path, credentials.as_deref()) {
            Ok(hosts) => hosts,
            Err(error) => {
                self.problem(Problem::error(&file.at, error));
                Default::default()
            }
        }
    }

    /// The values of a list of names.
    fn listed<T: PartialEq>(&mut self, names: &[Text], value: fn(&str) -> Option<T>, expected: &str) -> Vec<T> {
        let mut values = Vec::new();
        for name in names {
            match value(&name.value) {
                Some(value) if values.contains(&value) => {
                    self.problem(Problem::error(&name.at, format!("{} is a duplicate", name.value)));
                }
                Some(value) => values.push(value),
                None => self.problem(Problem::error(&name.at, format!("expected {expected}"))),
            }
        }
        values
    }
}

/// The folder of systemd's credentials.
pub(in crate::config) fn credentials() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from)
}

/// The path of a file of secrets; `None` for a credential without a folder of credentials.
pub(in crate::config) fn secrets_path(written: &str, base: &Path, credentials: Option<&Path>) -> Option<PathBuf> {
    match written.strip_prefix(CREDENTIAL) {
        None => Some(base.join(written)),
        Some(name) => credentials.map(|directory| directory.join(name)),
    }
}

/// The secrets of a file, by the NQN of the host.
#[derive(Default)]
struct Secrets {
    hosts: BTreeMap<String, HostSecrets>,
    tls_keys: BTreeMap<String, ConfiguredPsk>,
}

/// Opens a file of secrets, as `secrets_file` is.
pub(super) fn open_secret(path: &Path) -> io::Result<OwnedFd> {
    open_text_with(path, || secrets_file::open_file(path))
}

fn load(path: &Path, credentials: Option<&Path>) -> anyhow::Result<Secrets> {
    let loaded = secrets_file::load_by(path, credentials, open_secret)?;
    let mut secrets = Secrets::default();
    for (nqn, secrets_file::HostSecrets { host, controller, tls }) in loaded {
        match (host, controller) {
            (Some(host), controller) => {
                secrets.hosts.insert(nqn.clone(), HostSecrets { host, controller });
            }
            (None, Some(_)) => {
                let why = "has a dhchap_ctrl_key and no dhchap_key: add one";
                bail!("{}: host {nqn} {why}", path.display());
            }
            (None, None) => {}
        }
        secrets.tls_keys.extend(tls.map(|key| (nqn, key)));
    }
    Ok(secrets)
}
