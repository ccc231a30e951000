//! The server, as queue pairs use it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pilotlight_auth::tls::TlsPsk;
use pilotlight_auth::{Concatenation, Config, Secret};
use pilotlight_nvmf_proto::ids::{ConnAddr, HostKey};
use pilotlight_nvmf_proto::refusal_reason::RefusalReason;
use pilotlight_nvmf_proto::services::{
    AuthenticationRequest, Full, ReservationRequest, Secrets, Services, Standing, ThreadLimits, Totals,
    UtilizationRequest,
};
use pilotlight_nvmf_proto::tls_peer::TlsPeer;

use crate::accounting::{QueueAccount, ThreadAccounting};
use crate::hosts::addresses::Pending;
use crate::hosts::admission::{Admission, SessionMemory};
use crate::hosts::associations::Associations;
use crate::namespaces::Namespaces;
use crate::shared::Shared;
use crate::thread::classes::QueueCount;

impl Secrets for Shared {
    fn requires_authentication(&self, host: &HostKey) -> bool {
        self.hosts.authenticator.is_required(host)
    }

    fn requires_tls(&self, host: &HostKey) -> bool {
        self.hosts.authenticator.requires_tls(host)
    }

    fn is_key_good(&self, peer: &TlsPeer, now_ns: u64) -> bool {
        self.hosts.generated_key(peer, now_ns).is_some()
    }

    fn exchange_config(&self, host: &HostKey, subnqn: &str, concatenation: Concatenation) -> Option<Arc<Config>> {
        self.hosts.authenticator.exchange_config(host, subnqn, concatenation)
    }

    fn keep_key(&self, key: (TlsPsk, Secret), nqns: (&str, &str), replaced: Option<&str>, now_ns: u64) {
        self.hosts.generated.keep(key, nqns, replaced, now_ns);
    }

    fn request_check(&self, request: AuthenticationRequest) -> bool {
        self.authentication.submit(request)
    }
}

impl Services for Shared {
    type Associations = Associations;
    type Namespaces = Namespaces;
    type Accounting = ThreadAccounting;
    type Account = QueueAccount;
    type Admission = Admission;
    type Pending = Pending;
    type SessionMemory = SessionMemory;
    type QueueCount = QueueCount;

    const SESSION_BYTES: usize = pilotlight_tls::SESSION_BYTES;

    fn limits(&self) -> &ThreadLimits {
        &self.limits
    }

    fn has_power_states(&self) -> bool {
        self.config.power_states
    }

    fn totals(&self) -> Totals {
        self.counters.iter().map(|counters| counters.totals()).fold(Totals::default(), |a, b| a + b)
    }

    fn power_on(&self) -> Duration {
        self.started.elapsed()
    }

    #[inline]
    fn are_caps_in_use(&self) -> bool {
        self.caps.are_in_use()
    }

    fn associations(&self) -> &Associations {
        &self.hosts.associations
    }

    fn request_utilization(&self, request: UtilizationRequest) -> bool {
        self.utilization.submit(request)
    }

    fn request_reservation(&self, request: ReservationRequest) -> bool {
        self.reservations.submit(request)
    }

    fn note_refusal(&self, reason: RefusalReason) {
        self.hosts.refusals.note(reason);
    }

    fn note_failure(&self) {
        self.failed.wake();
    }

    fn place(&self, hostnqn: &str, subsystem: usize, is_io: bool, here: u16) -> Option<(u16, Option<QueueCount>)> {
        self.placement.place(hostnqn, subsystem, is_io, here).map(|place| (place.thread, place.count))
    }

    fn count_queue(&self, thread: u16) -> QueueCount {
        self.placement.count(thread)
    }

    fn admission(&self, host: HostKey, queue: ConnAddr, bytes: usize, standing: Standing) -> Result<Admission, Full> {
        Admission::new(&self.hosts, host, queue, bytes, standing)
    }

    fn session_memory(&self, address: IpAddr) -> Option<SessionMemory> {
        SessionMemory::new(&self.hosts, address).ok()
    }
}
