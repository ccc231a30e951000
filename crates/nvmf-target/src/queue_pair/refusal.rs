//! Connect commands that are refused: the status and the parameter for the host (Base 6.3), and the reason for the operator.

use pilotlight_nvme::Status;
use pilotlight_nvme::fabrics::nqn_from_field;

use super::{Cx, QueuePair, Transport};
use crate::admission::Full;
use crate::message::ConnectRefusal;
use crate::refusals::RefusalReason;

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
    /// A parameter that is not valid.
    const fn parameter(parameter: u32, reason: &'static str) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS.dnr();
        Self { status, parameter, reason, counts_as: RefusalReason::InvalidConnect }
    }

    /// A status that names no parameter.
    pub(super) const fn status(status: Status, reason: &'static str) -> Self {
        Self { status, parameter: 0, reason, counts_as: RefusalReason::InvalidConnect }
    }

    /// The target cannot take one more queue now; the host may try again.
    pub(super) const fn busy(reason: &'static str) -> Self {
        Self::status(Status::CONNECT_BUSY, reason).as_reason(RefusalReason::Busy)
    }

    const fn as_reason(self, counts_as: RefusalReason) -> Self {
        Self { counts_as, ..self }
    }

    pub(super) const OTHER_COMMAND: Self =
        Self::status(Status::COMMAND_SEQUENCE.dnr(), "the first command of the connection is another one");
    pub(super) const SGL: Self =
        Self::status(Status::SGL_TYPE_INVALID.dnr(), "SGL1: the data of Connect have to be in the capsule");
    pub(super) const LENGTH: Self =
        Self::status(Status::SGL_LENGTH_INVALID.dnr(), "SGL1: the data of Connect have to be 1,024 bytes");
    pub(super) const DATA_DIGEST: Self =
        Self::status(Status::TRANSIENT_TRANSPORT, "the data digest is wrong: the data were damaged on the way");
    pub(super) const RECFMT: Self =
        Self::status(Status::CONNECT_FORMAT.dnr(), "RECFMT: the record format is not 0, the only one there is");
    pub(super) const QID: Self =
        Self::parameter(offset::QID, "QID: it is above the number of I/O queues that the controller has granted");
    pub(super) const SQSIZE: Self = Self::parameter(
        offset::SQSIZE,
        "SQSIZE: it is 0 or above the limit (limits.max_queue_depth; for an admin queue 128 entries)",
    );
    pub(super) const CNTLID_STATIC: Self =
        Self::parameter(offset::CNTLID, "CNTLID: controllers are dynamic, an admin queue has to ask for FFFFh");
    pub(super) const CNTLID_UNKNOWN: Self =
        Self::parameter(offset::CNTLID, "CNTLID: no controller has this identifier, or it has ended");
    pub(super) const SUBNQN: Self =
        Self::parameter(offset::SUBNQN, "SUBNQN: there is no such subsystem").as_reason(RefusalReason::NoSuchSubsystem);
    pub(super) const SUBNQN_OTHER: Self =
        Self::parameter(offset::SUBNQN, "SUBNQN: the controller belongs to another subsystem");
    pub(super) const HOSTNQN: Self =
        Self::parameter(offset::HOSTNQN, "HOSTNQN: it has no end within 224 bytes or is not UTF-8");
    pub(super) const HOSTNQN_OTHER: Self =
        Self::parameter(offset::HOSTNQN, "HOSTNQN: the controller belongs to another host NQN");
    pub(super) const HOSTID_OTHER: Self =
        Self::parameter(offset::HOSTID, "HOSTID: the controller belongs to another host identifier");
    pub(super) const HOST_NOT_ALLOWED: Self = Self::status(
        Status::CONNECT_INVALID_HOST.dnr(),
        "HOSTNQN: this host is not on the subsystem's list (allowed_hosts, --allow-host)",
    )
    .as_reason(RefusalReason::HostNotAllowed);
    pub(super) const NO_CNTLID_LEFT: Self =
        Self::busy("every controller identifier is in use (controller_ids of the subsystem)");
    pub(super) const NO_ANSWER: Self = Self::busy("an I/O thread has not answered for too long");
    pub(super) const NOT_DRAINED: Self =
        Self::busy("requests of the host's earlier queues were in the backends for too long")
            .as_reason(RefusalReason::NotDrained);
}

impl From<Full> for ConnectRefusal {
    fn from(full: Full) -> Self {
        match full {
            Full::Host => Self::busy("the host has as many queues as it may have (limits.max_host_queues)")
                .as_reason(RefusalReason::TooManyQueues),
            Full::Memory => Self::busy("the memory for queues is used up (limits.queue_memory)")
                .as_reason(RefusalReason::NoQueueMemory),
        }
    }
}

/// The host NQN of a Connect; empty for a host that has none. SPDK's tools send an empty one unless told otherwise; SPDK's
/// target and Linux's accept it where any host is allowed.
pub(super) fn hostnqn_from_field(field: &[u8; 256]) -> Option<&str> {
    if field[0] == 0 { Some("") } else { nqn_from_field(field) }
}

impl<T: Transport> QueuePair<T> {
    /// Answers a Connect that is refused, and says why in the log. The names are those that the host sent, or empty.
    pub(super) fn refuse_connect(
        &mut self,
        cid: u16,
        refusal: ConnectRefusal,
        (host, nqn): (&str, Option<&str>),
        cx: &Cx,
    ) {
        let ConnectRefusal { status, parameter, reason, counts_as } = refusal;
        cx.shared.refusals.note(counts_as);
        tracing::warn!(host, nqn, peer = %self.peer, reason, %status, thread = cx.me.thread, "Connect refused");
        self.refuse(cid, status, u64::from(parameter));
    }
}
