//! `pilotlight path`: the states of paths by the addresses of a running server (asymmetric namespace access).

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::admin::command::ServerCommand;
use crate::admin::request::Request;
use crate::table::Table;

/// The state that the configuration has.
pub(crate) const CONFIGURED: &str = "configured";

const EXAMPLES: &str = "\
Examples:
  pilotlight path list
  pilotlight path drain 192.0.2.7:4420               hosts use other paths
  pilotlight path restore 192.0.2.7:4420             as configured
  pilotlight path set 192.0.2.8:4420 non-optimized   only without an optimized path
  pilotlight path set 192.0.2.8:4420 optimized --group 2

States: optimized, non-optimized, inaccessible, persistent-loss, change.";

/// Close and open the paths by an address of a running server, and list their states (asymmetric namespace access, ANA). Hosts are told at
/// once: those with another path to the same namespaces use that one, without an error.
///
/// `drain` returns when the commands that hosts have sent by that address are finished; after three seconds it reports how many are not. A
/// change is lost at a restart unless `pilotlight config save` saves it, and holds at a reload (SIGHUP) until a [[path]] of the configuration
/// changes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PathCommand {
    /// List the states
    List,
    /// Close the paths by an address, and wait for commands in progress
    Drain(Place),
    /// Return the paths by an address to their configured state
    Restore(Place),
    /// Set the state of the paths by an address
    Set {
        /// IP address and port, as listed
        address: String,

        /// The state
        state: String,

        /// ANA group of namespaces [default: all]
        #[arg(long)]
        group: Option<i64>,
    },
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// IP address and port, as listed
    address: String,

    /// ANA group of namespaces [default: all]
    #[arg(long)]
    group: Option<i64>,
}

/// The states of paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathsReport {
    pub(crate) paths: Vec<PathReport>,
    /// Whether the configuration is the same.
    pub(crate) configured: bool,
    /// After a change: commands in progress by closed paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busy: Option<usize>,
}

/// The state of paths by an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathReport {
    pub(crate) address: SocketAddr,
    /// None: all other groups.
    pub(crate) group: Option<u32>,
    pub(crate) state: String,
}

impl ServerCommand for PathCommand {
    const EXAMPLES: &'static str = EXAMPLES;
    type Options = ();
    type Report = PathsReport;

    fn request(self, (): ()) -> anyhow::Result<Request> {
        Ok(match self {
            Self::List => Request::PathList {},
            Self::Drain(Place { address, group }) => {
                Request::PathSet { address, state: "inaccessible".to_owned(), group }
            }
            Self::Restore(Place { address, group }) => {
                Request::PathSet { address, state: CONFIGURED.to_owned(), group }
            }
            Self::Set { address, state, group } => Request::PathSet { address, state, group },
        })
    }

    fn text(_: &Request, report: &PathsReport) -> String {
        let mut table = Table::new(&["<address", "<group", "<state"]);
        for PathReport { address, group, state } in &report.paths {
            let group = group.map_or_else(|| "all".to_owned(), |group| group.to_string());
            table.row([address.to_string(), group, state.clone()]);
        }
        let note = if report.configured { "" } else { "not as configured: `pilotlight config save` saves it\n" };
        let busy = match report.busy {
            None | Some(0) => String::new(),
            Some(busy) => format!("{busy} commands are still in progress by closed paths\n"),
        };
        format!("{table}{note}{busy}")
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn text_output() {
        let path = |address: &str, group, state: &str| PathReport {
            address: address.parse().unwrap(),
            group,
            state: state.to_owned(),
        };
        let paths =
            vec![path("192.0.2.7:4420", None, "inaccessible"), path("[2001:db8::7]:4420", Some(2), "non-optimized")];
        expect![[r#"
            address             group  state
            192.0.2.7:4420      all    inaccessible
            [2001:db8::7]:4420  2      non-optimized
            not as configured: `pilotlight config save` saves it
            3 commands are still in progress by closed paths
        "#]]
        .assert_eq(&PathCommand::text(&Request::PathList {}, &PathsReport { paths, configured: false, busy: Some(3) }));
    }
}
