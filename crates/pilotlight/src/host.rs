//! `pilotlight host`: which hosts may connect to a running server.

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use crate::admin::command::{ServerCommand, SubsystemOption};
use crate::admin::request::{HostAdd, HostRemove, Request};
use crate::connections::EndedReport;
use crate::table::{Table, printable};

const EXAMPLES: &str = "\
Examples:
  pilotlight host list
  pilotlight host add nqn.2024-05.com.example:host
  pilotlight host add nqn.2024-05.com.example:host --only
  pilotlight host remove nqn.2024-05.com.example:host --nqn nqn.2024-05.com.example:disks
  pilotlight host remove nqn.2024-05.com.example:host --allow-any";

/// Set which hosts may connect to a subsystem of a running server.
///
/// A removed host is disconnected at once: when the command returns, none of its writes can be carried out. Without a list any host may
/// connect; so the first host is added with --only, and the last one is removed with --allow-any.
///
/// A change is lost at a restart unless `pilotlight config save` saves it, and holds at a reload (SIGHUP) until the configuration of the
/// allowed hosts changes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// List the hosts that may connect, and whether they are connected
    List,
    /// Allow a host to connect
    Add {
        /// The host's NQN, such as the one in its /etc/nvme/hostnqn
        host: String,

        /// This host and no other; others are disconnected
        #[arg(long)]
        only: bool,
    },
    /// Remove a host from those that may connect; it is disconnected at once
    Remove {
        /// The host's NQN
        host: String,

        /// Where it is the last one: any host may connect from now on
        #[arg(long)]
        allow_any: bool,
    },
}

/// Hosts that may connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostsReport {
    pub(crate) subsystems: Vec<SubsystemHosts>,
    /// Associations that a change has ended.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<EndedReport>,
}

/// Hosts that may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubsystemHosts {
    /// The subsystem.
    pub(crate) nqn: String,
    /// Whether any host may.
    pub(crate) any: bool,
    pub(crate) hosts: Vec<HostReport>,
    /// Whether the configuration is the same.
    pub(crate) configured: bool,
}

/// A host that may connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostReport {
    pub(crate) host: String,
    /// Its associations now.
    pub(crate) associations: usize,
}

impl ServerCommand for HostCommand {
    const EXAMPLES: &'static str = EXAMPLES;
    type Options = SubsystemOption;
    type Report = HostsReport;

    fn request(self, SubsystemOption { nqn }: SubsystemOption) -> anyhow::Result<Request> {
        Ok(match self {
            Self::List => Request::HostList { nqn },
            Self::Add { host, only } => Request::HostAdd(HostAdd { nqn, host, only }),
            Self::Remove { host, allow_any } => Request::HostRemove(HostRemove { nqn, host, allow_any }),
        })
    }

    fn text(_: &Request, report: &HostsReport) -> String {
        table(&report.subsystems) + &EndedReport::text(report.ended.as_ref())
    }
}

fn table(subsystems: &[SubsystemHosts]) -> String {
    let mut table = Table::new(&["<subsystem", "<host", "associations", "<"]);
    for subsystem in subsystems {
        let note = if subsystem.configured { "" } else { "not as configured" };
        let mut row = |host: &str, associations: String| {
            table.row([subsystem.nqn.clone(), host.to_owned(), associations, note.to_owned()]);
        };
        if subsystem.any {
            row("any host", "-".to_owned());
        }
        subsystem.hosts.iter().for_each(|host| row(&printable(&host.host), host.associations.to_string()));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn text_output() {
        let host = |host: &str, associations| HostReport { host: host.to_owned(), associations };
        let open =
            SubsystemHosts { nqn: "nqn.2024-05.com.example:a".to_owned(), any: true, hosts: vec![], configured: true };
        let closed = SubsystemHosts {
            nqn: "nqn.2024-05.com.example:b".to_owned(),
            any: false,
            hosts: vec![host("nqn.2024-05.com.example:h1", 2), host("nqn.2024-05.com.example:h2", 0)],
            configured: false,
        };
        expect![[r#"
            subsystem                  host                        associations
            nqn.2024-05.com.example:a  any host                               -
            nqn.2024-05.com.example:b  nqn.2024-05.com.example:h1             2  not as configured
            nqn.2024-05.com.example:b  nqn.2024-05.com.example:h2             0  not as configured
        "#]]
        .assert_eq(&table(&[open.clone(), closed]));
        let hostile = SubsystemHosts { any: false, hosts: vec![host("nqn.\x1b[2J", 0)], ..open };
        assert!(!table(&[hostile]).contains('\x1b'));
    }
}
