//! `pilotlight namespace`: adds, removes, resizes, shows, hides and lists the namespaces of a running server.

use std::env;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use pilotlight_storage::{BackendSpec, format_size};
use serde::{Deserialize, Serialize};

use crate::admin::command::{ServerCommand, SubsystemOption};
use crate::admin::request::{NamespaceAdd, NamespaceHide, NamespaceResize, NamespaceShow, Request};
use crate::console;
use crate::table::Table;

const EXAMPLES: &str = "\
Examples:
  pilotlight namespace list
  pilotlight namespace add file:/dev/nvme1n1
  pilotlight namespace add mem:4GiB --nsid 7 --block-size 512
  pilotlight namespace resize 7 2GiB --shrink
  pilotlight namespace resize 1                     the size that its file or device has become
  pilotlight namespace remove 7 --nqn nqn.2024-05.com.example:disks
  pilotlight namespace show 7 --host nqn.2024-05.com.example:host --only
  pilotlight namespace hide 7 --host nqn.2024-05.com.example:host
  pilotlight namespace show 7 --all                 every host that may connect sees it";

/// Add, remove, resize, show, hide and list the namespaces of a running server. Connected hosts are notified at once.
///
/// A change is lost at a restart, and holds at a reload (SIGHUP) until the configuration of that namespace changes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// List namespaces with their storage and size
    List,
    /// Add a namespace
    Add(AddArgs),
    /// Remove a namespace; its file or device stays as it is
    Remove {
        /// The namespace's number
        nsid: u32,
    },
    /// Change the size of a namespace
    Resize(ResizeArgs),
    /// Show a namespace to more hosts; for all others it does not exist
    Show(ShowArgs),
    /// Hide a namespace from hosts; their outstanding commands are finished
    Hide {
        /// The namespace's number
        nsid: u32,

        /// The host, by its NQN; repeatable
        #[arg(long, value_name = "NQN", required = true)]
        host: Vec<String>,
    },
}

#[derive(Args, Clone, Debug)]
pub(crate) struct AddArgs {
    /// Storage: mem:SIZE, mem:SIZE,hugepages (allocated at once), file:PATH (a file or a block device),
    /// file:PATH?size=SIZE (created where missing), file:PATH?read-only or null:SIZE
    backend: String,

    /// Its number [default: the lowest that is free]
    #[arg(long, value_name = "NUMBER")]
    nsid: Option<u32>,

    /// Bytes in a block: 512 or 4096 [default: for file: those of a sector of its medium, else 4096]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,

    /// UUID [default: derived from NQN and NSID]
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ResizeArgs {
    /// The namespace's number
    nsid: u32,

    /// Its new size, such as 2GiB [default: what its file or device has become]
    size: Option<String>,

    /// Allow a smaller size; data beyond the new end is lost
    #[arg(long)]
    shrink: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// The namespace's number
    nsid: u32,

    /// The host, by its NQN; repeatable
    #[arg(long, value_name = "NQN", required_unless_present = "all")]
    host: Vec<String>,

    /// To these hosts and no others
    #[arg(long, conflicts_with = "all")]
    only: bool,

    /// To every host that may connect
    #[arg(long, conflicts_with = "host")]
    all: bool,
}

/// Namespaces that a request was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) namespaces: Vec<NamespaceReport>,
    /// Notes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// A namespace of a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespaceReport {
    /// The subsystem.
    pub(crate) nqn: String,
    pub(crate) nsid: u32,
    /// The storage.
    pub(crate) backend: String,
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) size_bytes: u64,
    /// Bytes of data; `None` if the storage does not report it.
    pub(crate) allocated_bytes: Option<u64>,
    /// How many requests the medium serves at once, and how; `None` where they do not wait for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests_at_once: Option<String>,
    /// The hosts that see it; empty: all allowed hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<String>,
    /// Whether the configuration is the same.
    pub(crate) configured: bool,
}

impl ServerCommand for NamespaceCommand {
    const EXAMPLES: &'static str = EXAMPLES;
    type Options = SubsystemOption;
    type Report = Listing;

    fn request(self, SubsystemOption { nqn }: SubsystemOption) -> anyhow::Result<Request> {
        Ok(match self {
            Self::List => Request::NamespaceList { nqn },
            Self::Add(AddArgs { backend, nsid, block_size, uuid }) => Request::NamespaceAdd(NamespaceAdd {
                nqn,
                nsid: nsid.map(i64::from),
                backend: from_here(&backend)?,
                block_size: block_size.map(i64::from),
                uuid,
            }),
            Self::Remove { nsid } => Request::NamespaceRemove { nqn, nsid: nsid.into() },
            Self::Resize(ResizeArgs { nsid, size, shrink }) => {
                Request::NamespaceResize(NamespaceResize { nqn, nsid: nsid.into(), size, shrink })
            }
            Self::Show(ShowArgs { nsid, host, only, all }) => {
                Request::NamespaceShow(NamespaceShow { nqn, nsid: nsid.into(), hosts: host, all, only })
            }
            Self::Hide { nsid, host } => Request::NamespaceHide(NamespaceHide { nqn, nsid: nsid.into(), hosts: host }),
        })
    }

    fn text(request: &Request, listing: &Listing) -> String {
        listing.notes.iter().for_each(|note| console::eprintln(format_args!("note: {note}")));
        let [namespace] = listing.namespaces.as_slice() else { return table(&listing.namespaces) };
        match request {
            Request::NamespaceAdd(_) => changed(namespace, "added"),
            Request::NamespaceRemove { .. } => changed(namespace, "removed"),
            Request::NamespaceResize(_) => changed(namespace, "resized"),
            Request::NamespaceShow(_) | Request::NamespaceHide(_) => visible_to(namespace),
            _ => table(&listing.namespaces),
        }
    }
}

/// A relative path starts where this command runs, not where the server does. What is no backend is left to the server to
/// complain about.
fn from_here(backend: &str) -> anyhow::Result<String> {
    let Ok(spec) = backend.parse::<BackendSpec>() else { return Ok(backend.to_owned()) };
    let here = env::current_dir().context("where is this?")?;
    Ok(spec.relative_to(&here).to_string())
}

fn changed(namespace: &NamespaceReport, done: &str) -> String {
    let NamespaceReport { nsid, nqn, backend, blocks, block_bytes, size_bytes, .. } = namespace;
    format!(
        "namespace {nsid} of {nqn} is {done}: {backend}, {} ({blocks} blocks of {block_bytes} bytes)\n",
        format_size(*size_bytes)
    )
}

fn visible_to(NamespaceReport { nsid, nqn, hosts, .. }: &NamespaceReport) -> String {
    if hosts.is_empty() {
        return format!("namespace {nsid} of {nqn} is visible to all allowed hosts\n");
    }
    format!("namespace {nsid} of {nqn} is visible to {}\n", hosts.join(", "))
}

fn visible_column(hosts: &[String]) -> String {
    match hosts.len() {
        0 => "all".to_owned(),
        1 => "1 host".to_owned(),
        more => format!("{more} hosts"),
    }
}

fn table(namespaces: &[NamespaceReport]) -> String {
    if namespaces.is_empty() {
        return "no namespaces\n".to_owned();
    }
    let mut table = Table::new(&[
        "<subsystem",
        "namespace",
        "<storage",
        "size",
        "blocks",
        "block bytes",
        "holds",
        "<requests at once",
        "seen by",
        "<",
    ]);
    for namespace in namespaces {
        let holds = namespace.allocated_bytes.map_or("-".to_owned(), format_size);
        table.row([
            namespace.nqn.clone(),
            namespace.nsid.to_string(),
            namespace.backend.clone(),
            format_size(namespace.size_bytes),
            namespace.blocks.to_string(),
            namespace.block_bytes.to_string(),
            holds,
            namespace.requests_at_once.clone().unwrap_or_else(|| "-".to_owned()),
            visible_column(&namespace.hosts),
            if namespace.configured { "" } else { "not as configured" }.to_owned(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn namespace(nsid: u32, backend: &str, configured: bool) -> NamespaceReport {
        NamespaceReport {
            nqn: "nqn.2024-05.com.example:a".to_owned(),
            nsid,
            backend: backend.to_owned(),
            block_bytes: 4096,
            blocks: 256,
            size_bytes: 1 << 20,
            allocated_bytes: configured.then_some(8192),
            requests_at_once: (!configured).then(|| "64, by threads".to_owned()),
            hosts: if configured { Vec::new() } else { vec!["nqn.2024-05.com.example:h".to_owned()] },
            configured,
        }
    }

    #[test]
    fn text_output() {
        let list = [namespace(1, "mem:1MiB", true), namespace(12, "file:/srv/disk.img", false)];
        expect![[r#"
            subsystem                  namespace  storage             size  blocks  block bytes  holds  requests at once  seen by
            nqn.2024-05.com.example:a          1  mem:1MiB            1MiB     256         4096   8KiB  -                     all
            nqn.2024-05.com.example:a         12  file:/srv/disk.img  1MiB     256         4096      -  64, by threads     1 host  not as configured
        "#]].assert_eq(&table(&list));
        let text = changed(&list[0], "added");
        expect!["namespace 1 of nqn.2024-05.com.example:a is added: mem:1MiB, 1MiB (256 blocks of 4096 bytes)"]
            .assert_eq(text.trim_end());
    }

    #[test]
    fn relative_paths_start_here() {
        let here = env::current_dir().unwrap();
        assert_eq!(from_here("file:a?size=1MiB").unwrap(), format!("file:{}/a?size=1MiB", here.display()));
        assert_eq!(from_here("file:/a").unwrap(), "file:/a");
        assert_eq!(from_here("mem:1GiB").unwrap(), "mem:1GiB");
        assert_eq!(from_here("nonsense").unwrap(), "nonsense");
    }
}
