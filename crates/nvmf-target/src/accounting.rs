//! An I/O thread's counters, latencies and bandwidth caps, as queue pairs use them, and a queue's part of them.

use std::sync::Arc;

use pilotlight_nvmf_proto::arrival::Arrival;
use pilotlight_nvmf_proto::ids::HostKey;
use pilotlight_nvmf_proto::operation::Operation;
use pilotlight_nvmf_proto::services::{Account, Accounting, Charged, Demand, NamespaceTable as _, ThrottledBy};

use crate::caps::{Bucket, Claim, Direction, Limit, ThreadCaps};
use crate::hosts::usage::Row;
use crate::latency_batch::LatencyBatch;
use crate::namespaces::Namespaces;
use crate::shared::Shared;
use crate::stats::Counters;

/// An I/O thread's counters, latencies and bandwidth caps.
pub struct ThreadAccounting {
    /// Its counters.
    pub counters: Arc<Counters>,
    /// Responses sent in this poll.
    pub latency_batch: LatencyBatch,
    /// Its state of bandwidth caps.
    pub caps: ThreadCaps,
}

/// A queue's usage counters and its host's cap.
pub struct QueueAccount {
    /// Empty for an admin queue.
    row: Row,
    /// The bucket of its host; `None` for an admin queue.
    host: Option<Bucket>,
}

impl Account for QueueAccount {
    #[inline]
    fn count_data(&self, nsid: u32, operation: Operation, bytes: u64) {
        self.row.count_data(nsid, operation, bytes);
    }

    fn count_other(&self, nsid: u32, operation: Operation) {
        self.row.count_other(nsid, operation);
    }
}

impl ThreadAccounting {
    /// Without responses and throttled commands.
    #[must_use]
    pub fn new(counters: Arc<Counters>, latency_batch: LatencyBatch) -> Self {
        Self { counters, latency_batch, caps: ThreadCaps::default() }
    }
}

/// The limit that throttles a command of a queue with this account, unless its namespace has been removed.
fn limit_of<'a>(account: &'a QueueAccount, by: Option<ThrottledBy>, namespaces: &'a Namespaces) -> Option<&'a Limit> {
    match by? {
        ThrottledBy::Host => account.host.as_ref().map(|host| &**host.limit()),
        ThrottledBy::Namespace(namespace) => namespaces.limit(namespace).map(|limit| &**limit),
    }
}

impl Accounting<Shared> for ThreadAccounting {
    fn open(&mut self, host: &HostKey, is_io: bool, namespaces: &Namespaces, shared: &Shared) -> QueueAccount {
        if !is_io {
            return QueueAccount { row: Row::default(), host: None };
        }
        self.latency_batch.open(host.subsystem, &self.counters);
        let nsids = namespaces.list().whole(host.subsystem).iter().map(|(nsid, _)| *nsid);
        let number = shared.hosts.listed_hosts.number_of(&host.hostnqn);
        QueueAccount {
            row: Row::new(number, host.subsystem, nsids, &self.counters.usage),
            host: Some(Bucket::new(shared.host_limit(&host.hostnqn))),
        }
    }

    fn prepare(&self, account: &mut QueueAccount, nsid: u32) {
        account.row.prepare(nsid, &self.counters.usage);
    }

    #[inline]
    fn add_read(&self, bytes: u64) {
        self.counters.add_read(bytes);
    }

    #[inline]
    fn add_write(&self, bytes: u64) {
        self.counters.add_write(bytes);
    }

    fn add_fault(&self) {
        self.counters.add_fault();
    }

    #[inline]
    fn add_responses(&mut self, arrival: Arrival, count: u64, now_ns: u64, namespaces: &Namespaces) {
        self.latency_batch.add(arrival, count, now_ns, &self.counters, namespaces);
    }

    fn charge(
        &mut self,
        account: &mut QueueAccount,
        demand: Demand,
        (namespaces, shared): (&Namespaces, &Shared),
        now_ns: u64,
    ) -> Result<Charged, ThrottledBy> {
        let Demand { namespace, bytes, is_write, since_ns } = demand;
        let Some(host) = &mut account.host else { return Ok(Charged::NOTHING) };
        let claim = Claim { host: host.limit().number(), since_ns };
        let by_host = host.admit(bytes, claim, now_ns).map_err(|until_ns| {
            if let Some(bucket) = self.caps.known_bucket(namespace) {
                bucket.leave(claim);
            }
            self.caps.note_due(until_ns, now_ns);
            ThrottledBy::Host
        })?;
        let is_metered = shared.caps.are_metered();
        let limit = namespaces.limit(namespace).filter(|limit| is_metered || limit.bytes_per_s().is_some());
        let by_namespace =
            limit.map_or(Ok(false), |limit| self.caps.bucket(namespace, limit).admit(bytes, claim, now_ns));
        let by_namespace = by_namespace.map_err(|until_ns| {
            if by_host {
                host.release(bytes);
            }
            self.caps.note_due(until_ns, now_ns);
            ThrottledBy::Namespace(namespace)
        })?;
        if is_metered {
            let direction = if is_write { Direction::Written } else { Direction::Read };
            host.meter(direction, bytes, now_ns);
            self.caps.known_bucket(namespace).into_iter().for_each(|bucket| bucket.meter(direction, bytes, now_ns));
        }
        Ok(Charged { host: by_host, namespace: by_namespace })
    }

    fn release(&mut self, account: &QueueAccount, charged: Charged, namespace: u32, bytes: u64) {
        if let Some(bucket) = account.host.as_ref().filter(|_| charged.host) {
            bucket.release(bytes);
        }
        if let Some(bucket) = self.caps.known_bucket(namespace).filter(|_| charged.namespace) {
            bucket.release(bytes);
        }
    }

    fn begin_wait(&self, account: &QueueAccount, by: Option<ThrottledBy>, namespaces: &Namespaces) {
        limit_of(account, by, namespaces).into_iter().for_each(Limit::begin_wait);
    }

    fn end_wait(
        &self,
        account: &QueueAccount,
        by: Option<ThrottledBy>,
        admitted: Option<(u64, u64)>,
        namespaces: &Namespaces,
    ) {
        admitted.into_iter().for_each(|(waited_ns, _)| self.counters.cap_waits.record(waited_ns, 1));
        limit_of(account, by, namespaces).into_iter().for_each(|limit| limit.end_wait(admitted));
    }

    fn add_throttled(&mut self, connection: u32) {
        self.caps.add_throttled(connection);
    }
}
