//! A connection until it is admitted: time limit, count for its address, and the NQNs of its TLS key.
//!
//! TLS handshake, ICReq, Connect and authentication share one time limit, which begins when the connection is accepted. Until a queue is
//! admitted it counts for its address ([`Standing`]), afterwards for its host.

use pilotlight_auth::Concatenation;

use super::exchange::EXCHANGE_BYTES;
use super::{Cx, QueuePair, Role, Transport};
use crate::ids::{HostKey, PortId};
use crate::queue_pair::message::ConnectRefusal;
use crate::services::{Admission, Services, Standing};
use crate::subsystems::config::Security;
use crate::tls_peer::TlsPeer;

/// State of a connection that matters until it is admitted.
pub(super) struct Login<S: Services> {
    /// When the connection was accepted, in nanoseconds.
    accepted_ns: u64,
    /// Time limit, in nanoseconds.
    pub(super) deadline_ns: u64,
    /// Its count for its address.
    pub(super) pending: Option<S::Pending>,
    /// The NQNs of its TLS key.
    tls: Option<Box<TlsPeer>>,
    /// The memory of its TLS session, until an admission includes it.
    session_memory: Option<S::SessionMemory>,
    /// Its listener.
    pub(super) port: PortId,
    /// Whether that is for secure channel concatenation.
    is_concatenation: bool,
}

impl<S: Services> Login<S> {
    pub(super) fn new(accepted_ns: u64, deadline_ns: u64) -> Self {
        Self {
            accepted_ns,
            deadline_ns,
            pending: None,
            tls: None,
            session_memory: None,
            port: PortId::default(),
            is_concatenation: false,
        }
    }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Sets its count for its address.
    pub fn set_pending(&mut self, pending: Option<S::Pending>) {
        self.login.pending = pending;
    }

    /// The connection has TLS with the key of this host and subsystem.
    pub fn set_tls(&mut self, peer: Option<TlsPeer>, memory: Option<S::SessionMemory>) {
        self.login.tls = peer.map(Box::new);
        self.login.session_memory = memory;
    }

    /// The connection was accepted on this listener.
    pub fn set_listener(&mut self, port: PortId, security: Security) {
        self.login.port = port;
        self.login.is_concatenation = security == Security::Concatenation;
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
    fn claimed_standing(&self, host: &HostKey, cx: &Cx<S>) -> Standing {
        if self.generated_key().is_none() && cx.services.requires_authentication(host) {
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
    pub(super) fn check_concatenation(&self, qid: u16, host: &HostKey, cx: &Cx<S>) -> Result<(), ConnectRefusal> {
        match (&self.login.tls, qid) {
            (Some(peer), _) if peer.generated.is_none() => Ok(()),
            (Some(peer), _) if cx.services.is_key_good(peer, cx.now_ns) => Ok(()),
            (Some(_), _) => Err(ConnectRefusal::TLS_KEY_ENDED),
            (None, _) if !self.login.is_concatenation => Ok(()),
            (None, 0) if cx.services.requires_authentication(host) => Ok(()),
            (None, 0) => Err(ConnectRefusal::CONCATENATION_SECRET),
            (None, _) => Err(ConnectRefusal::CONCATENATION_QUEUE),
        }
    }

    /// The transport is ready: the time limit of Connect and authentication holds. It is at least that of ICReq.
    pub fn await_connect(&mut self, cx: &Cx<S>) {
        let limits = cx.services.limits();
        self.deadline_ns = self.login.accepted_ns + limits.connect_timeout_ns.max(limits.icreq_timeout_ns);
        self.login.deadline_ns = self.deadline_ns;
    }

    /// Checks that a key of TLS is that of this host and subsystem, and that a host with a key uses TLS.
    pub(super) fn check_tls(&self, host: &HostKey, subnqn: &str, cx: &Cx<S>) -> Result<(), ConnectRefusal> {
        match &self.login.tls {
            Some(peer) if *peer.hostnqn != *host.hostnqn || *peer.subnqn != *subnqn => Err(ConnectRefusal::TLS_OTHER),
            None if !self.login.is_concatenation && cx.services.requires_tls(host) => Err(ConnectRefusal::TLS_REQUIRED),
            _ => Ok(()),
        }
    }

    /// Admits a queue of `bytes` with its exchange and its TLS session, whose memory counted for itself until now.
    pub(super) fn admission(
        &mut self,
        host: HostKey,
        bytes: usize,
        cx: &Cx<S>,
    ) -> Result<S::Admission, ConnectRefusal> {
        let exchange_bytes = if cx.services.requires_authentication(&host) { EXCHANGE_BYTES } else { 0 };
        let session_bytes = if self.login.tls.is_some() { S::SESSION_BYTES } else { 0 };
        let standing = self.claimed_standing(&host, cx);
        self.login.session_memory = None;
        Ok(cx.services.admission(host, cx.me, bytes + exchange_bytes + session_bytes, standing)?)
    }

    /// The TLS session outlives a refused Connect: it counts for itself again, or the connection ends if there is no memory for it.
    pub(super) fn keep_session(&mut self, cx: &mut Cx<S>) {
        if self.login.tls.is_none() || self.login.session_memory.is_some() {
            return;
        }
        self.login.session_memory = cx.services.session_memory(self.peer.ip());
        if self.login.session_memory.is_none() {
            self.close_after_response(cx);
        }
    }

    /// The queue counts for its host from now on, or the connection ends if that, or its address, has too many.
    pub(super) fn admit(&mut self, cx: &mut Cx<S>) {
        self.login.pending = None;
        if let Role::Io(association) = &self.role {
            association.note_traffic();
        }
        let standing = self.admitted_standing();
        let Some(queue) = &mut self.queue else { return };
        let Err(full) = queue.admission.admit(standing) else { return };
        let refusal = ConnectRefusal::from(full);
        cx.services.note_refusal(refusal.counter);
        let host = queue.admission.host().hostnqn.as_str();
        tracing::warn!(host, peer = %self.peer, reason = refusal.reason, "connection ended");
        self.close_after_response(cx);
    }
}
