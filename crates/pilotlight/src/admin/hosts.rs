//! Requests about hosts: who may connect, who sees a namespace, and whose associations are to end.

use serde_json::{Value, json};

use super::answer::Refusal;
use super::request::Fields;

/// Something about the hosts that may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostRequest {
    /// All of them; without a subsystem's name those of every subsystem.
    List,
    /// One more.
    Add {
        /// Its NQN.
        host: String,
        /// Where any host may connect: this one alone from now on.
        only: bool,
    },
    /// This one no longer; its associations end.
    Remove {
        /// Its NQN.
        host: String,
        /// Where it is the only one: any host from now on.
        allow_any: bool,
    },
}

/// Associations of a host that are to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DisconnectRequest {
    /// Its NQN.
    pub(crate) host: String,
    /// With this subsystem; `None`: with every one.
    pub(crate) nqn: Option<String>,
}

/// Which hosts see a namespace from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShowRequest {
    /// The namespace.
    pub(crate) nsid: i64,
    /// Who sees it.
    pub(crate) to: Audience,
}

/// Hosts that see a namespace from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Every host that may connect.
    All,
    /// These alone.
    Only(Vec<String>),
    /// These too.
    More(Vec<String>),
    /// These no longer.
    Less(Vec<String>),
}

impl HostRequest {
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::List => json!({ "command": "host-list" }),
            Self::Add { host, only } => json!({ "command": "host-add", "host": host, "only": only }),
            Self::Remove { host, allow_any } => {
                json!({ "command": "host-remove", "host": host, "allow_any": allow_any })
            }
        }
    }
}

impl DisconnectRequest {
    pub(super) fn to_json(&self) -> Value {
        json!({ "command": "disconnect", "host": self.host, "nqn": self.nqn })
    }
}

impl ShowRequest {
    pub(super) fn to_json(&self) -> Value {
        let nsid = self.nsid;
        match &self.to {
            Audience::All => json!({ "command": "namespace-show", "nsid": nsid, "all": true }),
            Audience::Only(hosts) => json!({ "command": "namespace-show", "nsid": nsid, "hosts": hosts, "only": true }),
            Audience::More(hosts) => json!({ "command": "namespace-show", "nsid": nsid, "hosts": hosts }),
            Audience::Less(hosts) => json!({ "command": "namespace-hide", "nsid": nsid, "hosts": hosts }),
        }
    }
}

impl Fields {
    pub(super) fn host_add(&mut self) -> Result<HostRequest, Refusal> {
        Ok(HostRequest::Add { host: self.required("host", Self::text)?, only: self.switch("only")? })
    }

    pub(super) fn host_remove(&mut self) -> Result<HostRequest, Refusal> {
        Ok(HostRequest::Remove { host: self.required("host", Self::text)?, allow_any: self.switch("allow_any")? })
    }

    pub(super) fn disconnect(&mut self) -> Result<DisconnectRequest, Refusal> {
        Ok(DisconnectRequest { host: self.required("host", Self::text)?, nqn: self.text("nqn")? })
    }

    pub(super) fn show(&mut self) -> Result<ShowRequest, Refusal> {
        let nsid = self.required("nsid", Self::number)?;
        let (hosts, all, only) = (self.texts("hosts")?, self.switch("all")?, self.switch("only")?);
        let to = match (all, only) {
            (true, true) => return Err(Refusal::of("only", "`only` cannot be used together with `all`")),
            (true, false) if !hosts.is_empty() => {
                return Err(Refusal::of("hosts", "`hosts` cannot be used together with `all`"));
            }
            (true, false) => return Ok(ShowRequest { nsid, to: Audience::All }),
            (false, true) => Audience::Only(named(hosts)?),
            (false, false) => Audience::More(named(hosts)?),
        };
        Ok(ShowRequest { nsid, to })
    }

    pub(super) fn hide(&mut self) -> Result<ShowRequest, Refusal> {
        let nsid = self.required("nsid", Self::number)?;
        Ok(ShowRequest { nsid, to: Audience::Less(named(self.texts("hosts")?)?) })
    }
}

fn named(hosts: Vec<String>) -> Result<Vec<String>, Refusal> {
    if hosts.is_empty() { Err(Refusal::of("hosts", "no host is named")) } else { Ok(hosts) }
}
