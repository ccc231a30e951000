//! What queue pairs need of the server and of the I/O thread that polls them.
//!
//! Queue pairs know these traits instead of the server. Every call is resolved at compile time, so a read or a write pays for no indirection.
//!
//! | trait | implemented by |
//! |---|---|
//! | [`Services`] | the server: limits, admission, placement, what admin commands report |
//! | [`Secrets`] | the server: secrets of hosts, keys of TLS |
//! | [`AssociationRegister`] | its register of associations |
//! | [`NamespaceTable`] | the I/O thread's namespaces |
//! | [`Accounting`], [`Account`] | counters, latencies and bandwidth caps: the I/O thread's, and a queue's part of them |
//! | [`Admission`] | a queue's entry in the count of its host, and its memory |

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_auth::tls::TlsPsk;
use pilotlight_auth::{Concatenation, Config, Secret, Work};
use pilotlight_storage::lease::{Lease, StorageId};
use pilotlight_storage::{Channel, Geometry};

use crate::arrival::Arrival;
use crate::association::{Association, Origin};
use crate::ids::{ConnAddr, HostKey};
use crate::operation::Operation;
use crate::payload::{LoanId, Loans};
use crate::refusal_reason::RefusalReason;
use crate::reservation::Command;
use crate::reservation::access::Group;
use crate::reservation::published::Reservation;
use crate::subsystems::config::ControllerIds;
use crate::subsystems::directory::Directory;
use crate::subsystems::failures::Failures;
use crate::subsystems::listing::{Listed, NamespaceList};
use crate::subsystems::views::ViewId;
use crate::tls_peer::TlsPeer;
use crate::unfinished::Unfinished;

/// The server, as queue pairs use it. Only [`Services::are_caps_in_use`] is called for reads and writes.
pub trait Services: Secrets + Sized {
    /// The register of associations.
    type Associations: AssociationRegister;
    /// An I/O thread's namespaces.
    type Namespaces: NamespaceTable;
    /// An I/O thread's counters, latencies and caps.
    type Accounting: Accounting<Self>;
    /// A queue's part of them.
    type Account: Account;
    /// A queue's entry in the count of its host.
    type Admission: Admission;
    /// Counts a connection for its address until it is admitted.
    type Pending;
    /// The memory of a TLS session, until an admission includes it.
    type SessionMemory;
    /// Counts an I/O queue on its I/O thread until dropped.
    type QueueCount;

    /// Bytes of a TLS session.
    const SESSION_BYTES: usize;

    /// Limits of queues and of their Connect.
    fn limits(&self) -> &ThreadLimits;

    /// Whether controllers report power states.
    fn has_power_states(&self) -> bool;

    /// Counters of the server.
    fn totals(&self) -> Totals;

    /// Time since the server started.
    fn power_on(&self) -> Duration;

    /// Whether anything is capped or metered, so that commands must be charged.
    fn are_caps_in_use(&self) -> bool;

    /// The register of associations.
    fn associations(&self) -> &Self::Associations;

    /// Has another thread read the allocated bytes of a namespace; `false` if that is not possible now.
    fn request_utilization(&self, request: UtilizationRequest) -> bool;

    /// Has another thread execute a command on reservations; `false` if that is not possible now.
    fn request_reservation(&self, request: ReservationRequest) -> bool;

    /// Counts a refused Connect.
    fn note_refusal(&self, reason: RefusalReason);

    /// A failure of a namespace has been counted.
    fn note_failure(&self);

    /// The I/O thread for a connection of this host that is `here`, and what counts it there; `None` if there is no such subsystem.
    fn place(&self, hostnqn: &str, subsystem: usize, is_io: bool, here: u16)
    -> Option<(u16, Option<Self::QueueCount>)>;

    /// Counts an I/O queue on this I/O thread, where it stays whoever its host is.
    fn count_queue(&self, thread: u16) -> Self::QueueCount;

    /// Admits the connection `queue` of `host` with `bytes` of memory.
    ///
    /// # Errors
    /// The exhausted limit.
    fn admission(
        &self,
        host: HostKey,
        queue: ConnAddr,
        bytes: usize,
        standing: Standing,
    ) -> Result<Self::Admission, Full>;

    /// Takes the memory of a TLS session with `address`; `None` if it is exhausted.
    fn session_memory(&self, address: IpAddr) -> Option<Self::SessionMemory>;
}

/// Secrets of hosts for DH-HMAC-CHAP, and keys of TLS. They may change at any time.
pub trait Secrets {
    /// Whether a queue of this host has to authenticate.
    fn requires_authentication(&self, host: &HostKey) -> bool;

    /// Whether this host is refused without TLS.
    fn requires_tls(&self, host: &HostKey) -> bool;

    /// Whether the generated key of a TLS connection is still good at `now_ns`.
    fn is_key_good(&self, peer: &TlsPeer, now_ns: u64) -> bool;

    /// What an exchange with this host needs; `None` if it does not have to authenticate.
    fn exchange_config(&self, host: &HostKey, subnqn: &str, concatenation: Concatenation) -> Option<Arc<Config>>;

    /// Keeps a key that an exchange has generated with a secret, for connections between these NQNs, in place of the one with the identity
    /// `replaced`.
    fn keep_key(&self, key: (TlsPsk, Secret), nqns: (&str, &str), replaced: Option<&str>, now_ns: u64);

    /// Has another thread check a message; `false` if too many wait.
    fn request_check(&self, request: AuthenticationRequest) -> bool;
}

/// The register of associations. Its calls may lock: for Connect and for the end of a queue.
pub trait AssociationRegister {
    /// The I/O threads with queues of `host` other than `queue`.
    fn threads_of(&self, host: &HostKey, queue: ConnAddr) -> Vec<u16>;

    /// Whether I/O queues of ended associations of `host` may still submit requests.
    fn is_draining(&self, host: &HostKey) -> bool;

    /// Begins an association with a controller identifier of `ids`, or for `None` an unreserved one; `None` if all are in use.
    fn begin(
        &self,
        host: HostKey,
        admin: ConnAddr,
        origin: Origin,
        ids: Option<ControllerIds>,
    ) -> Option<Arc<Association>>;

    /// The association of controller `cntlid`.
    fn get(&self, cntlid: u16) -> Option<Arc<Association>>;

    /// Adds an I/O queue to an association. Returns `false`, without effect, if that has ended.
    fn attach(&self, association: &Association, queue: ConnAddr) -> bool;

    /// An I/O queue of the association submits nothing more. What it has in the backends is registered already.
    fn queue_stopped(&self, association: &Association, queue: ConnAddr);

    /// Adds the requests that a lost queue of `host` has in the backends.
    fn queue_lost(&self, host: &HostKey, requests: Arc<Unfinished>);

    /// The last request of a lost queue has completed.
    fn queue_drained(&self, host: &HostKey, requests: &Arc<Unfinished>);

    /// Ends an association: nothing more is submitted for it.
    fn terminate(&self, association: &Association);

    /// Removes the association of `cntlid`, which has nothing in flight.
    fn remove(&self, cntlid: u16);
}

/// An I/O thread's namespaces, by an index that no other namespace gets while a command refers to it.
pub trait NamespaceTable {
    /// The index of namespace `nsid`, if it is in the view.
    fn index_of(&self, view: ViewId, nsid: u32) -> Option<u32>;

    /// The first namespace of the view at or after index `from`.
    fn next_of(&self, view: ViewId, from: u32) -> Option<u32>;

    /// Geometry of the namespace at `index`.
    fn geometry(&self, index: u32) -> Geometry;

    /// The channel of the namespace at `index`; `None` once it has been removed.
    fn channel(&mut self, index: u32) -> Option<&mut dyn Channel>;

    /// The lease of the storage of the namespace at `index`, as long as its channel exists.
    fn lease(&self, index: u32) -> Option<&Lease>;

    /// Borrows blocks of the namespace at `index` for a zero-copy read, if possible.
    fn borrow(&mut self, index: u32, lba: u64, blocks: u32) -> Option<LoanId>;

    /// The outstanding loans.
    fn loans(&self) -> &Loans;

    /// Failure counters of the namespace at `index`; `None` once it has been removed.
    fn failures(&self, index: u32) -> Option<&Failures>;

    /// Whether the reservation of the namespace at `index` keeps some hosts from commands of this group.
    fn is_restricted(&self, index: u32, group: Group) -> bool;

    /// The reservation of the namespace at `index`; `None` once it has been removed.
    fn reservation(&self, index: u32) -> Option<&Arc<Reservation>>;

    /// A command refers to the namespace at `index`.
    fn note_reference(&mut self, index: u32);

    /// The subsystems and namespaces in Identify and in the discovery log.
    fn list(&self) -> &NamespaceList;

    /// The listed namespaces of a view.
    fn listed(&self, view: ViewId) -> Listed<'_> {
        self.list().listed(view)
    }

    /// The subsystems.
    fn directory(&self) -> &Arc<Directory> {
        self.list().directory()
    }
}

/// An I/O thread's counters, latencies and state of bandwidth caps.
pub trait Accounting<S: Services> {
    /// The account of a new queue of `host`.
    fn open(&mut self, host: &HostKey, is_io: bool, namespaces: &S::Namespaces, services: &S) -> S::Account;

    /// Prepares the account of an I/O queue for namespace `nsid`.
    fn prepare(&self, account: &mut S::Account, nsid: u32);

    /// Counts a completed read.
    fn add_read(&self, bytes: u64);

    /// Counts a completed write.
    fn add_write(&self, bytes: u64);

    /// Counts a connection ended by a protocol error of the peer.
    fn add_fault(&self);

    /// Counts `count` responses sent in the poll that began at `now_ns`, of commands with this arrival.
    fn add_responses(&mut self, arrival: Arrival, count: u64, now_ns: u64, namespaces: &S::Namespaces);

    /// Charges a command to all of its caps, or to none.
    ///
    /// # Errors
    /// The cap that throttles it.
    fn charge(
        &mut self,
        account: &mut S::Account,
        demand: Demand,
        parts: (&S::Namespaces, &S),
        now_ns: u64,
    ) -> Result<Charged, ThrottledBy>;

    /// Returns the charge of `bytes` bytes of a command to `namespace` that has not reached a backend.
    fn release(&mut self, account: &S::Account, charged: Charged, namespace: u32, bytes: u64);

    /// A command waits for a limit, if it has one.
    fn begin_wait(&self, account: &S::Account, by: Option<ThrottledBy>, namespaces: &S::Namespaces);

    /// It waits no longer; `admitted`: it has waited so many nanoseconds with so many bytes, and is admitted.
    fn end_wait(
        &self,
        account: &S::Account,
        by: Option<ThrottledBy>,
        admitted: Option<(u64, u64)>,
        namespaces: &S::Namespaces,
    );

    /// The connection at this index has throttled commands, to be retried.
    fn add_throttled(&mut self, connection: u32);
}

/// A queue's usage counters and its host's cap.
pub trait Account {
    /// Counts a completed Read or Write of `bytes` bytes.
    fn count_data(&self, nsid: u32, operation: Operation, bytes: u64);

    /// Counts another completed command.
    fn count_other(&self, nsid: u32, operation: Operation);
}

/// A queue's entry in the count of its host, and its memory. Dropping it returns both.
pub trait Admission {
    /// The host.
    fn host(&self) -> &HostKey;

    /// The queue is served from now on, and counts for its host. Its standing may have changed since its Connect, as secrets may.
    ///
    /// # Errors
    /// The exhausted limit; nothing has changed then.
    fn admit(&mut self, standing: Standing) -> Result<(), Full>;

    /// Whether the host's admin commands have a rate: not before it has authenticated.
    fn has_rate(&self) -> bool;

    /// Takes an admin command at `now_ns` from the host's rate, if there is one.
    ///
    /// # Errors
    /// When it can be taken, in nanoseconds.
    fn take_command(&self, now_ns: u64) -> Result<(), u64>;
}

/// How the host of a queue is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// By its secret or its TLS key.
    Proved,
    /// It has to authenticate; it claims from this address to be that host.
    Claim(IpAddr),
    /// It has no secret and no TLS; its address.
    Unproved(IpAddr),
}

/// Why a queue, or the TLS handshake of a connection, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Its host has reached its limit of queues.
    Host,
    /// Its host has reached its limit of memory.
    HostMemory,
    /// The memory for queues of hosts that have not authenticated is exhausted, in total or for this address.
    Claims,
    /// The places for hosts without a secret or a key are taken, in total or for this address.
    Unproved,
    /// The memory for queues of such hosts is exhausted, in total or for this address.
    UnprovedMemory,
    /// The memory budget for queues is exhausted.
    Memory,
}

/// What a command takes of its caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Index of the namespace.
    pub namespace: u32,
    /// Bytes.
    pub bytes: u64,
    /// Whether they are written, not read.
    pub is_write: bool,
    /// When the command arrived, in nanoseconds.
    pub since_ns: u64,
}

/// The limits charged for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Its host's.
    pub host: bool,
    /// Its namespace's.
    pub namespace: bool,
}

impl Charged {
    /// None.
    pub const NOTHING: Self = Self { host: false, namespace: false };
}

/// The limit that throttles a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottledBy {
    /// Its host's.
    Host,
    /// That of the namespace at this index.
    Namespace(u32),
}

/// Limits for I/O threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLimits {
    /// Maximum entries of a queue.
    pub max_queue_depth: u16,
    /// Maximum I/O queues of a controller.
    pub max_io_queues: u16,
    /// Time limit of ICReq, in nanoseconds.
    pub icreq_timeout_ns: u64,
    /// Time limit of Connect, in nanoseconds.
    pub connect_timeout_ns: u64,
}

/// Counters of an I/O thread, or a sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Open connections.
    pub connections: u64,
    /// Connections ended by a protocol error of the peer.
    pub faults: u64,
}

impl std::ops::Add for Totals {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            connections: self.connections + other.connections,
            faults: self.faults + other.faults,
        }
    }
}

/// A waiting Identify command, which reports the allocated bytes of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct UtilizationRequest {
    /// Index of the subsystem.
    pub subsystem: usize,
    /// The namespace.
    pub nsid: u32,
    /// The admin queue's connection.
    pub admin: ConnAddr,
    /// The command's slot.
    pub slot: u16,
    /// The slot's generation.
    pub generation: u8,
}

/// A waiting command on the reservations of namespaces.
pub struct ReservationRequest {
    /// The namespaces: several for a Set Features command with NSID FFFFFFFFh.
    pub namespaces: Vec<(u32, Arc<Reservation>)>,
    /// The storage of the only one of an I/O command.
    pub storage: Option<StorageId>,
    /// The host.
    pub host: HostKey,
    /// The command.
    pub command: Command,
    /// The queue's connection.
    pub queue: ConnAddr,
    /// Slot of the command, and its generation.
    pub slot: (u16, u8),
}

/// A message of authentication to check.
pub struct AuthenticationRequest {
    /// The work.
    pub work: Work,
    /// The host's address.
    pub peer: IpAddr,
    /// The queue's connection.
    pub queue: ConnAddr,
    /// Slot of the command, and its generation.
    pub slot: (u16, u8),
}
