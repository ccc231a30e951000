//! Status codes of completion queue entries (Base 3.3.3.2.1, those of Fabrics commands among them; NVM 3.1).

/// Status of a completed command: status code type, status code, Do Not Retry and More.
///
/// The value is the completion queue entry's status field without the phase tag: SC in bits 7:0, SCT in bits 10:8,
/// CRD in bits 12:11, More in bit 13, DNR in bit 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

const DNR: u16 = 1 << 14;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:expr, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status($value);)*

            /// Name of the status in the specification, or `None` for a code without a constant here. Command
            /// specific codes from 80h on are interpreted as those of Fabrics commands.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 & 0x7ff {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Successful completion.
    SUCCESS = 0x000, "Successful Completion";
    /// Invalid Command Opcode.
    INVALID_OPCODE = 0x001, "Invalid Command Opcode";
    /// Invalid Field in Command.
    INVALID_FIELD = 0x002, "Invalid Field in Command";
    /// Command ID Conflict.
    CID_CONFLICT = 0x003, "Command ID Conflict";
    /// Data Transfer Error.
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    /// Internal Error.
    INTERNAL = 0x006, "Internal Error";
    /// Command Abort Requested.
    ABORT_REQUESTED = 0x007, "Command Abort Requested";
    /// Command Aborted due to SQ Deletion.
    ABORTED_SQ_DELETION = 0x008, "Command Aborted due to SQ Deletion";
    /// Command Aborted due to Failed Fused Command.
    FAILED_FUSED = 0x009, "Command Aborted due to Failed Fused Command";
    /// Command Aborted due to Missing Fused Command.
    MISSING_FUSED = 0x00a, "Command Aborted due to Missing Fused Command";
    /// Invalid Namespace or Format.
    INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    /// Command Sequence Error.
    COMMAND_SEQUENCE = 0x00c, "Command Sequence Error";
    /// Invalid SGL Segment Descriptor.
    INVALID_SGL_SEGMENT = 0x00d, "Invalid SGL Segment Descriptor";
    /// Invalid Number of SGL Descriptors.
    INVALID_SGL_COUNT = 0x00e, "Invalid Number of SGL Descriptors";
    /// Data SGL Length Invalid.
    SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
    /// SGL Descriptor Type Invalid.
    SGL_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    /// Operation Denied.
    OPERATION_DENIED = 0x015, "Operation Denied";
    /// SGL Offset Invalid.
    SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    /// Host Identifier Inconsistent Format.
    HOST_ID_FORMAT = 0x018, "Host Identifier Inconsistent Format";
    /// Keep Alive Timer Expired.
    KEEP_ALIVE_EXPIRED = 0x019, "Keep Alive Timer Expired";
    /// Keep Alive Timeout Invalid.
    KEEP_ALIVE_INVALID = 0x01a, "Keep Alive Timeout Invalid";
    /// Command Aborted due to Preempt and Abort.
    PREEMPTED = 0x01b, "Command Aborted due to Preempt and Abort";
    /// Namespace is Write Protected.
    WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
    /// Command Interrupted: only for hosts that set ACRE in the Host Behavior Support feature, never with Do Not Retry.
    COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
    /// Transient Transport Error, such as a data digest mismatch (TCP 3.5).
    TRANSIENT_TRANSPORT = 0x022, "Transient Transport Error";
    /// LBA Out of Range.
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    /// Capacity Exceeded.
    CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    /// Namespace Not Ready.
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    /// Reservation Conflict.
    RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
    /// Abort Command Limit Exceeded.
    ABORT_LIMIT = 0x103, "Abort Command Limit Exceeded";
    /// Async Event Request Limit Exceeded.
    AER_LIMIT = 0x105, "Asynchronous Event Request Limit Exceeded";
    /// Invalid Log Page.
    INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
    /// Feature Identifier Not Saveable.
    FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    /// Feature Not Changeable.
    FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    /// Feature Not Namespace Specific.
    FEATURE_NOT_NAMESPACE = 0x10f, "Feature Not Namespace Specific";
    /// Invalid I/O Command Set.
    INVALID_IO_COMMAND_SET = 0x12c, "Invalid I/O Command Set";
    /// Connect: Incompatible Format.
    CONNECT_FORMAT = 0x180, "Connect Incompatible Format";
    /// Connect: Controller Busy.
    CONNECT_BUSY = 0x181, "Connect Controller Busy";
    /// Connect: Invalid Parameters.
    CONNECT_INVALID_PARAMETERS = 0x182, "Connect Invalid Parameters";
    /// Connect: Restart Discovery.
    CONNECT_RESTART_DISCOVERY = 0x183, "Connect Restart Discovery";
    /// Connect: Invalid Host.
    CONNECT_INVALID_HOST = 0x184, "Connect Invalid Host";
    /// Disconnect: Invalid Queue Type.
    DISCONNECT_QUEUE_TYPE = 0x185, "Invalid Queue Type";
    /// Authentication Required.
    AUTHENTICATION_REQUIRED = 0x191, "Authentication Required";
    /// Discover Restart.
    DISCOVER_RESTART = 0x190, "Discover Restart";
    /// Write Fault.
    WRITE_FAULT = 0x280, "Write Fault";
    /// Unrecovered Read Error.
    UNRECOVERED_READ = 0x281, "Unrecovered Read Error";
    /// Compare Failure.
    COMPARE_FAILURE = 0x285, "Compare Failure";
    /// Access Denied.
    ACCESS_DENIED = 0x286, "Access Denied";
    /// Asymmetric Access Persistent Loss.
    ANA_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
    /// Asymmetric Access Inaccessible.
    ANA_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
    /// Asymmetric Access Transition.
    ANA_TRANSITION = 0x303, "Asymmetric Access Transition";
}

impl Status {
    /// Command Size Limit Exceeded, of NVM commands (NVM 3.1). It shares its number with
    /// [`Status::CONNECT_RESTART_DISCOVERY`]: from 80h on, command specific codes differ between Fabrics and I/O commands.
    pub const COMMAND_SIZE_LIMIT: Status = Status(0x183);

    /// From status code type and status code.
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 7) << 8 | sc as u16)
    }

    /// The same status with Do Not Retry.
    #[must_use]
    pub const fn dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// Whether Do Not Retry is set.
    #[must_use]
    pub const fn is_dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// The status without Do Not Retry, for comparisons.
    #[must_use]
    pub const fn code(self) -> Self {
        Self(self.0 & 0x7ff)
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// The 16-bit field of a completion queue entry, phase tag 0.
    #[must_use]
    pub const fn to_field(self) -> u16 {
        self.0 << 1
    }

    /// From the 16-bit field of a completion queue entry.
    #[must_use]
    pub const fn from_field(field: u16) -> Self {
        Self(field >> 1)
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sct, sc) = (self.0 >> 8 & 7, self.0 & 0xff);
        let dnr = if self.is_dnr() { ", do not retry" } else { "" };
        match self.code().name() {
            Some(name) => write!(f, "{name} (SCT {sct:x}h SC {sc:02x}h{dnr})"),
            None => write!(f, "status SCT {sct:x}h SC {sc:02x}h{dnr}"),
        }
    }
}
