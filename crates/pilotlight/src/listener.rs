//! `pilotlight listener`: the addresses that a running server listens on.

use std::net::SocketAddr;

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use crate::admin::command::ServerCommand;
use crate::admin::request::{ListenerSecurity, Request};
use crate::connections::EndedReport;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  pilotlight listener list
  pilotlight listener add 192.0.2.8:4420
  pilotlight listener add [2001:db8::8]:4420
  pilotlight listener add [fe80::1%eth0]:4420       a link-local address, with its interface
  pilotlight listener add 192.0.2.8:4421 --tls      hosts need a TLS key
  pilotlight listener remove 192.0.2.7:4420";

/// Add, remove and list the addresses that a running server listens on. Hosts that watch the discovery log are notified.
///
/// Hosts that have connected to a removed address are disconnected at once: when the command returns, none of their writes can be carried out.
/// A change is lost at a restart unless `pilotlight config save` saves it, and holds at a reload (SIGHUP) until the configuration of the
/// addresses changes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ListenerCommand {
    /// List the addresses
    List,
    /// Listen on one more address
    Add {
        /// IP address and port
        address: String,

        /// Accept hosts with TLS only
        #[arg(long)]
        tls: bool,

        /// Accept hosts that authenticate, and then use TLS with the key that this generates
        #[arg(long, conflicts_with = "tls")]
        concat: bool,
    },
    /// Stop listening on an address; hosts that have connected to it are disconnected
    Remove {
        /// IP address and port, as listed
        address: String,
    },
}

/// The listening addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListenersReport {
    pub(crate) listeners: Vec<ListenerReport>,
    /// Whether the configuration is the same.
    pub(crate) configured: bool,
    /// Associations that a change has ended.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<EndedReport>,
}

/// A listening address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListenerReport {
    pub(crate) address: SocketAddr,
    pub(crate) security: ListenerSecurity,
}

impl ServerCommand for ListenerCommand {
    const EXAMPLES: &'static str = EXAMPLES;
    type Options = ();
    type Report = ListenersReport;

    fn request(self, (): ()) -> anyhow::Result<Request> {
        Ok(match self {
            Self::List => Request::ListenerList {},
            Self::Add { address, tls, concat } => {
                let security = match (tls, concat) {
                    (true, _) => ListenerSecurity::Tls,
                    (_, true) => ListenerSecurity::Concat,
                    _ => ListenerSecurity::None,
                };
                Request::ListenerAdd { address, security }
            }
            Self::Remove { address } => Request::ListenerRemove { address },
        })
    }

    fn text(_: &Request, report: &ListenersReport) -> String {
        let mut table = Table::new(&["<address", "<security"]);
        for ListenerReport { address, security } in &report.listeners {
            let security = match security {
                ListenerSecurity::None => "none",
                ListenerSecurity::Tls => "TLS",
                ListenerSecurity::Concat => "TLS after authentication",
            };
            table.row([address.to_string(), security.to_owned()]);
        }
        let note = if report.configured { "" } else { "not as configured: `pilotlight config save` saves it\n" };
        format!("{table}{note}{}", EndedReport::text(report.ended.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn text_output() {
        let listener = |address: &str, security| ListenerReport { address: address.parse().unwrap(), security };
        let listeners = vec![
            listener("192.0.2.7:4420", ListenerSecurity::None),
            listener("[2001:db8::7]:4421", ListenerSecurity::Concat),
        ];
        expect![[r#"
            address             security
            192.0.2.7:4420      none
            [2001:db8::7]:4421  TLS after authentication
            not as configured: `pilotlight config save` saves it
        "#]]
        .assert_eq(&ListenerCommand::text(
            &Request::ListenerList {},
            &ListenersReport { listeners, configured: false, ended: None },
        ));
    }
}
