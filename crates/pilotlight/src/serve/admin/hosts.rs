//! Allowed hosts, associations, and their end, at run time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pilotlight_nvmf_target::{AssociationStats, Draining, Ended};

use super::Admin;
use super::namespaces::{refusal, subsystem};
use crate::admin::refusal::Refusal;
use crate::admin::request::{DisconnectRequest, HostAdd, HostRemove};
use crate::config::nqn;
use crate::connections::{ConnectionReport, Connections, EndedReport};
use crate::host::{HostReport, HostsReport, SubsystemHosts};
use crate::serve::state::{HostsOverride, State, allowed_hosts};

/// How long requests of hosts that are disconnected are waited for. Shorter than the 5 s that `status --healthy` waits for the thread behind
/// the control socket.
const DRAIN: Duration = Duration::from_secs(3);

/// Waits for associations to end, at most [`DRAIN`]. Not to be called with the state locked, as
/// metrics and the status wait for that.
pub(super) fn drained<'a>(all: impl IntoIterator<Item = &'a Draining>) -> impl Iterator<Item = Ended> {
    let until = Instant::now() + DRAIN;
    all.into_iter().map(move |draining| draining.wait(until))
}

impl Admin {
    /// The allowed hosts of a subsystem, or of all.
    pub(super) fn list_hosts(&self, nqn: Option<&str>) -> Result<HostsReport, Refusal> {
        let state = self.state();
        let subsystems = match nqn {
            Some(nqn) => vec![self.hosts_of(&state, &subsystem(&state, Some(nqn))?)],
            None => state.config.subsystems.iter().map(|one| self.hosts_of(&state, &one.nqn)).collect(),
        };
        Ok(HostsReport { subsystems, ended: None })
    }

    /// Adds an allowed host.
    pub(super) fn add_host(&self, HostAdd { nqn, host, only }: &HostAdd) -> Result<HostsReport, Refusal> {
        self.change_hosts(nqn.as_deref(), |nqn, hosts| with(nqn, hosts, host, *only))
    }

    /// Removes an allowed host; its associations end.
    pub(super) fn remove_host(&self, HostRemove { nqn, host, allow_any }: &HostRemove) -> Result<HostsReport, Refusal> {
        self.change_hosts(nqn.as_deref(), |nqn, hosts| without(nqn, hosts, host, *allow_any))
    }

    /// Changes the list of allowed hosts, and waits for requests of disconnected hosts with the state unlocked.
    fn change_hosts(
        &self,
        nqn: Option<&str>,
        change: impl FnOnce(&str, Vec<String>) -> Result<Vec<String>, Refusal>,
    ) -> Result<HostsReport, Refusal> {
        let mut state = self.state();
        let nqn = subsystem(&state, nqn)?;
        let allowed = allowed_hosts(&state.config, &nqn).cloned().unwrap_or_default();
        let draining = self.set_allowed_hosts(&mut state, &nqn, &change(&nqn, allowed)?)?;
        let subsystems = vec![self.hosts_of(&state, &nqn)];
        drop(state);
        let ended = drained([&draining]).next().map(|ended| ended_report(&ended));
        Ok(HostsReport { subsystems, ended })
    }

    /// An empty list allows any host.
    fn set_allowed_hosts(&self, state: &mut State, nqn: &str, hosts: &[String]) -> Result<Draining, Refusal> {
        let draining = self.server.set_allowed_hosts(nqn, hosts).map_err(|error| refusal(&error))?;
        let found = state.config.subsystems.iter_mut().find(|subsystem| subsystem.nqn == nqn);
        found.into_iter().for_each(|subsystem| hosts.clone_into(&mut subsystem.allowed_hosts));
        let configured = allowed_hosts(&state.read, nqn).cloned().unwrap_or_default();
        state.host_overrides.retain(|entry| entry.nqn != nqn);
        state.host_overrides.push(HostsOverride { nqn: nqn.to_owned(), configured });
        Ok(draining)
    }

    fn hosts_of(&self, state: &State, nqn: &str) -> SubsystemHosts {
        let associations = self.server.associations();
        let number = |host: &str| {
            associations.iter().filter(|one| one.nqn.as_deref() == Some(nqn) && one.hostnqn == host).count()
        };
        let allowed = allowed_hosts(&state.config, nqn);
        let hosts = allowed.into_iter().flatten();
        SubsystemHosts {
            nqn: nqn.to_owned(),
            any: allowed.is_some_and(Vec::is_empty),
            hosts: hosts.map(|host| HostReport { host: host.clone(), associations: number(host) }).collect(),
            configured: allowed_hosts(&state.read, nqn) == allowed,
        }
    }

    /// Every association.
    pub(super) fn connections(&self) -> Connections {
        Connections { connections: self.server.associations().iter().map(connection).collect() }
    }

    /// Ends the associations of a host, which may reconnect.
    pub(super) fn disconnect(&self, request: &DisconnectRequest) -> Result<EndedReport, Refusal> {
        let DisconnectRequest { host, nqn } = request;
        if !host.is_empty() {
            nqn::check(host).map_err(|what| Refusal::for_field("host", what).help(nqn::FORMS))?;
        }
        let draining = self.server.disconnect(host, nqn.as_deref()).map_err(|error| refusal(&error))?;
        Ok(ended_report(&draining.wait(Instant::now() + DRAIN)))
    }
}

fn with(nqn: &str, mut hosts: Vec<String>, host: &str, only: bool) -> Result<Vec<String>, Refusal> {
    nqn::check(host).map_err(|what| Refusal::for_field("host", what).help(nqn::FORMS))?;
    if only {
        return Ok(vec![host.to_owned()]);
    }
    if hosts.is_empty() {
        let what = format!("any host may connect to {nqn} already");
        return Err(Refusal::for_field("host", what)
            .help("--only (\"only\": true) allows this host only, and disconnects all others"));
    }
    if !hosts.iter().any(|known| known == host) {
        hosts.push(host.to_owned());
    }
    Ok(hosts)
}

fn without(nqn: &str, mut hosts: Vec<String>, host: &str, allow_any: bool) -> Result<Vec<String>, Refusal> {
    if !hosts.iter().any(|known| known == host) {
        let there_are = match hosts.as_slice() {
            [] => "any host may connect to it: `pilotlight host add HOST --only` starts a list".to_owned(),
            hosts => format!("hosts that may: {}", hosts.join(", ")),
        };
        return Err(Refusal::for_field("host", format!("{host} is not on the list of {nqn}")).help(there_are));
    }
    hosts.retain(|known| known != host);
    if hosts.is_empty() && !allow_any {
        let what = format!("{host} is the last host on the list of {nqn}: without it any host could connect");
        return Err(Refusal::for_field("host", what)
            .help("add another host first, or allow any host (--allow-any, \"allow_any\": true)"));
    }
    Ok(hosts)
}

pub(super) fn ended_report(ended: &Ended) -> EndedReport {
    EndedReport { ended: ended.associations.iter().map(connection).collect(), undrained: ended.undrained }
}

fn connection(association: &AssociationStats) -> ConnectionReport {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    ConnectionReport {
        nqn: association.nqn.clone(),
        host: association.hostnqn.clone(),
        hostid: uuid::Uuid::from_bytes(association.hostid).to_string(),
        address: association.peer.to_string(),
        cntlid: association.cntlid,
        io_queues: association.io_queues,
        io_threads: association.io_threads.clone(),
        age_ns: association.age_ns,
        since_unix_s: now_s.saturating_sub(association.age_ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, OnceLock, Weak};

    use super::*;
    use crate::config::tests::machine;
    use crate::config::{Loaded, ServeArgs, load_text};
    use crate::serve::admin::Started;
    use crate::serve::budget::GoalOverrides;
    use crate::serve::reload::tests::Recorder;

    const A: &str = "nqn.2024-05.com.example:a";
    const B: &str = "nqn.2024-05.com.example:b";

    #[test]
    fn an_empty_list_needs_an_explicit_option() {
        let list = |hosts: &[&str]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(with("s", list(&[A]), B, false), Ok(list(&[A, B])));
        assert_eq!(with("s", list(&[A]), A, false), Ok(list(&[A])));
        assert!(with("s", list(&[]), A, false).unwrap_err().help[0].contains("--only"));
        assert_eq!(with("s", list(&[]), A, true), Ok(list(&[A])));
        assert_eq!(with("s", list(&[B]), "x", false).unwrap_err().field.as_deref(), Some("host"));
        assert_eq!(without("s", list(&[A, B]), A, false), Ok(list(&[B])));
        assert!(without("s", list(&[A]), A, false).unwrap_err().help[0].contains("--allow-any"));
        assert_eq!(without("s", list(&[A]), A, true), Ok(list(&[])));
        assert!(without("s", list(&[A]), B, true).unwrap_err().help[0].contains(A));
    }

    /// Beside requests of a disconnected host that a slow backend keeps, the status, metrics and changes are answered.
    #[test]
    fn waiting_for_a_disconnected_host_does_not_lock_the_state() {
        let waits = Arc::new(OnceLock::<Weak<Admin>>::new());
        let (of_server, checks) = (Arc::clone(&waits), Arc::<AtomicUsize>::default());
        let checked = Arc::clone(&checks);
        let undrained = move || {
            checked.fetch_add(1, SeqCst);
            let admin = of_server.get().and_then(Weak::upgrade).unwrap();
            assert!(admin.state.try_lock().is_ok(), "the state is locked");
            0
        };
        let server = Recorder::with_undrained(undrained);
        let loaded = |hosts: &[&str]| read(&format!("allowed_hosts = {hosts:?}"));
        let first = loaded(&[A, B]);
        let (operation, active_policy) = (first.operation.clone(), first.operation.policy.clone());
        let started = Started { operation, overrides: GoalOverrides::default(), active_policy };
        let args = ServeArgs::default();
        let admin = Arc::new(Admin::new(Box::new(server), &first, started, &machine(), &args).unwrap());
        waits.set(Arc::downgrade(&admin)).unwrap();
        let remove = HostRemove { nqn: None, host: B.to_owned(), allow_any: false };
        assert!(admin.remove_host(&remove).unwrap().ended.is_some());
        assert_eq!(checks.load(SeqCst), 1);
        admin.reload(&loaded(&[B]));
        assert_eq!(checks.load(SeqCst), 3, "once for each of two steps");
    }

    fn read(rest: &str) -> Loaded {
        let text = format!("[admin]\nsocket = \"none\"\nstate = \"none\"\n[[subsystem]]\nnqn = \"{A}\"\n{rest}\n");
        load_text(&ServeArgs::default(), Path::new("/none/server.toml"), text, &machine()).unwrap()
    }
}
