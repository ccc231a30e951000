//! Associations as an operator sees them, and their end by hand.
//!
//! # The problem
//! When a host has been revoked, nothing of it may still be written once the operator is told so. Its queues are served by several I/O
//! threads, and requests of it are in the backends.
//!
//! # The algorithm
//! One round of messages ends every connection of these associations: afterwards no I/O thread submits anything for them. Then the
//! register is watched until they have left it, which they do when nothing of them is in flight (`register.rs`). That can take long, and
//! is up to the caller ([`Draining::wait`]), who may have locks to release first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pilotlight_reactor::clock;

use super::{Changes, Server, Shared};
use crate::association::{Association, HostKey};
use crate::directory::Directory;
use crate::message::Message;

/// Time between two looks at the register.
const LOOK: Duration = Duration::from_millis(1);

/// An association.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssociationStats {
    /// The subsystem; `None` for the discovery service.
    pub nqn: Option<String>,
    /// Controller identifier.
    pub cntlid: u16,
    /// Host NQN; empty for a host that has none.
    pub hostnqn: String,
    /// Host identifier.
    pub hostid: [u8; 16],
    /// The host's address, as the admin queue's connection has it.
    pub peer: std::net::SocketAddr,
    /// How long it has existed, in nanoseconds.
    pub age_ns: u64,
    /// I/O queues.
    pub io_queues: usize,
    /// I/O threads that serve its I/O queues.
    pub io_threads: Vec<u16>,
}

/// Associations that were ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// As they were before.
    pub associations: Vec<AssociationStats>,
    /// How many of them still have requests in the backends: these may still be carried out.
    pub undrained: usize,
}

/// Associations whose connections are ended: I/O threads submit nothing for them any more, but requests of them can be in the backends.
pub struct Draining {
    associations: Vec<AssociationStats>,
    /// How many of them have requests in the backends now.
    undrained: Box<dyn Fn() -> usize + Send + Sync>,
}

impl Draining {
    /// Of these associations, of which `undrained` have requests in the backends.
    #[must_use]
    pub fn new(associations: Vec<AssociationStats>, undrained: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        Self { associations, undrained: Box::new(undrained) }
    }

    /// As they were before.
    #[must_use]
    pub fn associations(&self) -> &[AssociationStats] {
        &self.associations
    }

    /// Returns when nothing of them is in flight, or at `until`. Nothing of them is written afterwards, unless the answer says that some
    /// are not drained.
    #[must_use]
    pub fn wait(&self, until: Instant) -> Ended {
        loop {
            let undrained = (self.undrained)();
            if undrained == 0 || Instant::now() >= until {
                return Ended { associations: self.associations.clone(), undrained };
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Default for Draining {
    fn default() -> Self {
        Self::new(Vec::new(), || 0)
    }
}

impl AssociationStats {
    fn of(association: &Association, directory: &Directory, now_ns: u64) -> Self {
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
    fn describe_all(&self, associations: &[Arc<Association>]) -> Vec<AssociationStats> {
        let now_ns = clock::now_ns();
        let living = associations.iter().filter(|association| !association.is_dead());
        let directory = Arc::clone(&self.state().directory);
        living.map(|association| AssociationStats::of(association, &directory, now_ns)).collect()
    }
}

impl Changes {
    /// Ends the associations of these hosts. Those that have ended already, and have requests in the backends, are waited for too.
    pub fn end_associations(&self, chosen: impl Fn(&HostKey) -> bool) -> Draining {
        let associations: Arc<[_]> = self.shared.register.associations(chosen).into();
        if associations.is_empty() {
            return Draining::default();
        }
        let described = self.shared.describe_all(&associations);
        self.round(|applied| Message::End { associations: Arc::clone(&associations), applied });
        let shared = Arc::clone(&self.shared);
        Draining::new(described, move || associations.iter().filter(|one| shared.register.holds(one)).count())
    }
}

impl Server {
    /// Every association, in the order of controller identifiers.
    #[must_use]
    pub fn associations(&self) -> Vec<AssociationStats> {
        self.shared.describe_all(&self.shared.register.associations(|_| true))
    }

    /// Ends the associations of the host named `hostnqn` with this subsystem, or for `None` with every one. The host may come back. Requests
    /// of it that are in the backends are not waited for here ([`Draining::wait`]).
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn disconnect(&self, hostnqn: &str, nqn: Option<&str>) -> Result<Draining, super::ServerError> {
        let subsystem = nqn.map(|nqn| self.shared.index_of(nqn)).transpose()?;
        let is_meant = |host: &HostKey| {
            let is_there = subsystem.map_or(host.subsystem != super::DISCOVERY, |at| host.subsystem == at);
            is_there && host.hostnqn == hostnqn
        };
        Ok(self.changes.end_associations(is_meant))
    }
}
