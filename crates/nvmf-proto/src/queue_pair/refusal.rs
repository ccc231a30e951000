//! Refusals of Connect: status and parameter for the host (Base 6.3), reason for the log.

use pilotlight_nvme::Status;
use pilotlight_nvme::fabrics::nqn_from_field;

use super::{Cx, QueuePair, Transport};
use crate::queue_pair::message::ConnectRefusal;
use crate::refusal_reason::RefusalReason;
use crate::services::{Full, Services};

/// Offsets of Connect's parameters in the command and, with bit 16 set, in its data.
mod offset {
    const IN_DATA: u32 = 1 << 16;
    pub(super) const QID: u32 = 42;
    pub(super) const SQSIZE: u32 = 44;
    pub(super) const CNTLID: u32 = 16 | IN_DATA;
    pub(super) const SUBNQN: u32 = 256 | IN_DATA;
    pub(super) const HOSTNQN: u32 = 512 | IN_DATA;
    pub(super) const HOSTID: u32 = IN_DATA;
}

impl ConnectRefusal {
    /// An invalid parameter.
    const fn parameter(parameter: u32, reason: &'static str) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS.dnr();
        Self { status, parameter, reason, counter: RefusalReason::InvalidConnect }
    }

    /// A status without a parameter.
    pub(super) const fn status(status: Status, reason: &'static str) -> Self {
        Self { status, parameter: 0, reason, counter: RefusalReason::InvalidConnect }
    }

    /// No resources for another queue now; the host may retry.
    pub(super) const fn busy(reason: &'static str) -> Self {
        Self::status(Status::CONNECT_BUSY, reason).as_reason(RefusalReason::Busy)
    }

    const fn as_reason(self, counter: RefusalReason) -> Self {
        Self { counter, ..self }
    }

    pub(super) const OTHER_COMMAND: Self =
        Self::status(Status::COMMAND_SEQUENCE.dnr(), "the first command must be Connect");
    pub(super) const SGL: Self =
        Self::status(Status::SGL_TYPE_INVALID.dnr(), "SGL1: the data of Connect must be in the capsule");
    pub(super) const LENGTH: Self =
        Self::status(Status::SGL_LENGTH_INVALID.dnr(), "SGL1: the data of Connect must be 1,024 bytes");
    pub(super) const DATA_DIGEST: Self = Self::status(Status::TRANSIENT_TRANSPORT, "data digest error");
    pub(super) const RECFMT: Self = Self::status(Status::CONNECT_FORMAT.dnr(), "RECFMT: the record format must be 0");
    pub(super) const QID: Self =
        Self::parameter(offset::QID, "QID: exceeds the number of I/O queues granted by the controller");
    pub(super) const SQSIZE: Self = Self::parameter(
        offset::SQSIZE,
        "SQSIZE: 0 or above the limit (limits.max_queue_depth; for an admin queue 128 entries)",
    );
    pub(super) const CNTLID_STATIC: Self =
        Self::parameter(offset::CNTLID, "CNTLID: must be FFFFh for an admin queue (dynamic controllers)");
    pub(super) const CNTLID_UNKNOWN: Self =
        Self::parameter(offset::CNTLID, "CNTLID: no controller has this identifier, or it has ended");
    pub(super) const SUBNQN: Self =
        Self::parameter(offset::SUBNQN, "SUBNQN: no such subsystem").as_reason(RefusalReason::NoSuchSubsystem);
    pub(super) const OTHER_PORT: Self = Self::parameter(
        offset::SUBNQN,
        "SUBNQN: this subsystem is not offered on the address that the host has connected to (subsystem.listen)",
    )
    .as_reason(RefusalReason::NoSuchSubsystem);
    pub(super) const SUBNQN_OTHER: Self =
        Self::parameter(offset::SUBNQN, "SUBNQN: the controller belongs to another subsystem");
    pub(super) const HOSTNQN: Self =
        Self::parameter(offset::HOSTNQN, "HOSTNQN: not terminated within 224 bytes, or not UTF-8");
    pub(super) const HOSTNQN_OTHER: Self =
        Self::parameter(offset::HOSTNQN, "HOSTNQN: the controller belongs to another host NQN");
    pub(super) const HOSTID_OTHER: Self =
        Self::parameter(offset::HOSTID, "HOSTID: the controller belongs to another host identifier");
    pub(super) const HOST_NOT_ALLOWED: Self = Self::status(
        Status::CONNECT_INVALID_HOST.dnr(),
        "HOSTNQN: this host is not allowed (allowed_hosts, --allow-host)",
    )
    .as_reason(RefusalReason::HostNotAllowed);
    pub(super) const TLS_OTHER: Self = Self::status(
        Status::CONNECT_INVALID_HOST.dnr(),
        "HOSTNQN or SUBNQN: the TLS key of this connection belongs to another host or subsystem",
    )
    .as_reason(RefusalReason::HostNotAllowed);
    pub(super) const TLS_REQUIRED: Self = Self::status(
        Status::CONNECT_INVALID_HOST.dnr(),
        "HOSTNQN: this host has a TLS key and must connect with TLS (security.allow_plain admits it without)",
    )
    .as_reason(RefusalReason::HostNotAllowed);
    pub(super) const TLS_KEY_ENDED: Self = Self::status(
        Status::CONNECT_INVALID_HOST, // another key may do
        "HOSTNQN: the generated TLS key of this connection has ended: it or the host's secret was replaced, or its hour is over; connect without TLS to get another key",
    )
    .as_reason(RefusalReason::HostNotAllowed);
    pub(super) const CONCATENATION_SECRET: Self = Self::status(
        Status::CONNECT_INVALID_HOST.dnr(),
        "HOSTNQN: this address is for hosts that authenticate and then use TLS, and this one has no secret (security.secrets_file)",
    )
    .as_reason(RefusalReason::HostNotAllowed);
    pub(super) const CONCATENATION_QUEUE: Self = Self::status(
        Status::CONNECT_INVALID_HOST.dnr(),
        "QID: an I/O queue on this address needs TLS with the key that authentication has generated",
    )
    .as_reason(RefusalReason::HostNotAllowed);
    pub(super) const NO_CNTLID_LEFT: Self =
        Self::busy("every controller identifier is in use (controller_ids of the subsystem)");
    pub(super) const NO_ANSWER: Self = Self::busy("timeout waiting for an I/O thread");
    pub(super) const NOT_DRAINED: Self =
        Self::busy("timeout waiting for queues of the host's earlier association to stop")
            .as_reason(RefusalReason::NotDrained);
}

impl From<Full> for ConnectRefusal {
    fn from(full: Full) -> Self {
        match full {
            Full::Host => Self::busy("the host has reached its limit of queues (limits.max_host_queues)")
                .as_reason(RefusalReason::TooManyQueues),
            Full::HostMemory => {
                Self::busy("the host has reached its limit of memory for queues (limits.max_host_memory)")
                    .as_reason(RefusalReason::TooManyQueues)
            }
            Full::Claims => Self::busy(
                "too much memory for queues of hosts that have not authenticated yet, in total or of this address (limits.queue_memory)",
            )
            .as_reason(RefusalReason::NoQueueMemory),
            Full::Unproved => Self::busy(
                "too many queues of hosts without a secret or a TLS key, in total or of this address (limits.max_connections)",
            )
            .as_reason(RefusalReason::TooManyConnections),
            Full::UnprovedMemory => Self::busy(
                "too much memory for queues of hosts without a secret or a TLS key, in total or of this address (limits.queue_memory)",
            )
            .as_reason(RefusalReason::NoQueueMemory),
            Full::Memory => Self::busy("the memory for queues is exhausted (limits.queue_memory)")
                .as_reason(RefusalReason::NoQueueMemory),
        }
    }
}

/// The host NQN of a Connect; may be empty. SPDK's tools send an empty one by default; SPDK's and Linux's targets accept it
/// if any host is allowed.
pub(super) fn hostnqn_from_field(field: &[u8; 256]) -> Option<&str> {
    if field[0] == 0 { Some("") } else { nqn_from_field(field) }
}

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Completes a refused Connect and logs the reason. The names are those that the host sent, or empty.
    pub(super) fn refuse_connect(
        &mut self,
        cid: u16,
        refusal: ConnectRefusal,
        (host, nqn): (&str, Option<&str>),
        cx: &mut Cx<S>,
    ) {
        let ConnectRefusal { status, parameter, reason, counter } = refusal;
        cx.services.note_refusal(counter);
        self.count = None;
        tracing::warn!(host, nqn, peer = %self.peer, reason, %status, thread = cx.me.thread, "Connect refused");
        self.refuse(cid, status, u64::from(parameter));
        self.keep_session(cx);
    }
}
