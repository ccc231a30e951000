//! `pilotlight connections` and `pilotlight disconnect`: lists and ends associations of a running server.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::admin::client::{self, SocketArgs};
use crate::admin::request::{DisconnectRequest, Request};
use crate::config::format_duration;
use crate::exit::Exit;
use crate::table::{Table, printable};

const LIST_EXAMPLES: &str = "\
Examples:
  pilotlight connections
  pilotlight connections --json

Each line is an association of a host with a controller; it has a TCP connection for its admin queue and one for each I/O queue. A \
connection without a subsystem uses the discovery service.

Exit codes:
  0  done
  1  no server answers";

const DISCONNECT_EXAMPLES: &str = "\
Examples:
  pilotlight disconnect nqn.2024-05.com.example:host
  pilotlight disconnect nqn.2024-05.com.example:host --nqn nqn.2024-05.com.example:disks

When the command returns, no outstanding write of the host can be carried out, unless a note says otherwise. The host may reconnect, as Linux \
does; `pilotlight host remove` prevents that.

Exit codes:
  0  done, also where the host was not connected
  1  no server answers
  2  the server refused; nothing has been changed";

/// Options of `pilotlight connections`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = LIST_EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct ConnectionsArgs {
    #[command(flatten)]
    socket: SocketArgs,

    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `pilotlight disconnect`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = DISCONNECT_EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct DisconnectArgs {
    /// The host's NQN
    host: String,

    /// From this subsystem only [default: from all]
    #[arg(long, value_name = "NQN")]
    nqn: Option<String>,

    #[command(flatten)]
    socket: SocketArgs,

    /// Print what was ended as JSON
    #[arg(long)]
    json: bool,
}

/// Every association.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) connections: Vec<ConnectionReport>,
}

/// Associations that were ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndedReport {
    /// As they were before.
    pub(crate) ended: Vec<ConnectionReport>,
    /// How many of them have requests that their backends have not returned: these may still be carried out.
    pub(crate) undrained: usize,
}

/// An association.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectionReport {
    /// The subsystem; none: the discovery service.
    pub(crate) nqn: Option<String>,
    /// The host's NQN; empty where it has none.
    pub(crate) host: String,
    pub(crate) hostid: String,
    /// Of its admin queue.
    pub(crate) address: String,
    pub(crate) cntlid: u16,
    pub(crate) io_queues: usize,
    /// I/O threads that serve its I/O queues.
    pub(crate) io_threads: Vec<u16>,
    pub(crate) age_ns: u64,
    /// When it began.
    pub(crate) since_unix_s: u64,
}

/// Prints the associations.
pub(crate) fn list(args: &ConnectionsArgs) -> anyhow::Result<Exit> {
    client::run::<Connections>(&args.socket, &Request::Connections {}, args.json, |report| {
        if report.connections.is_empty() { "no host is connected\n".to_owned() } else { table(&report.connections) }
    })
}

/// Ends the connections of a host.
pub(crate) fn disconnect(args: &DisconnectArgs) -> anyhow::Result<Exit> {
    let request = DisconnectRequest { host: args.host.clone(), nqn: args.nqn.clone() };
    client::run(&args.socket, &Request::Disconnect(request), args.json, EndedReport::sentence)
}

impl EndedReport {
    /// [`EndedReport::sentence`] if any association has ended.
    pub(crate) fn text(report: Option<&Self>) -> String {
        report.filter(|report| !report.ended.is_empty()).map(Self::sentence).unwrap_or_default()
    }

    /// For people.
    pub(crate) fn sentence(&self) -> String {
        let mut text = match self.ended.len() {
            0 => "the host was not connected\n".to_owned(),
            1 => "1 association is ended\n".to_owned(),
            more => format!("{more} associations are ended\n"),
        };
        if self.undrained > 0 {
            let _ = writeln!(
                text,
                "note: {} of them have requests that their storage has not returned; these may still be carried out",
                self.undrained
            );
        }
        text
    }
}

fn table(connections: &[ConnectionReport]) -> String {
    let headers = [
        "<host",
        "<address",
        "<subsystem",
        "controller",
        "I/O queues",
        "<I/O threads",
        "connected for",
        "<host identifier",
    ];
    let mut table = Table::new(&headers);
    for one in connections {
        let threads: Vec<String> = one.io_threads.iter().map(ToString::to_string).collect();
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        table.row([
            or_dash(&printable(&one.host)),
            one.address.clone(),
            one.nqn.clone().unwrap_or_else(|| "discovery".to_owned()),
            one.cntlid.to_string(),
            one.io_queues.to_string(),
            or_dash(&threads.join(",")),
            format_duration(Duration::from_secs(one.age_ns / 1_000_000_000)),
            one.hostid.clone(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn text_output() {
        let one = ConnectionReport {
            nqn: Some("nqn.2024-05.com.example:disks".to_owned()),
            host: "nqn.2024-05.com.example:h".to_owned(),
            hostid: "f81d4fae-7dec-11d0-a765-00a0c91e6bf6".to_owned(),
            address: "192.0.2.9:40000".to_owned(),
            cntlid: 7,
            io_queues: 3,
            io_threads: vec![0, 2],
            age_ns: 125_000_000_000,
            since_unix_s: 0,
        };
        let discovery =
            ConnectionReport { nqn: None, host: String::new(), io_queues: 0, io_threads: vec![], ..one.clone() };
        expect![[r#"
            host                       address          subsystem                      controller  I/O queues  I/O threads  connected for  host identifier
            nqn.2024-05.com.example:h  192.0.2.9:40000  nqn.2024-05.com.example:disks           7           3  0,2                   125s  f81d4fae-7dec-11d0-a765-00a0c91e6bf6
            -                          192.0.2.9:40000  discovery                               7           0  -                     125s  f81d4fae-7dec-11d0-a765-00a0c91e6bf6
        "#]].assert_eq(&table(&[one.clone(), discovery]));
        let hostile = ConnectionReport { host: "nqn.\x1b[2J".to_owned(), ..one.clone() };
        let shown = table(&[hostile]);
        assert!(shown.contains(r"nqn.\u{1b}[2J") && !shown.contains('\x1b'), "{shown}");
        let ended = EndedReport { ended: vec![one.clone(), one], undrained: 1 };
        expect![[r#"
            2 associations are ended
            note: 1 of them have requests that their storage has not returned; these may still be carried out
        "#]]
        .assert_eq(&ended.sentence());
    }
}
