//! A configuration as it was written, from flags or from a file, before anything in it was understood.
//!
//! Both ways lead through this one form, so that both are checked by the same rules (`validate`) and neither can do
//! what the other cannot.

use super::problem::{Located, Origin};

/// A text and where it was written.
pub(crate) type Text = Located<String>;
/// A whole number and where it was written.
pub(crate) type Number = Located<i64>;

/// A server as it was written; what is `None` or empty was left to its default.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) listen: Vec<Text>,
    pub(crate) advertise: Option<Text>,
    /// Whether the discovery service is announced by multicast DNS.
    pub(crate) mdns: bool,
    pub(crate) referrals: Vec<ReferralDraft>,
    pub(crate) cores: Vec<Number>,
    pub(crate) main_core: Option<Number>,
    pub(crate) reactors: Option<Number>,
    pub(crate) io_threads: Option<Number>,
    pub(crate) sleep_after: Option<Text>,
    pub(crate) hotplug: bool,
    /// From the command line, also with a file.
    pub(crate) roots: Option<std::path::PathBuf>,
    pub(crate) power_states: bool,
    pub(crate) sensor: Option<Text>,
    pub(crate) goals: GoalsDraft,
    pub(crate) policy: PolicyDraft,
    pub(crate) admin_socket: Option<Text>,
    /// The group whose members may read over the control socket.
    pub(crate) read_group: Option<Text>,
    pub(crate) state_file: Option<Text>,
    /// Who gets idle energy, where energy is divided among hosts.
    pub(crate) energy_shares: Option<Text>,
    /// Where metrics are served.
    pub(crate) metrics: Option<Text>,
    pub(crate) log_format: Option<Text>,
    pub(crate) page: PageDraft,
    pub(crate) limits: LimitsDraft,
    pub(crate) background: BackgroundDraft,
    pub(crate) hosts: Vec<HostDraft>,
    pub(crate) classes: Vec<ClassDraft>,
    pub(crate) subsystems: Vec<SubsystemDraft>,
}

/// Another discovery service as it was written.
#[derive(Debug, Default)]
pub(crate) struct ReferralDraft {
    /// Where the referral as a whole stands.
    pub(crate) at: Origin,
    pub(crate) address: Option<Text>,
}

/// The page as it was written.
#[derive(Debug, Default)]
pub(crate) struct PageDraft {
    /// Where it is served.
    pub(crate) listen: Option<Text>,
    /// Accepted host names.
    pub(crate) hosts: Vec<Text>,
    pub(crate) token_file: Option<Text>,
    /// Milliseconds between two samples. From the command line, also with a file.
    pub(crate) tick_ms: Option<u64>,
}

/// A policy as it was written.
#[derive(Debug, Default)]
pub(crate) struct PolicyDraft {
    /// Where the choice as a whole stands.
    pub(crate) at: Origin,
    pub(crate) name: Option<Text>,
    /// Keys and values, in the order in which they were written.
    pub(crate) settings: Vec<(Text, Text)>,
}

/// Goals as they were written.
#[derive(Debug, Default)]
pub(crate) struct GoalsDraft {
    pub(crate) budget: Option<Text>,
    pub(crate) domain: Option<Text>,
    pub(crate) schedule: Option<Text>,
    pub(crate) profile: Option<Text>,
    pub(crate) tolerance: Option<Text>,
}

/// Limits as they were written.
#[derive(Debug, Default)]
pub(crate) struct LimitsDraft {
    pub(crate) max_memory: Option<Text>,
    pub(crate) buffer_memory: Option<Text>,
    pub(crate) queue_memory: Option<Text>,
    pub(crate) max_connections: Option<Number>,
    pub(crate) max_host_queues: Option<Number>,
    pub(crate) max_io_queues: Option<Number>,
    pub(crate) max_queue_depth: Option<Number>,
    pub(crate) icreq_timeout: Option<Text>,
    pub(crate) drain_timeout: Option<Text>,
}

/// A subsystem as it was written.
#[derive(Debug, Default)]
pub(crate) struct SubsystemDraft {
    /// Where the subsystem as a whole stands.
    pub(crate) at: Origin,
    pub(crate) nqn: Option<Text>,
    pub(crate) serial: Option<Text>,
    pub(crate) allowed_hosts: Vec<Text>,
    /// Identifiers that its controllers have, such as `1-1000`.
    pub(crate) controller_ids: Option<Text>,
    pub(crate) namespaces: Vec<NamespaceDraft>,
}

/// A namespace as it was written.
#[derive(Debug, Default)]
pub(crate) struct NamespaceDraft {
    /// Where the namespace as a whole stands.
    pub(crate) at: Origin,
    pub(crate) nsid: Option<Number>,
    pub(crate) backend: Option<Text>,
    pub(crate) block_size: Option<Number>,
    pub(crate) uuid: Option<Text>,
    /// The hosts that see it.
    pub(crate) hosts: Vec<Text>,
    /// Whether it may become smaller while the server runs.
    pub(crate) shrink: bool,
    pub(crate) max_bytes_per_s: Option<Text>,
    pub(crate) priority: Option<Number>,
    pub(crate) tolerance: Option<Text>,
    /// Whether it has checksums, in a file beside its own.
    pub(crate) checksums: bool,
    /// The file that they are in.
    pub(crate) checksums_file: Option<Text>,
    /// When freed ranges are trimmed.
    pub(crate) trim: Option<Text>,
}

/// Background work as it was written.
#[derive(Debug, Default)]
pub(crate) struct BackgroundDraft {
    pub(crate) scrub: Option<Text>,
    pub(crate) scrub_rate: Option<Text>,
    pub(crate) scrub_days: Option<Number>,
    pub(crate) trim_rate: Option<Text>,
}

/// A host.
#[derive(Debug, Default)]
pub(crate) struct HostDraft {
    /// Where the host as a whole stands.
    pub(crate) at: Origin,
    pub(crate) nqn: Option<Text>,
    pub(crate) max_bytes_per_s: Option<Text>,
    pub(crate) priority: Option<Number>,
}

/// A class of priority.
#[derive(Debug, Default)]
pub(crate) struct ClassDraft {
    /// Where the class as a whole stands.
    pub(crate) at: Origin,
    pub(crate) priority: Option<Number>,
    pub(crate) min_bytes_per_s: Option<Text>,
}
