//! A connection until it is admitted: time limit, count for its address, and the NQNs of its TLS key.
//!
//! TLS handshake, ICReq, Connect and authentication share one time limit, which begins when the connection is accepted. Until a queue is
//! admitted it counts for its address (`addresses.rs`), afterwards for its host.

use pilotlight_auth::Concatenation;
use pilotlight_tls::SESSION_BYTES;

use super::{Cx, QueuePair, Role, Transport};
use crate::hosts::addresses::{Pending, Standing};
use crate::hosts::admission::{Admission, SessionMemory};
use crate::hosts::association::HostKey;
use crate::hosts::authentication::EXCHANGE_BYTES;
use crate::queue_pair::message::ConnectRefusal;
use crate::tls::TlsPeer;

/// State of a connection that matters until it is admitted.
#[derive(Debug)]
pub(super) struct Login {
    /// When the connection was accepted, in nanoseconds.
    accepted_ns: u64,
    /// Time limit, in nanoseconds.
    pub(super) deadline_ns: u64,
    /// Its count for its address.
    pub(super) pending: Option<Pending>,
    /// The NQNs of its TLS key.
    tls: Option<Box<TlsPeer>>,
    /// The memory of its TLS session, until an admission includes it.
    session_memory: Option<SessionMemory>,
    /// Whether its listener is for secure channel concatenation.
    is_concatenation: bool,
}

impl Login {
    pub(super) fn new(accepted_ns: u64, deadline_ns: u64) -> Self {
        Self { accepted_ns, deadline_ns, pending: None, tls: None, session_memory: None, is_concatenation: false }
    }
}

impl<T: Transport> QueuePair<T> {
    /// Sets its count for its address.
    pub fn set_pending(&mut self, pending: Option<Pending>) {
        self.login.pending = pending;
    }

    /// The connection has TLS with the key of this host and subsystem.
    pub fn set_tls(&mut self, peer: Option<TlsPeer>, memory: Option<SessionMemory>) {
        self.login.tls = peer.map(Box::new);
        self.login.session_memory = memory;
    }

    /// The connection was accepted on an address for secure channel concatenation.
    pub fn set_concatenation(&mut self, is_concatenation: bool) {
        self.login.is_concatenation = is_concatenation;
    }

    /// The identity of its TLS key, if authentication has generated that.
    pub(super) fn generated_key(&self) -> Option<&str> {
        self.login.tls.as_ref()?.generated.as_deref()
    }

    /// What authentication of the queue `qid` on this connection generates.
    pub(super) fn concatenation(&self, qid: u16) -> Concatenation {
        match (&self.login.tls, qid) {
            (Some(_), 0) if self.generated_key().is_some() => Concatenation::Replace,
            (None, 0) if self.login.is_concatenation => Concatenation::New,
            _ => Concatenation::None,
        }
    }

    /// The standing of a queue of this host at its Connect. A key that authentication has generated proves the host.
    fn claimed_standing(&self, host: &HostKey, cx: &Cx) -> Standing {
        if self.generated_key().is_none() && cx.shared.hosts.authenticator.is_required(host) {
            return Standing::Claim(self.peer.ip());
        }
        self.admitted_standing()
    }

    /// The standing of a queue that is served.
    fn admitted_standing(&self) -> Standing {
        let is_proved = self.login.tls.is_some() || self.authentication.is_some();
        if is_proved { Standing::Proved } else { Standing::Unproved(self.peer.ip()) }
    }

    /// Checks that a generated key is still good, and that a connection without TLS, on an address for secure channel concatenation, is for
    /// authentication. Secrets may change while a Connect waits.
    pub(super) fn check_concatenation(&self, qid: u16, host: &HostKey, cx: &Cx) -> Result<(), ConnectRefusal> {
        match (&self.login.tls, qid) {
            (Some(peer), _) if peer.generated.is_none() => Ok(()),
            (Some(peer), _) if peer.generated_key(cx.shared, cx.now_ns).is_some() => Ok(()),
            (Some(_), _) => Err(ConnectRefusal::TLS_KEY_ENDED),
            (None, _) if !self.login.is_concatenation => Ok(()),
            (None, 0) if cx.shared.hosts.authenticator.is_required(host) => Ok(()),
            (None, 0) => Err(ConnectRefusal::CONCATENATION_SECRET),
            (None, _) => Err(ConnectRefusal::CONCATENATION_QUEUE),
        }
    }

    /// The transport is ready: the time limit of Connect and authentication holds. It is at least that of ICReq.
    pub fn await_connect(&mut self, cx: &Cx) {
        let limits = &cx.shared.limits;
        self.deadline_ns = self.login.accepted_ns + limits.connect_timeout_ns.max(limits.icreq_timeout_ns);
        self.login.deadline_ns = self.deadline_ns;
    }

    /// Checks that a key of TLS is that of this host and subsystem, and that a host with a key uses TLS.
    pub(super) fn check_tls(&self, host: &HostKey, subnqn: &str, cx: &Cx) -> Result<(), ConnectRefusal> {
        match &self.login.tls {
            Some(peer) if *peer.hostnqn != *host.hostnqn || *peer.subnqn != *subnqn => Err(ConnectRefusal::TLS_OTHER),
            None if !self.login.is_concatenation && cx.shared.hosts.authenticator.requires_tls(host) => {
                Err(ConnectRefusal::TLS_REQUIRED)
            }
            _ => Ok(()),
        }
    }

    /// Admits a queue of `bytes` with its exchange and its TLS session, whose memory counted for itself until now.
    pub(super) fn admission(&mut self, host: HostKey, bytes: usize, cx: &Cx) -> Result<Admission, ConnectRefusal> {
        let exchange_bytes = if cx.shared.hosts.authenticator.is_required(&host) { EXCHANGE_BYTES } else { 0 };
        let session_bytes = if self.login.tls.is_some() { SESSION_BYTES } else { 0 };
        let standing = self.claimed_standing(&host, cx);
        self.login.session_memory = None;
        Ok(Admission::new(&cx.shared.hosts, host, cx.me, bytes + exchange_bytes + session_bytes, standing)?)
    }

    /// The TLS session outlives a refused Connect: it counts for itself again, or the connection ends if there is no memory for it.
    pub(super) fn keep_session(&mut self, cx: &mut Cx) {
        if self.login.tls.is_none() || self.login.session_memory.is_some() {
            return;
        }
        self.login.session_memory = SessionMemory::new(&cx.shared.hosts, self.peer.ip()).ok();
        if self.login.session_memory.is_none() {
            self.close_after_response(cx);
        }
    }

    /// The queue counts for its host from now on, or the connection ends if that, or its address, has too many.
    pub(super) fn admit(&mut self, cx: &mut Cx) {
        self.login.pending = None;
        if let Role::Io(association) = &self.role {
            association.note_traffic();
        }
        let standing = self.admitted_standing();
        let Some(queue) = &mut self.queue else { return };
        let Err(full) = queue.admission.admit(standing) else { return };
        let refusal = ConnectRefusal::from(full);
        cx.shared.hosts.refusals.note(refusal.counter);
        let host = queue.admission.host().hostnqn.as_str();
        tracing::warn!(host, peer = %self.peer, reason = refusal.reason, "connection ended");
        self.close_after_response(cx);
    }
}
