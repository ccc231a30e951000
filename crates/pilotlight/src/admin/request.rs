//! Requests over the control socket: one JSON object per line. docs/operate/watch.md is the reference.
//!
//! Variants and fields have the names of the protocol, and serde derives both directions. A refusal names the field; an unknown field is
//! refused, so that a mistyped `nsdi` is not ignored.

use pilotlight_storage::background::control::Class;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use crate::policies::PolicyChoice;

/// The version of the protocol.
pub(crate) const VERSION: u64 = 1;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The state of the server; rates since the previous status request of this connection.
    Status {},
    /// Whether the server works; wakes no core.
    Health {},
    /// Replaces the policy, or its parameters.
    SetPolicy(PolicyChoice),
    SetGoals(GoalsRequest),
    /// Limits all budgets until a deadline, and afterwards.
    SetLimit(LimitRequest),
    /// Power, load and the limit, from counters only: wakes no core.
    Counters {
        /// Look for the component that limits throughput; that wakes the main core.
        #[serde(default)]
        bottleneck: bool,
    },
    SetCap(CapRequest),
    SetPriority(PriorityRequest),
    SetMinimum(MinimumRequest),
    /// Pauses a class of background work, or resumes it.
    SetBackground {
        class: BackgroundClass,
        state: BackgroundState,
    },
    /// Allowed hosts of a subsystem, or of all.
    HostList {
        nqn: Option<String>,
    },
    HostAdd(HostAdd),
    HostRemove(HostRemove),
    /// Writes the changes to the configuration file.
    ConfigSave(SaveRequest),
    /// All associations.
    Connections {},
    Disconnect(DisconnectRequest),
    /// Namespaces of a subsystem, or of all.
    NamespaceList {
        nqn: Option<String>,
    },
    NamespaceAdd(NamespaceAdd),
    NamespaceRemove {
        nqn: Option<String>,
        nsid: i64,
    },
    NamespaceResize(NamespaceResize),
    NamespaceShow(NamespaceShow),
    NamespaceHide(NamespaceHide),
    /// Addresses that the server listens on.
    ListenerList {},
    ListenerAdd {
        address: String,
        #[serde(default)]
        security: ListenerSecurity,
    },
    ListenerRemove {
        address: String,
    },
    /// The states of paths.
    PathList {},
    /// Sets the state of paths by an address, or for `configured` what the configuration has.
    PathSet {
        address: String,
        state: String,
        /// Without it all groups.
        group: Option<i64>,
    },
    /// All subsystems.
    SubsystemList {},
    SubsystemAdd(SubsystemAdd),
    SubsystemRemove {
        nqn: String,
    },
    /// Offers a subsystem on these addresses alone; an empty list: on all.
    SubsystemListen {
        nqn: String,
        listen: Vec<String>,
    },
}

/// How the connections of a listener are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ListenerSecurity {
    /// Not at all.
    #[default]
    None,
    Tls,
    /// Authentication, then TLS with the key that this generates.
    Concat,
}

/// A new subsystem, without namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubsystemAdd {
    pub(crate) nqn: String,
    /// Hosts that may connect.
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    /// Any host may.
    #[serde(default)]
    pub(crate) allow_any: bool,
    /// Addresses on which it is offered; none: all.
    #[serde(default)]
    pub(crate) listen: Vec<String>,
}

/// Goals to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoalsRequest {
    /// A power, `off` or `default`.
    pub(crate) budget: Option<String>,
    /// The duration of the budget.
    #[serde(rename = "for")]
    pub(crate) duration: Option<String>,
    pub(crate) domain: Option<String>,
    /// A latency bound, or `off`.
    pub(crate) tolerance: Option<String>,
    /// The namespace of the tolerance; without it the server's.
    pub(crate) nsid: Option<i64>,
    pub(crate) nqn: Option<String>,
    /// Change nothing, only report the effect.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Refuse a budget that cannot be held; withdraw it if that turns out later.
    #[serde(default)]
    pub(crate) strict: bool,
}

/// A limit of all budgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitRequest {
    /// The limit until the deadline, such as `300W`.
    pub(crate) power: String,
    /// The deadline: `CLOCK_BOOTTIME`.
    pub(crate) until_boottime_ns: u64,
    /// The limit after it.
    pub(crate) then: String,
}

/// A bandwidth cap of a namespace or a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapRequest {
    pub(crate) host: Option<String>,
    pub(crate) nsid: Option<i64>,
    pub(crate) nqn: Option<String>,
    /// A rate, or `off`.
    pub(crate) max_bytes_per_s: String,
}

/// The priority of a namespace or a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriorityRequest {
    pub(crate) host: Option<String>,
    pub(crate) nsid: Option<i64>,
    pub(crate) nqn: Option<String>,
    /// 0 to 255, `off` or `default`.
    pub(crate) priority: String,
}

/// The minimum bandwidth of each namespace and host of a priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MinimumRequest {
    pub(crate) priority: i64,
    /// A rate, `off` or `default`.
    pub(crate) min_bytes_per_s: String,
}

/// A class of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BackgroundClass {
    Scrub,
    Trim,
}

impl From<BackgroundClass> for Class {
    fn from(class: BackgroundClass) -> Self {
        match class {
            BackgroundClass::Scrub => Self::Scrub,
            BackgroundClass::Trim => Self::Trim,
        }
    }
}

/// A state of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BackgroundState {
    /// Stop it, its minimum rate included
    Pause,
    /// Continue it
    Resume,
}

/// One more allowed host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostAdd {
    pub(crate) nqn: Option<String>,
    pub(crate) host: String,
    /// Where any host is allowed: allow this one only.
    #[serde(default)]
    pub(crate) only: bool,
}

/// A host that is no longer allowed; its associations end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostRemove {
    pub(crate) nqn: Option<String>,
    pub(crate) host: String,
    /// If it is the last one: allow any host.
    #[serde(default)]
    pub(crate) allow_any: bool,
}

/// Ends the associations of a host with a subsystem, or with all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DisconnectRequest {
    pub(crate) host: String,
    pub(crate) nqn: Option<String>,
}

/// Where to save the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SaveRequest {
    /// An absolute path, for a server that was started without a configuration file.
    pub(crate) to: Option<String>,
    /// Replace a file that exists, or that has changed since it was read.
    #[serde(default)]
    pub(crate) force: bool,
}

/// A new namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceAdd {
    pub(crate) nqn: Option<String>,
    /// Without it the lowest free one.
    pub(crate) nsid: Option<i64>,
    pub(crate) backend: String,
    pub(crate) block_size: Option<i64>,
    pub(crate) uuid: Option<String>,
}

/// A new size of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceResize {
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: i64,
    /// With a unit; without it the present size of the file or device.
    pub(crate) size: Option<String>,
    /// Allow it to shrink; the data beyond the new end is lost.
    #[serde(default)]
    pub(crate) shrink: bool,
}

/// Shows a namespace to hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceShow {
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: i64,
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    /// To all allowed hosts.
    #[serde(default)]
    pub(crate) all: bool,
    /// To no other host.
    #[serde(default)]
    pub(crate) only: bool,
}

/// Hides a namespace from hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceHide {
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: i64,
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
}

/// A namespace or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// Without an NQN: of the only subsystem.
    Namespace {
        nqn: Option<&'a str>,
        nsid: i64,
    },
    Host(&'a str),
}

impl<'a> Target<'a> {
    fn from_fields(host: Option<&'a String>, nqn: Option<&'a String>, nsid: Option<i64>) -> Result<Self, Refusal> {
        let nqn = nqn.map(String::as_str);
        match (host, nsid) {
            (Some(_), Some(_)) => Err(exclusive("nsid", "host")),
            (Some(_), None) if nqn.is_some() => Err(exclusive("nqn", "host")),
            (Some(host), None) => Ok(Self::Host(host)),
            (None, Some(nsid)) => Ok(Self::Namespace { nqn, nsid }),
            (None, None) => Err(Refusal::for_field("nsid", "missing field `nsid` (or `host`)")),
        }
    }
}

impl CapRequest {
    pub(crate) fn target(&self) -> Result<Target<'_>, Refusal> {
        Target::from_fields(self.host.as_ref(), self.nqn.as_ref(), self.nsid)
    }
}

impl PriorityRequest {
    pub(crate) fn target(&self) -> Result<Target<'_>, Refusal> {
        Target::from_fields(self.host.as_ref(), self.nqn.as_ref(), self.nsid)
    }
}

impl GoalsRequest {
    /// The namespace of the tolerance.
    pub(crate) fn target(&self) -> Option<Target<'_>> {
        self.nsid.map(|nsid| Target::Namespace { nqn: self.nqn.as_deref(), nsid })
    }

    fn check(&self) -> Result<(), Refusal> {
        match (&self.budget, &self.tolerance) {
            (None, None) => Err(Refusal::for_field("budget", "missing field `budget` or `tolerance`")),
            (None, _) if self.duration.is_some() => Err(needs("for", "budget")),
            (None, _) if self.domain.is_some() => Err(needs("domain", "budget")),
            (_, None) if self.nsid.is_some() => Err(needs("nsid", "tolerance")),
            _ if self.nqn.is_some() && self.nsid.is_none() => Err(needs("nqn", "nsid")),
            _ => Ok(()),
        }
    }
}

impl NamespaceShow {
    fn check(&self) -> Result<(), Refusal> {
        match (self.all, self.only) {
            (true, true) => Err(exclusive("only", "all")),
            (true, false) if !self.hosts.is_empty() => Err(exclusive("hosts", "all")),
            (true, false) => Ok(()),
            (false, _) => has_hosts(&self.hosts),
        }
    }
}

fn exclusive(field: &str, other: &str) -> Refusal {
    Refusal::for_field(field, format!("`{field}` cannot be used together with `{other}`"))
}

fn needs(field: &str, other: &str) -> Refusal {
    Refusal::for_field(field, format!("`{field}` needs `{other}`"))
}

fn has_hosts(hosts: &[String]) -> Result<(), Refusal> {
    if hosts.is_empty() { Err(Refusal::for_field("hosts", "no host is named")) } else { Ok(()) }
}

impl Request {
    /// Whether users that may only read may send it.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Status {}
                | Self::Counters { .. }
                | Self::Connections {}
                | Self::HostList { .. }
                | Self::NamespaceList { .. }
                | Self::ListenerList {}
                | Self::SubsystemList {}
                | Self::PathList {}
        )
    }

    /// Parses a line.
    ///
    /// # Errors
    /// If it is not a valid request; the refusal names the field.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let mut fields = match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Err(example("a request is a JSON object")),
            Err(error) => return Err(example(&format!("invalid JSON: {error}"))),
        };
        check_version(&fields.remove("version").ok_or_else(|| missing("version"))?)?;
        let command = serde_json::from_value(fields.remove("command").ok_or_else(|| missing("command"))?);
        let command: String = command.map_err(|error| Refusal::for_field("command", error))?;
        let tagged = Value::Object(Map::from_iter([(command, Value::Object(fields))]));
        let request: Self = serde_path_to_error::deserialize(tagged).map_err(|error| refusal(&error))?;
        request.check()?;
        Ok(request)
    }

    /// Rules across fields.
    fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::SetGoals(request) => request.check(),
            Self::SetCap(request) => request.target().map(drop),
            Self::SetPriority(request) => request.target().map(drop),
            Self::NamespaceShow(request) => request.check(),
            Self::NamespaceHide(request) => has_hosts(&request.hosts),
            _ => Ok(()),
        }
    }

    /// The request as a line, without the line feed.
    pub(crate) fn to_line(&self) -> String {
        let Ok(Value::Object(tagged)) = serde_json::to_value(self) else { unreachable!("requests are JSON objects") };
        let (command, fields) = tagged.into_iter().next().unwrap_or_default();
        let mut line = json!({ "version": VERSION, "command": command });
        if let (Value::Object(line), Value::Object(fields)) = (&mut line, fields) {
            line.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        line.to_string()
    }
}

fn example(message: &str) -> Refusal {
    Refusal::new(message).help(format!("a request is one line such as {}", Request::Status {}.to_line()))
}

fn check_version(version: &Value) -> Result<(), Refusal> {
    if version.as_u64() == Some(VERSION) {
        return Ok(());
    }
    let message = format!("this server has protocol version {VERSION}, not {version}");
    Err(Refusal::for_field("version", message).help("use the `pilotlight` of the server's own version"))
}

fn missing(field: &str) -> Refusal {
    Refusal::for_field(field, format!("missing field `{field}`"))
}

/// serde has the place of a wrong value in the path. A missing or unknown field has only the path of the object: its name is in the message.
fn refusal(error: &serde_path_to_error::Error<serde_json::Error>) -> Refusal {
    let message = error.inner().to_string();
    if message.starts_with("unknown variant") && error.path().iter().count() < 2 {
        return Refusal::for_field("command", message.replacen("unknown variant", "unknown command", 1));
    }
    let path = error.path().to_string();
    let in_path = path.split_once('.').map(|(_command, field)| field);
    let in_message =
        || message.strip_prefix("missing field `").or(message.strip_prefix("unknown field `"))?.split('`').next();
    match in_path.or_else(in_message) {
        Some(field) => Refusal::for_field(field, &message),
        None => Refusal::new(&message),
    }
}

#[cfg(test)]
mod tests;
