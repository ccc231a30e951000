//! Associations as an operator sees them, and their end by hand.
//!
//! # The problem
//! When a host has been revoked, nothing of it may still be written once the operator is told so. Its queues are served by several I/O
//! threads, and requests of it are in the backends.
//!
//! # The algorithm
//! One round of messages ends every connection of these associations: afterwards no I/O thread submits anything for them. Then the
//! register is watched until they have left it, which they do when nothing of them is in flight (`register.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use pilotlight_reactor::clock;

use super::{Changes, Server, Shared};
use crate::association::{Association, HostKey};
use crate::directory::Directory;
use crate::message::Message;

/// How long requests that are in the backends are waited for.
const DRAIN: Duration = Duration::from_secs(10);
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
    /// Ends the associations of these hosts; those that have ended already are waited for too. Returns when nothing of them is in flight,
    /// or after ten seconds.
    pub fn end_associations(&self, chosen: impl Fn(&HostKey) -> bool) -> Ended {
        let associations: Arc<[_]> = self.shared.register.associations(chosen).into();
        if associations.is_empty() {
            return Ended::default();
        }
        let described = self.shared.describe_all(&associations);
        self.round(|applied| Message::End { associations: Arc::clone(&associations), applied });
        let until = Instant::now() + DRAIN;
        let undrained = || associations.iter().filter(|association| self.shared.register.holds(association)).count();
        while undrained() > 0 && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        Ended { associations: described, undrained: undrained() }
    }
}

impl Server {
    /// Every association, in the order of controller identifiers.
    #[must_use]
    pub fn associations(&self) -> Vec<AssociationStats> {
        self.shared.describe_all(&self.shared.register.associations(|_| true))
    }

    /// Ends the associations of the host named `hostnqn` with this subsystem, or for `None` with every one. The host may come back. Nothing of
    /// them is written afterwards, unless the answer says that some are not drained.
    ///
    /// # Errors
    /// If there is no such subsystem.
    pub fn disconnect(&self, hostnqn: &str, nqn: Option<&str>) -> Result<Ended, super::ServerError> {
        let subsystem = nqn.map(|nqn| self.shared.index_of(nqn)).transpose()?;
        let is_meant = |host: &HostKey| {
            let is_there = subsystem.map_or(host.subsystem != super::DISCOVERY, |at| host.subsystem == at);
            is_there && host.hostnqn == hostnqn
        };
        Ok(self.changes.end_associations(is_meant))
    }
}
