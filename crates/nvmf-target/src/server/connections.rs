//! Status of associations, and disconnecting hosts.
//!
//! # The problem
//! When revoking a host is reported as complete, no write of it may follow. Its queues are on several I/O threads, and it has
//! requests in the backends.
//!
//! # The algorithm
//! One broadcast ends every connection of the associations: afterwards no I/O thread submits anything for them. Then the
//! register is polled until they have been removed, when nothing of them is in flight (`register.rs`). That may take long,
//! and is left to the caller ([`Draining::wait`]), who may have to release locks first.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pilotlight_nvmf_proto::association::Association;
use pilotlight_nvmf_proto::ids::HostKey;
use pilotlight_nvmf_proto::subsystems::directory::Directory;
use pilotlight_nvmf_proto::subsystems::paths::PathRule;
use pilotlight_reactor::{Sender, clock};

use super::{Changes, Server, Shared};
use crate::thread::acks::Acks;
use crate::thread::message::Message;

/// Polling interval of the register.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// An association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociationStats {
    /// The subsystem; `None` for the discovery service.
    pub nqn: Option<String>,
    /// Controller identifier.
    pub cntlid: u16,
    /// Host NQN; may be empty.
    pub hostnqn: String,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// The host's address on the admin queue's connection.
    pub peer: std::net::SocketAddr,
    /// Its age in nanoseconds.
    pub age_ns: u64,
    /// I/O queues.
    pub io_queues: usize,
    /// I/O threads of its I/O queues.
    pub io_threads: Vec<u16>,
}

/// Ended associations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Their last status.
    pub associations: Vec<AssociationStats>,
    /// Number of those with requests in the backends, which may still be executed.
    pub undrained: usize,
}

/// Associations with closed connections: nothing more is submitted for them, but requests may be in the backends.
pub struct Draining {
    associations: Vec<AssociationStats>,
    /// Current number of those with requests in the backends.
    undrained: Box<dyn Fn() -> usize + Send + Sync>,
}

impl Draining {
    /// With a function that counts those with requests in the backends.
    #[must_use]
    pub fn new(associations: Vec<AssociationStats>, undrained: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self { associations, undrained: Box::new(undrained) }
    }

    /// Their last status.
    #[must_use]
    pub fn associations(&self) -> &[AssociationStats] {
        &self.associations
    }

    /// Waits until nothing of them is in flight, at most until `until`. Afterwards nothing of them is written, unless the result
    /// has undrained ones.
    #[must_use]
    pub fn wait(&self, until: Instant) -> Ended {
        loop {
            let undrained = (self.undrained)();
            if undrained == 0 || Instant::now() >= until {
                return Ended { associations: self.associations.clone(), undrained };
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Default for Draining {
    fn default() -> Self {
        Self::new(Vec::new(), || 0)
    }
}

impl AssociationStats {
    fn new(association: &Association, directory: &Directory, now_ns: u64) -> Self {
        let HostKey { subsystem, hostid, hostnqn } = &association.host;
        let (io_queues, io_threads) = association.queues();
        Self {
            nqn: directory.subsystem(*subsystem).map(|subsystem| subsystem.nqn().to_owned()),
            cntlid: association.cntlid,
            hostnqn: hostnqn.clone(),
            hostid: *hostid,
            peer: association.origin.peer,
            age_ns: now_ns.saturating_sub(association.origin.began_ns),
            io_queues,
            io_threads,
        }
    }
}

impl Shared {
    fn status_of(&self, associations: &[Arc<Association>]) -> Vec<AssociationStats> {
        let now_ns = clock::now_ns();
        let active = associations.iter().filter(|association| !association.has_ended());
        let directory = Arc::clone(&self.state().directory);
        active.map(|association| AssociationStats::new(association, &directory, now_ns)).collect()
    }
}

impl Changes {
    /// Ends the selected associations. Already ended ones with requests in the backends are included.
    pub fn end_associations(&self, selected: impl Fn(&Association) -> bool) -> Draining {
        let associations: Arc<[_]> = self.shared.hosts.associations.associations(selected).into();
        if associations.is_empty() {
            return Draining::default();
        }
        let described = self.shared.status_of(&associations);
        self.broadcast(|applied| Message::End { associations: Arc::clone(&associations), applied });
        let shared = Arc::clone(&self.shared);
        Draining::new(described, move || associations.iter().filter(|one| shared.hosts.associations.holds(one)).count())
    }
}

impl Changes {
    /// As [`Server::set_paths`].
    pub fn set_paths(&self, rules: &[PathRule]) -> Draining {
        let _one_at_a_time = self.begin();
        let next = Arc::new((*self.directory()).clone().with_paths(rules.to_vec()));
        let mark = |opens: bool| {
            for association in self.shared.hosts.associations.associations(|_| true) {
                let closed = next.has_closed_paths(association.origin.port);
                if !(opens && closed) {
                    association.set_closed_paths(closed);
                }
            }
        };
        mark(true); // first: a host that is told of an open path can use it on every I/O thread
        self.change_directory(|directory| directory.with_paths(rules.to_vec()));
        mark(false);
        let closed = |one: &Association| one.has_closed_paths() && one.host.subsystem != super::DISCOVERY;
        let associations: Arc<[_]> = self.shared.hosts.associations.associations(closed).into();
        let described = self.shared.status_of(&associations);
        let (shared, threads) = (Arc::clone(&self.shared), Arc::clone(&self.threads));
        Draining::new(described, move || count_busy(&shared, &threads, &associations))
    }
}

/// Commands in progress on I/O queues of these associations, also of ended ones with requests in the backends.
fn count_busy(shared: &Shared, threads: &[Sender<Message>], associations: &Arc<[Arc<Association>]>) -> usize {
    if associations.is_empty() {
        return 0;
    }
    let (commands, acks) = (Arc::<AtomicUsize>::default(), Acks::new());
    for thread in threads {
        let (associations, commands) = (Arc::clone(associations), Arc::clone(&commands));
        super::send(thread, Message::Count { associations, commands, applied: acks.expect() });
    }
    acks.wait(|missing| tracing::warn!(missing, "commands in progress are not counted: I/O threads do not respond"));
    let ended = associations.iter().filter(|one| one.has_ended() && shared.hosts.associations.holds(one)).count();
    commands.load(Relaxed) + ended
}

impl Server {
    /// Sets the ANA states of paths. Hosts with change notices enabled are notified. Commands that have been accepted are finished: the result
    /// waits for those of hosts whose port has closed paths.
    pub fn set_paths(&self, rules: &[PathRule]) -> Draining {
        self.changes.set_paths(rules)
    }

    /// All associations, in the order of controller identifiers.
    #[must_use]
    pub fn associations(&self) -> Vec<AssociationStats> {
        self.shared.status_of(&self.shared.hosts.associations.associations(|_| true))
    }

    /// Ends the associations of the host `hostnqn` with this subsystem, or for `None` with all. The host may reconnect. Does not
    /// wait for requests in the backends ([`Draining::wait`]).
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn disconnect(&self, hostnqn: &str, nqn: Option<&str>) -> Result<Draining, super::ServerError> {
        let subsystem = nqn.map(|nqn| self.shared.index_of(nqn)).transpose()?;
        let is_selected = |Association { host, .. }: &Association| {
            let is_subsystem = subsystem.map_or(host.subsystem != super::DISCOVERY, |at| host.subsystem == at);
            is_subsystem && host.hostnqn == hostnqn
        };
        Ok(self.changes.end_associations(is_selected))
    }
}
