//! Executes commands on reservations.
//!
//! # The problem
//! A command may wait for a medium, as the state is recorded before the command completes, and for the requests of other hosts, which Preempt
//! and Abort has to outlast: afterwards nothing of a preempted host may land. Such a request may take long, or never end.
//!
//! # The algorithm
//! One thread executes the commands one after the other: it changes the state, records and publishes it
//! ([`Reservation`](pilotlight_nvmf_proto::reservation::published::Reservation)), sends notifications to the admin queues of other hosts, and
//! then the answer to the I/O thread of the command. For Preempt and Abort it sends the queues of the preempted hosts to their I/O threads. These
//! see the published rights from then on, abort what is in no backend, and acknowledge when nothing is in one (`thread/preempt.rs`). Queues that
//! were lost before have registered their requests ([`crate::hosts::associations`]). The thread serves other commands meanwhile.
//!
//! # The properties
//! - A command completes after its change is recorded and published.
//! - After Preempt and Abort no request of a preempted host is in a backend, or the command has failed after [`LIMIT_NS`].
//! - A queue that is lost gets no answer: slot and generation identify the command.

use crossbeam_queue::ArrayQueue;
use pilotlight_nvme::Status;
use pilotlight_nvmf_proto::association::Association;
use pilotlight_nvmf_proto::ids::{ConnAddr, HostKey};
use pilotlight_nvmf_proto::queue_pair::message::QueueMessage;
use pilotlight_nvmf_proto::reservation::{Command, Effects, Identity, State};
use pilotlight_nvmf_proto::services::ReservationRequest;
use pilotlight_nvmf_proto::unfinished::Unfinished;
use pilotlight_reactor::Sender;
use pilotlight_reactor::clock::now_ns;
use pilotlight_storage::lease::StorageId;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::offload::{self, Offload};
use crate::offload::Requests;
use crate::thread::acks::Acks;
use crate::thread::message::Message;
use crate::thread::preempt::Preempted;

/// Time limit of the requests of preempted hosts: less than the 30 s after which Linux gives a command up.
const LIMIT_NS: u64 = 25_000_000_000;
/// Pause between two looks at them.
const PAUSE: Duration = Duration::from_millis(1);

impl Offload for ReservationRequest {
    const NAME: &'static str = "reservations";

    type Queue = ArrayQueue<Self>;

    fn queue(shared: &Shared) -> &Requests<Self::Queue> {
        &shared.reservations
    }

    fn serve(shared: &Shared, threads: &[Sender<Message>]) {
        let requests = &shared.reservations;
        let mut send = |to: u16, message| _ = offload::send(requests, threads, to, message);
        let mut executor = Executor::default();
        while !requests.is_stopped() {
            executor.finish(&mut send, now_ns());
            match requests.take() {
                Some(request) => executor.execute(request, shared, &mut send, now_ns()),
                None if executor.waiting.is_empty() => std::thread::park(),
                None => std::thread::park_timeout(PAUSE),
            }
        }
    }
}

/// Sends a message to an I/O thread.
type Send<'a> = dyn FnMut(u16, Message) + 'a;

/// Executes commands, and keeps those that wait for requests of preempted hosts.
#[derive(Default)]
pub(crate) struct Executor {
    waiting: Vec<Waiting>,
}

/// A Preempt and Abort that is done but for requests of preempted hosts.
struct Waiting {
    acks: Acks,
    /// Requests of queues that were lost before.
    earlier: Vec<Arc<Unfinished>>,
    storage: StorageId,
    nsid: u32,
    queue: ConnAddr,
    slot: (u16, u8),
    until_ns: u64,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.acks.missing() == 0 && !self.earlier.iter().any(|earlier| earlier.includes_storage(&self.storage))
    }
}

impl Executor {
    /// Executes a command, and answers it unless it has to wait.
    pub(crate) fn execute(&mut self, request: ReservationRequest, shared: &Shared, send: &mut Send, now_ns: u64) {
        let ReservationRequest { namespaces, storage, host, command, queue, slot } = request;
        let identity = Identity::from_host(&host);
        if let (Command::Report, Some((_, reservation))) = (command, namespaces.first()) {
            let associations = associations(shared, host.subsystem);
            let data = reservation.report(|host| controllers(&associations, host).map(|one| one.cntlid).collect());
            return send(queue.thread, Message::Reservation { queue, slot, status: Status::SUCCESS, data });
        }
        let mut abort = Vec::new();
        for (nsid, reservation) in &namespaces {
            let save = |state: &State| shared.record(reservation.uuid(), state);
            match reservation.execute(&identity, &command, save) {
                Ok(effects) => {
                    notify(shared, (host.subsystem, *nsid), &effects, send);
                    abort.extend(effects.abort);
                }
                Err(status) => {
                    return send(queue.thread, Message::Reservation { queue, slot, status, data: Vec::new() });
                }
            }
        }
        let target = storage.zip(namespaces.first()).filter(|_| !abort.is_empty());
        let Some((storage, (nsid, _))) = target else {
            return send(queue.thread, Message::Reservation { queue, slot, status: Status::SUCCESS, data: Vec::new() });
        };
        let (acks, earlier) = preempt(shared, &abort, &storage, send);
        let until_ns = now_ns.saturating_add(LIMIT_NS);
        self.waiting.push(Waiting { acks, earlier, storage, nsid: *nsid, queue, slot, until_ns });
        self.finish(send, now_ns);
    }

    /// Answers commands whose wait is over, or takes too long.
    pub(crate) fn finish(&mut self, send: &mut Send, now_ns: u64) {
        self.waiting.retain(|waiting| {
            let Waiting { queue, slot, nsid, .. } = *waiting;
            let status = match waiting.is_over() {
                true => Status::SUCCESS,
                false if now_ns < waiting.until_ns => return true,
                false => {
                    let reason = "requests of preempted hosts have not ended in 25 s";
                    tracing::warn!(nsid, reason, "preempt and abort failed");
                    Status::INTERNAL.dnr()
                }
            };
            send(queue.thread, Message::Reservation { queue, slot, status, data: Vec::new() });
            false
        });
    }
}

impl Shared {
    /// Records the state of a namespace.
    fn record(&self, uuid: &[u8; 16], state: &State) -> Result<(), Status> {
        let Some(store) = &self.reservation_store else { return Err(Status::INTERNAL) };
        let recorded = if state.persists() { store.save(uuid, &state.to_record()) } else { store.remove(uuid) };
        recorded.map_err(|error| {
            tracing::warn!(%error, "a reservation cannot be recorded: the command fails");
            Status::INTERNAL
        })
    }
}

/// The associations with a subsystem.
fn associations(shared: &Shared, subsystem: usize) -> Vec<Arc<Association>> {
    shared.hosts.associations.associations(|one| one.host.subsystem == subsystem && !one.has_ended())
}

/// Those of a host.
fn controllers<'a>(all: &'a [Arc<Association>], host: &'a Identity) -> impl Iterator<Item = &'a Arc<Association>> {
    all.iter().filter(|one| host.is_of(&one.host))
}

fn notify(shared: &Shared, (subsystem, nsid): (usize, u32), effects: &Effects, send: &mut Send) {
    if effects.notify.is_empty() {
        return;
    }
    let associations = associations(shared, subsystem);
    for (host, kind) in &effects.notify {
        for one in controllers(&associations, host) {
            let admin = one.admin;
            send(admin.thread, Message::Queue(QueueMessage::Reservation { admin, nsid, kind: *kind }));
        }
    }
}

/// Has the commands of these hosts to a storage aborted. Returns what to wait for.
///
/// A queue that is lost registers its requests before it leaves the register: so queues are looked up first.
fn preempt(shared: &Shared, hosts: &[Identity], storage: &StorageId, send: &mut Send) -> (Acks, Vec<Arc<Unfinished>>) {
    let is_preempted = |host: &HostKey| hosts.iter().any(|one| one.is_of(host));
    let mut queues = shared.hosts.associations.queues_where(is_preempted);
    let earlier = shared.hosts.associations.unfinished_where(is_preempted);
    queues.sort_unstable_by_key(|queue| queue.thread);
    let acks = Acks::new();
    for of_thread in queues.chunk_by(|one, other| one.thread == other.thread) {
        let preempted = Preempted { queues: of_thread.to_vec(), storage: storage.clone(), applied: acks.expect() };
        send(of_thread[0].thread, Message::Preempt(preempted));
    }
    (acks, earlier)
}
