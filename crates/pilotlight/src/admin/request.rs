//! What can be asked over the control socket: one JSON object on a line, both ways of it.
//!
//! Reading names the field that is wrong, and refuses what it does not know, so that a mistyped `nsdi` does not quietly
//! become a default. docs/operating.md is the reference.

use serde_json::{Map, Value, json};

use super::answer::Refusal;
use super::background::BackgroundRequest;
use super::hosts::{DisconnectRequest, HostRequest, ShowRequest};
use super::save::SaveRequest;
use crate::policies::{PolicyChoice, key_and_value};

/// The version of requests and answers that this program speaks.
pub(crate) const VERSION: u64 = 1;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// What the server is and does; rates since this connection asked last.
    Status,
    /// Whether it works; wakes no core.
    Health,
    /// Let another policy decide, or the same one with other parameters.
    SetPolicy(PolicyChoice),
    /// Ask something else of the policy.
    SetGoals(GoalsRequest),
    /// Cap the bandwidth of a namespace or a host, or no longer.
    SetCap(CapRequest),
    /// Give a namespace or a host another priority.
    SetPriority(PriorityRequest),
    /// Let a priority keep another bandwidth under a budget.
    SetMinimum(MinimumRequest),
    /// Pause a class of background work, or resume it.
    SetBackground(BackgroundRequest),
    /// Something about the hosts that may connect to this subsystem; `None`: the only one.
    Hosts(Option<String>, HostRequest),
    /// Write what was changed to the configuration file.
    Save(SaveRequest),
    /// Every association.
    Connections,
    /// End the associations of a host.
    Disconnect(DisconnectRequest),
    /// Something about namespaces, in this subsystem; `None`: the only one.
    Namespace(Option<String>, NamespaceRequest),
}

/// Goals that are to change, as they are written; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GoalsRequest {
    /// Most power, `off` or `default`.
    pub(crate) budget: Option<String>,
    /// How long that budget holds.
    pub(crate) time: Option<String>,
    /// What budgets are of.
    pub(crate) domain: Option<String>,
    /// How much longer requests may take, or `off`.
    pub(crate) tolerance: Option<String>,
    /// The namespace whose tolerance that is; `None`: the server's.
    pub(crate) tolerance_of: Option<CapTarget>,
    /// Change nothing, only answer what would be.
    pub(crate) dry_run: bool,
    /// Refuse a budget that cannot be held, and take it back where that shows only later.
    pub(crate) strict: bool,
}

/// A bandwidth cap, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapRequest {
    /// What is capped.
    pub(crate) of: CapTarget,
    /// Most bytes a second, or `off`.
    pub(crate) max_bytes_per_s: String,
}

/// A priority, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriorityRequest {
    /// What has it.
    pub(crate) of: CapTarget,
    /// 0 to 255, `off` or `default`.
    pub(crate) priority: String,
}

/// Bandwidth that each namespace and host of a priority keeps, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MinimumRequest {
    /// The priority.
    pub(crate) priority: i64,
    /// Bytes a second, `off` or `default`.
    pub(crate) min_bytes_per_s: String,
}

/// What is to be capped, or has a priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CapTarget {
    /// A namespace of a subsystem; without its name of the only one.
    Namespace {
        /// The subsystem.
        nqn: Option<String>,
        /// The number.
        nsid: i64,
    },
    /// A host, by its NQN.
    Host(String),
}

/// Something about namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceRequest {
    /// All of them; without a subsystem's name those of every subsystem.
    List,
    /// A new one.
    Add(NewNamespace),
    /// This one no longer.
    Remove {
        /// Its number.
        nsid: i64,
    },
    /// Another size.
    Resize(Resize),
    /// Other hosts that see it.
    Show(ShowRequest),
}

/// A namespace's size that is to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resize {
    /// Its number.
    pub(crate) nsid: i64,
    /// The size, with a unit; `None`: what its file or device has become.
    pub(crate) size: Option<String>,
    /// Whether it may become smaller, and lose what lies behind.
    pub(crate) shrink: bool,
}

/// A namespace that is to be added, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewNamespace {
    /// Its number; `None`: the lowest that is free.
    pub(crate) nsid: Option<i64>,
    /// What holds its blocks.
    pub(crate) backend: String,
    /// Bytes in a block.
    pub(crate) block_size: Option<i64>,
    /// Its UUID.
    pub(crate) uuid: Option<String>,
}

impl Request {
    /// Whether it changes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::Connections
                | Self::Hosts(_, HostRequest::List)
                | Self::Namespace(_, NamespaceRequest::List)
        )
    }

    /// Reads a line.
    ///
    /// # Errors
    /// If it is no request; the refusal names the field.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Refusal> {
        let mut fields = Fields::of(line)?;
        fields.version()?;
        let command = fields.required("command", Fields::text)?;
        let request = match command.as_str() {
            "status" => Self::Status,
            "health" => Self::Health,
            "set-policy" => Self::SetPolicy(fields.policy()?),
            "set-goals" => Self::SetGoals(fields.goals()?),
            "set-cap" => Self::SetCap(fields.cap()?),
            "set-priority" => Self::SetPriority(fields.priority()?),
            "set-minimum" => Self::SetMinimum(fields.minimum()?),
            "set-background" => Self::SetBackground(BackgroundRequest {
                class: fields.required("class", Fields::text)?,
                state: fields.required("state", Fields::text)?,
            }),
            "host-list" => Self::Hosts(fields.text("nqn")?, HostRequest::List),
            "host-add" => Self::Hosts(fields.text("nqn")?, fields.host_add()?),
            "host-remove" => Self::Hosts(fields.text("nqn")?, fields.host_remove()?),
            "config-save" => Self::Save(fields.save()?),
            "connections" => Self::Connections,
            "disconnect" => Self::Disconnect(fields.disconnect()?),
            "namespace-show" => Self::Namespace(fields.text("nqn")?, NamespaceRequest::Show(fields.show()?)),
            "namespace-hide" => Self::Namespace(fields.text("nqn")?, NamespaceRequest::Show(fields.hide()?)),
            "namespace-list" => Self::Namespace(fields.text("nqn")?, NamespaceRequest::List),
            "namespace-add" => Self::Namespace(fields.text("nqn")?, NamespaceRequest::Add(fields.namespace()?)),
            "namespace-remove" => {
                let nqn = fields.text("nqn")?;
                Self::Namespace(nqn, NamespaceRequest::Remove { nsid: fields.required("nsid", Fields::number)? })
            }
            "namespace-resize" => {
                let nqn = fields.text("nqn")?;
                let nsid = fields.required("nsid", Fields::number)?;
                let (size, shrink) = (fields.text("size")?, fields.switch("shrink")?);
                Self::Namespace(nqn, NamespaceRequest::Resize(Resize { nsid, size, shrink }))
            }
            other => {
                return Err(Refusal::of("command", format!("there is no command `{other}`")).help(
                    "commands: status, health, set-policy, set-goals, set-cap, set-priority, set-minimum, set-background, config-save, host-list, host-add, host-remove, connections, disconnect, namespace-list, namespace-add, namespace-remove, namespace-resize, namespace-show, namespace-hide",
                ));
            }
        };
        fields.end(&command)?;
        Ok(request)
    }

    /// The line that asks for it, without its end.
    pub(crate) fn to_line(&self) -> String {
        let mut object = match self {
            Self::Status => json!({ "command": "status" }),
            Self::Health => json!({ "command": "health" }),
            Self::SetPolicy(choice) => {
                let set = |(key, value): &(String, String)| format!("{key}={value}");
                let parameters: Vec<_> = choice.parameters.iter().map(set).collect();
                json!({ "command": "set-policy", "policy": choice.name, "parameters": parameters })
            }
            Self::SetCap(CapRequest { of, max_bytes_per_s }) => {
                of.to_json(json!({ "command": "set-cap", "max_bytes_per_s": max_bytes_per_s }))
            }
            Self::SetPriority(PriorityRequest { of, priority }) => {
                of.to_json(json!({ "command": "set-priority", "priority": priority }))
            }
            Self::SetMinimum(MinimumRequest { priority, min_bytes_per_s }) => {
                json!({ "command": "set-minimum", "priority": priority, "min_bytes_per_s": min_bytes_per_s })
            }
            Self::SetBackground(request) => request.to_json(),
            Self::Hosts(nqn, request) => {
                let mut object = request.to_json();
                object["nqn"] = json!(nqn);
                object
            }
            Self::Save(request) => request.to_json(),
            Self::Connections => json!({ "command": "connections" }),
            Self::Disconnect(request) => request.to_json(),
            Self::SetGoals(goals) => {
                let object = json!({
                    "command": "set-goals",
                    "budget": goals.budget,
                    "for": goals.time,
                    "domain": goals.domain,
                    "tolerance": goals.tolerance,
                    "dry_run": goals.dry_run.then_some(true),
                    "strict": goals.strict.then_some(true),
                });
                goals.tolerance_of.iter().fold(object, |object, of| of.to_json(object))
            }
            Self::Namespace(nqn, request) => {
                let mut object = request.to_json();
                object["nqn"] = json!(nqn);
                object
            }
        };
        object["version"] = json!(VERSION);
        if let Value::Object(fields) = &mut object {
            fields.retain(|_, value| !value.is_null());
        }
        object.to_string()
    }
}

impl CapTarget {
    /// With the fields that name it.
    fn to_json(&self, mut object: Value) -> Value {
        match self {
            Self::Namespace { nqn, nsid } => (object["nqn"], object["nsid"]) = (json!(nqn), json!(nsid)),
            Self::Host(host) => object["host"] = json!(host),
        }
        object
    }
}

impl NamespaceRequest {
    fn to_json(&self) -> Value {
        match self {
            Self::List => json!({ "command": "namespace-list" }),
            Self::Add(NewNamespace { nsid, backend, block_size, uuid }) => json!({
                "command": "namespace-add",
                "nsid": nsid,
                "backend": backend,
                "block_size": block_size,
                "uuid": uuid,
            }),
            Self::Remove { nsid } => json!({ "command": "namespace-remove", "nsid": nsid }),
            Self::Resize(Resize { nsid, size, shrink }) => {
                json!({ "command": "namespace-resize", "nsid": nsid, "size": size, "shrink": shrink })
            }
            Self::Show(request) => request.to_json(),
        }
    }
}

/// The fields of a request that have not been looked at yet.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    fn of(line: &[u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(other) => Err(Refusal::new(format!("a request is a JSON object, not {}", kind(&other)))),
            Err(error) => Err(Refusal::new(format!("this is not JSON: {error}"))
                .help(format!("a request is one line such as {}", Request::Status.to_line()))),
        }
    }

    fn version(&mut self) -> Result<(), Refusal> {
        let version = self.required("version", Self::number)?;
        if u64::try_from(version) == Ok(VERSION) {
            return Ok(());
        }
        let what = format!("this server speaks version {VERSION}, not {version}");
        Err(Refusal::of("version", what).help("use the `pilotlight` of the server's own version"))
    }

    fn policy(&mut self) -> Result<PolicyChoice, Refusal> {
        let name = self.required("policy", Self::text)?;
        let mut parameters = Vec::new();
        for text in &self.texts("parameters")? {
            let pair = key_and_value(text).ok_or_else(|| {
                let refusal = Refusal::of(&format!("parameters[{text}]"), format!("`{text}` sets nothing"));
                refusal.help("write KEY=VALUE, such as window=64")
            });
            parameters.push(pair?);
        }
        Ok(PolicyChoice { name, parameters })
    }

    fn goals(&mut self) -> Result<GoalsRequest, Refusal> {
        let goals = GoalsRequest {
            budget: self.text("budget")?,
            time: self.text("for")?,
            domain: self.text("domain")?,
            tolerance: self.text("tolerance")?,
            tolerance_of: self.0.contains_key("nsid").then(|| self.target()).transpose()?,
            dry_run: self.switch("dry_run")?,
            strict: self.switch("strict")?,
        };
        if goals.budget.is_none() && goals.tolerance.is_none() {
            return Err(Refusal::of("budget", "neither `budget` nor `tolerance` is there"));
        }
        if goals.budget.is_none() && (goals.time.is_some() || goals.domain.is_some()) {
            return Err(Refusal::of("budget", "`for` and `domain` are about a `budget`, which is not there"));
        }
        if goals.tolerance.is_none() && goals.tolerance_of.is_some() {
            return Err(Refusal::of("nsid", "`nsid` is about a `tolerance`, which is not there"));
        }
        Ok(goals)
    }

    fn cap(&mut self) -> Result<CapRequest, Refusal> {
        let max_bytes_per_s = self.required("max_bytes_per_s", Self::text)?;
        Ok(CapRequest { of: self.target()?, max_bytes_per_s })
    }

    fn priority(&mut self) -> Result<PriorityRequest, Refusal> {
        let priority = self.required("priority", Self::text)?;
        Ok(PriorityRequest { of: self.target()?, priority })
    }

    fn minimum(&mut self) -> Result<MinimumRequest, Refusal> {
        let priority = self.required("priority", Self::number)?;
        Ok(MinimumRequest { priority, min_bytes_per_s: self.required("min_bytes_per_s", Self::text)? })
    }

    fn target(&mut self) -> Result<CapTarget, Refusal> {
        Ok(match self.text("host")? {
            Some(host) => CapTarget::Host(host),
            None => CapTarget::Namespace { nqn: self.text("nqn")?, nsid: self.required("nsid", Self::number)? },
        })
    }

    fn namespace(&mut self) -> Result<NewNamespace, Refusal> {
        Ok(NewNamespace {
            nsid: self.number("nsid")?,
            backend: self.required("backend", Self::text)?,
            block_size: self.number("block_size")?,
            uuid: self.text("uuid")?,
        })
    }

    pub(super) fn required<T>(
        &mut self,
        key: &str,
        read: impl Fn(&mut Self, &str) -> Result<Option<T>, Refusal>,
    ) -> Result<T, Refusal> {
        read(self, key)?.ok_or_else(|| Refusal::of(key, format!("`{key}` is missing")))
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, Refusal> {
        match self.0.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(mismatch(key, "a string", &other)),
        }
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.0.remove(key) else { return Ok(None) };
        value.as_i64().map(Some).ok_or_else(|| mismatch(key, "a whole number", &value))
    }

    pub(super) fn switch(&mut self, key: &str) -> Result<bool, Refusal> {
        match self.0.remove(key) {
            None => Ok(false),
            Some(Value::Bool(switch)) => Ok(switch),
            Some(other) => Err(mismatch(key, "a boolean", &other)),
        }
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>, Refusal> {
        let Some(value) = self.0.remove(key) else { return Ok(Vec::new()) };
        let Value::Array(entries) = value else { return Err(mismatch(key, "a list of strings", &value)) };
        let text = |(at, entry): (usize, Value)| match entry {
            Value::String(text) => Ok(text),
            other => Err(mismatch(&format!("entry {} of {key}", at + 1), "a string", &other)),
        };
        entries.into_iter().enumerate().map(text).collect()
    }

    /// Refuses what nobody asked for.
    fn end(self, command: &str) -> Result<(), Refusal> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(key) => Err(Refusal::of(key, format!("{command} has no field `{key}`"))),
        }
    }
}

fn mismatch(field: &str, expected: &str, found: &Value) -> Refusal {
    Refusal::of(field, format!("expected {expected}, found {}", kind(found)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::super::hosts::Audience;
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let parameters = vec![pair("guards", "recommended"), pair("min_requests", "3")];
        let add = NewNamespace { nsid: None, backend: "mem:1GiB".to_owned(), block_size: Some(512), uuid: None };
        let resize = |size: Option<&str>, shrink| {
            NamespaceRequest::Resize(Resize { nsid: 7, size: size.map(str::to_owned), shrink })
        };
        let hosts = || vec!["a".to_owned(), "b".to_owned()];
        for request in [
            Request::Status,
            Request::SetPolicy(PolicyChoice { name: "sandman".to_owned(), parameters }),
            Request::SetCap(CapRequest {
                of: CapTarget::Namespace { nqn: None, nsid: 7 },
                max_bytes_per_s: "100MB/s".to_owned(),
            }),
            Request::SetCap(CapRequest { of: CapTarget::Host("nqn".to_owned()), max_bytes_per_s: "off".to_owned() }),
            Request::SetPriority(PriorityRequest {
                of: CapTarget::Namespace { nqn: Some("nqn".to_owned()), nsid: 7 },
                priority: "5".to_owned(),
            }),
            Request::SetMinimum(MinimumRequest { priority: 5, min_bytes_per_s: "100MB/s".to_owned() }),
            Request::SetBackground(BackgroundRequest { class: "scrub".to_owned(), state: "pause".to_owned() }),
            Request::SetGoals(GoalsRequest {
                budget: Some("300W".to_owned()),
                time: Some("2h".to_owned()),
                domain: Some("cpu".to_owned()),
                dry_run: true,
                strict: true,
                ..GoalsRequest::default()
            }),
            Request::SetGoals(GoalsRequest {
                tolerance: Some("500us p99".to_owned()),
                tolerance_of: Some(CapTarget::Namespace { nqn: None, nsid: 7 }),
                ..GoalsRequest::default()
            }),
            Request::Namespace(None, NamespaceRequest::List),
            Request::Namespace(Some("nqn".to_owned()), NamespaceRequest::Add(add)),
            Request::Namespace(None, NamespaceRequest::Remove { nsid: 7 }),
            Request::Hosts(None, HostRequest::List),
            Request::Hosts(Some("nqn".to_owned()), HostRequest::Add { host: "h".to_owned(), only: true }),
            Request::Hosts(None, HostRequest::Remove { host: "h".to_owned(), allow_any: false }),
            Request::Save(SaveRequest { to: Some("/a".to_owned()), force: true }),
            Request::Connections,
            Request::Disconnect(DisconnectRequest { host: "h".to_owned(), nqn: Some("nqn".to_owned()) }),
            Request::Namespace(None, NamespaceRequest::Show(ShowRequest { nsid: 7, to: Audience::All })),
            Request::Namespace(None, NamespaceRequest::Show(ShowRequest { nsid: 7, to: Audience::Only(hosts()) })),
            Request::Namespace(None, NamespaceRequest::Show(ShowRequest { nsid: 7, to: Audience::More(hosts()) })),
            Request::Namespace(None, NamespaceRequest::Show(ShowRequest { nsid: 7, to: Audience::Less(hosts()) })),
            Request::Namespace(None, resize(Some("2GiB"), true)),
            Request::Namespace(Some("nqn".to_owned()), resize(None, false)),
        ] {
            let line = request.to_line();
            assert_eq!(Request::parse(line.as_bytes()), Ok(request), "{line}");
        }
    }

    #[test]
    fn mistakes_name_their_field() {
        for (line, field, says) in [
            (r#"{"version":1,"command":"status","x":1}"#, "x", "status has no field `x`"),
            (r#"{"version":2,"command":"status"}"#, "version", "speaks version 1, not 2"),
            (r#"{"version":-1,"command":"status"}"#, "version", "speaks version 1, not -1"),
            (r#"{"command":"status"}"#, "version", "`version` is missing"),
            (r#"{"version":1}"#, "command", "`command` is missing"),
            (r#"{"version":1,"command":"stats"}"#, "command", "no command `stats`"),
            (r#"{"version":1,"command":["status"]}"#, "command", "expected a string, found an array"),
            (r#"{"version":1,"command":"set-policy"}"#, "policy", "`policy` is missing"),
            (r#"{"version":1,"command":"set-policy","policy":null}"#, "policy", "found null"),
            (
                r#"{"version":1,"command":"set-policy","policy":"a","parameters":"b"}"#,
                "parameters",
                "a list of strings",
            ),
            (
                r#"{"version":1,"command":"set-policy","policy":"a","parameters":["b=c",1]}"#,
                "entry 2 of parameters",
                "a number",
            ),
            (
                r#"{"version":1,"command":"set-policy","policy":"a","parameters":["b"]}"#,
                "parameters[b]",
                "sets nothing",
            ),
            (r#"{"version":1,"command":"namespace-add","nsid":1.5,"backend":"mem:1GiB"}"#, "nsid", "with a fraction"),
            (r#"{"version":1,"command":"namespace-add","nsdi":1,"backend":"mem:1GiB"}"#, "nsdi", "no field `nsdi`"),
            (r#"{"version":1,"command":"namespace-add","nsid":1}"#, "backend", "`backend` is missing"),
            (r#"{"version":1,"command":"host-add"}"#, "host", "is missing"),
            (r#"{"version":1,"command":"namespace-show","nsid":1}"#, "hosts", "no host is named"),
            (r#"{"version":1,"command":"namespace-show","nsid":1,"all":true,"only":true}"#, "only", "together with"),
            (r#"{"version":1,"command":"namespace-hide","nsid":1,"hosts":[]}"#, "hosts", "no host is named"),
            (r#"{"version":1,"command":"set-goals"}"#, "budget", "neither `budget` nor `tolerance`"),
            (r#"{"version":1,"command":"set-goals","budget":300}"#, "budget", "expected a string"),
            (r#"{"version":1,"command":"set-goals","budget":"off","nsid":1}"#, "nsid", "about a `tolerance`"),
            (r#"{"version":1,"command":"set-cap","nsid":1}"#, "max_bytes_per_s", "is missing"),
            (r#"{"version":1,"command":"set-cap","max_bytes_per_s":"off"}"#, "nsid", "is missing"),
            (
                r#"{"version":1,"command":"set-cap","host":"h","nsid":1,"max_bytes_per_s":"off"}"#,
                "nsid",
                "no field `nsid`",
            ),
            (r#"{"version":1,"command":"namespace-remove","nqn":7}"#, "nqn", "expected a string"),
            (r#"{"version":1,"command":"namespace-remove"}"#, "nsid", "`nsid` is missing"),
            (r#"{"version":1,"command":"namespace-resize","nsid":1,"size":5}"#, "size", "expected a string"),
            (r#"{"version":1,"command":"namespace-resize","nsid":1,"shrink":1}"#, "shrink", "expected a boolean"),
            (r#"{"version":1,"command":"namespace-remove","nsid":99999999999999999999}"#, "nsid", "whole number"),
        ] {
            let refusal = Request::parse(line.as_bytes()).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(field), "{line}: {refusal:?}");
            assert!(refusal.message.contains(says), "{line}: {refusal:?}");
        }
    }

    #[test]
    fn what_is_no_object_is_told_so() {
        for (line, says) in [("", "not JSON"), ("status", "not JSON"), ("[]", "not an array"), ("7", "not a number")] {
            let refusal = Request::parse(line.as_bytes()).unwrap_err();
            assert!(refusal.field.is_none() && refusal.message.contains(says), "{line}: {refusal:?}");
        }
    }
}
