//! Feature identifiers and their values (Base 5.27), and the results of asynchronous events (Base 5.2).

/// Feature identifiers.
pub mod fid {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIGURATION: u8 = 0x0b;
    /// Autonomous Power State Transition.
    pub const POWER_TRANSITIONS: u8 = 0x0c;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 0x0e;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
    /// Reservation Notification Mask.
    pub const RESERVATION_MASK: u8 = 0x82;
    /// Reservation Persistence.
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// SEL of Get Features: the requested value (Base 5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The value in force.
    Current,
    /// The value after a reset.
    Default,
    /// The saved value.
    Saved,
    /// Capabilities of the feature, see [`capability`].
    Supported,
}

impl Select {
    /// Decodes command dword 10 of Get Features; `None` for a reserved value.
    #[must_use]
    pub const fn decode(cdw10: u32) -> Option<Self> {
        Some(match cdw10 >> 8 & 7 {
            0 => Self::Current,
            1 => Self::Default,
            2 => Self::Saved,
            3 => Self::Supported,
            _ => return None,
        })
    }
}

/// Bits of the result of Get Features with [`Select::Supported`].
pub mod capability {
    /// The feature can be saved.
    pub const SAVEABLE: u32 = 1;
    /// The feature is specific to a namespace.
    pub const NAMESPACE_SPECIFIC: u32 = 1 << 1;
    /// The feature can be changed.
    pub const CHANGEABLE: u32 = 1 << 2;
}

/// SV of Set Features: save the value (command dword 10).
pub const SAVE: u32 = 1 << 31;

/// Bits of the asynchronous event configuration, and of OAES (Base 5.27.1.8).
pub mod async_event {
    /// Namespace attribute notices.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Asymmetric namespace access change notices.
    pub const ANA_CHANGE: u32 = 1 << 11;
    /// Discovery log page change notices.
    pub const DISCOVERY_CHANGE: u32 = 1 << 31;
    /// SMART / health critical warnings.
    pub const SMART: u32 = 0xff;
}

/// Dword 0 of a completed Asynchronous Event Request: a notice with `information`; log page `lid` has the details.
#[must_use]
pub const fn notice(information: u8, lid: u8) -> u32 {
    const TYPE_NOTICE: u32 = 2;
    TYPE_NOTICE | (information as u32) << 8 | (lid as u32) << 16
}

/// The notice that namespace attributes have changed.
pub const NAMESPACE_CHANGED: u32 = notice(0x00, crate::log::lid::CHANGED_NAMESPACES);
/// The notice that the state of an ANA group has changed.
pub const ANA_CHANGED: u32 = notice(0x03, crate::log::lid::ANA);
/// The notice that the discovery log page has changed.
pub const DISCOVERY_CHANGED: u32 = notice(0xf0, crate::log::lid::DISCOVERY);
/// Reservation Log Page Available: event type 6h (I/O command set specific), information 00h.
pub const RESERVATION_LOG_AVAILABLE: u32 = 6 | (crate::log::lid::RESERVATION as u32) << 16;
