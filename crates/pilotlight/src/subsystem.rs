//! `pilotlight subsystem`: the subsystems of a running server, and the addresses on which it offers them.

use std::net::SocketAddr;

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use crate::address;
use crate::admin::command::ServerCommand;
use crate::admin::request::{Request, SubsystemAdd};
use crate::connections::EndedReport;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  pilotlight subsystem list
  pilotlight subsystem add nqn.2024-05.com.example:new --host nqn.2024-05.com.example:host
  pilotlight subsystem add nqn.2024-05.com.example:open --allow-any --listen 192.0.2.8:4420
  pilotlight subsystem listen nqn.2024-05.com.example:new 192.0.2.7:4420 [2001:db8::7]:4420
  pilotlight subsystem listen nqn.2024-05.com.example:new --all
  pilotlight subsystem remove nqn.2024-05.com.example:new";

/// Add, remove and list subsystems of a running server, and set the addresses on which it offers them. Hosts that watch the discovery log are
/// notified.
///
/// A new subsystem has no namespaces: `pilotlight namespace add --nqn NQN` adds them. Hosts of a removed one are disconnected; files and
/// devices of its namespaces stay as they are. A change is lost at a restart unless `pilotlight config save` saves it, and holds at a reload
/// (SIGHUP) until the configuration of that subsystem changes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SubsystemCommand {
    /// List the subsystems
    List,
    /// Add a subsystem without namespaces
    Add {
        /// Its NQN
        nqn: String,

        /// A host that may connect, by its NQN; repeatable
        #[arg(long, value_name = "NQN", required_unless_present = "allow_any", conflicts_with = "allow_any")]
        host: Vec<String>,

        /// Any host may connect
        #[arg(long)]
        allow_any: bool,

        /// An address of the server on which it is offered; repeatable [default: all]
        #[arg(long, value_name = "ADDRESS")]
        listen: Vec<String>,
    },
    /// Remove a subsystem with its namespaces; its hosts are disconnected
    Remove {
        /// Its NQN
        nqn: String,
    },
    /// Set the addresses on which a subsystem is offered; hosts on others are disconnected
    Listen {
        /// Its NQN
        nqn: String,

        /// Addresses of the server
        #[arg(value_name = "ADDRESS", required_unless_present = "all", conflicts_with = "all")]
        listen: Vec<String>,

        /// All addresses of the server, also later ones
        #[arg(long)]
        all: bool,
    },
}

/// The subsystems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubsystemsReport {
    pub(crate) subsystems: Vec<SubsystemReport>,
    /// Associations that a change has ended.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<EndedReport>,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubsystemReport {
    pub(crate) nqn: String,
    /// Addresses on which it is offered; empty: on all.
    pub(crate) listen: Vec<SocketAddr>,
    /// Number of hosts that may connect; none: any host may.
    pub(crate) hosts: Option<usize>,
    pub(crate) namespaces: usize,
    /// Whether the configuration has it, on the same addresses.
    pub(crate) configured: bool,
}

impl ServerCommand for SubsystemCommand {
    const EXAMPLES: &'static str = EXAMPLES;
    type Options = ();
    type Report = SubsystemsReport;

    fn request(self, (): ()) -> anyhow::Result<Request> {
        Ok(match self {
            Self::List => Request::SubsystemList {},
            Self::Add { nqn, host: hosts, allow_any, listen } => {
                Request::SubsystemAdd(SubsystemAdd { nqn, hosts, allow_any, listen })
            }
            Self::Remove { nqn } => Request::SubsystemRemove { nqn },
            Self::Listen { nqn, listen, all: _ } => Request::SubsystemListen { nqn, listen },
        })
    }

    fn text(_: &Request, report: &SubsystemsReport) -> String {
        let mut table = Table::new(&["<subsystem", "<offered on", "hosts", "namespaces", "<"]);
        for SubsystemReport { nqn, listen, hosts, namespaces, configured } in &report.subsystems {
            let listen = if listen.is_empty() { "all addresses".to_owned() } else { address::list(listen) };
            let hosts = hosts.map_or_else(|| "any".to_owned(), |hosts| hosts.to_string());
            let note = if *configured { "" } else { "not as configured" };
            table.row([nqn.clone(), listen, hosts, namespaces.to_string(), note.to_owned()]);
        }
        format!("{table}{}", EndedReport::text(report.ended.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn text_output() {
        let subsystem = |nqn: &str, listen: &[&str], hosts, configured| SubsystemReport {
            nqn: nqn.to_owned(),
            listen: listen.iter().map(|address| address.parse().unwrap()).collect(),
            hosts,
            namespaces: 2,
            configured,
        };
        let subsystems = vec![
            subsystem("nqn.2024-05.com.example:a", &[], None, true),
            subsystem("nqn.2024-05.com.example:b", &["192.0.2.7:4420", "[2001:db8::7]:4420"], Some(1), false),
        ];
        expect![[r#"
            subsystem                  offered on                          hosts  namespaces
            nqn.2024-05.com.example:a  all addresses                         any           2
            nqn.2024-05.com.example:b  192.0.2.7:4420, [2001:db8::7]:4420      1           2  not as configured
        "#]]
        .assert_eq(&SubsystemCommand::text(&Request::SubsystemList {}, &SubsystemsReport { subsystems, ended: None }));
    }
}
