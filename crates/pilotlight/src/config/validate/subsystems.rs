//! Subsystems and their namespaces: valid, unique names and numbers, and existing storage.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use pilotlight_nvmf_target::config::{
    ControllerIds, DEFAULT_GROUP, MAX_CNTLID, MAX_GROUP, MAX_NSID, MAX_SERIAL, NamespaceConfig, SubsystemConfig,
};
use pilotlight_storage::BackendSpec;
use uuid::Uuid;

use super::Checker;
use super::background::is_tracked;
use crate::config::keys::{Namespace, Subsystem};
use crate::config::nqn;
use crate::config::problem::{Located, Origin, Problem, Text};
use crate::config::storage::{self, Medium, medium_of};

/// Block size in bytes of a namespace that was given none, where its medium does not decide.
const DEFAULT_BLOCK_SIZE: u32 = 4096;

/// Values that must be unique in the server.
#[derive(Default)]
struct Unique {
    uuids: Vec<Located<Uuid>>,
    media: Vec<(Medium, Origin)>,
    controller_ids: Vec<(ControllerIds, Origin)>,
}

impl Checker<'_> {
    /// All subsystems of a server with these listeners. From the first one follows the NQN of a subsystem that has none.
    pub(super) fn subsystems(&mut self, written: &[Subsystem], listeners: &[SocketAddr]) -> Vec<SubsystemConfig> {
        if written.is_empty() {
            let problem = Problem::error(&Origin::Default, "the file has no [[subsystem]]");
            self.problem(problem.help("add one, with an `nqn` and a [[subsystem.namespace]]"));
        }
        let mut unique = Unique::default();
        let subsystems = written.iter().map(|subsystem| self.subsystem(subsystem, listeners, &mut unique)).collect();
        self.no_duplicates(written.iter().filter_map(|subsystem| subsystem.nqn.as_ref()));
        self.no_duplicates(&unique.uuids);
        subsystems
    }

    fn subsystem(&mut self, written: &Subsystem, listeners: &[SocketAddr], unique: &mut Unique) -> SubsystemConfig {
        let numbers = written.namespace.iter().filter_map(|namespace| namespace.nsid.as_ref());
        self.no_duplicates(numbers);
        self.no_duplicates(&written.allowed_hosts);
        for host in &written.allowed_hosts {
            self.nqn(host);
        }
        let controller_ids = written.controller_ids.as_ref().and_then(|ids| self.controller_ids(ids, unique));
        SubsystemConfig {
            nqn: self.subsystem_nqn(written, listeners.first().copied()),
            serial: written.serial.as_ref().map(|serial| self.serial(serial)),
            allowed_hosts: written.allowed_hosts.iter().map(|host| host.value.clone()).collect(),
            listen: self.offered_on(&written.listen, listeners),
            controller_ids,
            namespaces: written.namespace.iter().filter_map(|namespace| self.namespace(namespace, unique)).collect(),
        }
    }

    /// Addresses on which a subsystem is offered.
    fn offered_on(&mut self, written: &[Text], listeners: &[SocketAddr]) -> Vec<SocketAddr> {
        self.no_duplicates(written);
        self.own_addresses(written, listeners)
    }

    fn subsystem_nqn(&mut self, written: &Subsystem, listener: Option<SocketAddr>) -> String {
        let of_machine = || nqn::of_machine(&self.machine.id, listener);
        match &written.nqn {
            Some(nqn) => {
                self.nqn(nqn);
                nqn.value.clone()
            }
            None if matches!(written.at, Origin::File { .. }) => {
                let help = format!("for example `nqn = \"{}\"` (made from this machine's identity)", of_machine());
                self.problem(Problem::error(&written.at, "`nqn` is missing").help(help));
                String::new()
            }
            None => of_machine(),
        }
    }

    pub(super) fn nqn(&mut self, written: &Text) {
        if let Err(what) = nqn::check(&written.value) {
            self.problem(Problem::error(&written.at, what).help(nqn::FORMS));
        }
    }

    /// A range of identifiers that no other subsystem has.
    fn controller_ids(&mut self, written: &Text, unique: &mut Unique) -> Option<ControllerIds> {
        let help = format!("write the lowest and the highest, both from 1 to {MAX_CNTLID}, such as 1-1000");
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|id| (1..=MAX_CNTLID).contains(id));
        let ends = written.value.split_once('-').and_then(|(first, last)| number(first).zip(number(last)));
        let Some((first, last)) = ends.filter(|(first, last)| first <= last) else {
            let what = format!("`{}` is not a range of controller identifiers", written.value);
            self.problem(Problem::error(&written.at, what).help(help));
            return None;
        };
        let ids = ControllerIds { first, last };
        if let Some((other, at)) =
            unique.controller_ids.iter().find(|(other, _)| first <= other.last && other.first <= last)
        {
            let what = format!("{first}-{last} overlaps {}-{}, which another subsystem has", other.first, other.last);
            let problem = Problem::error(&written.at, what);
            self.problem(match at {
                Origin::File { key, .. } => problem.help(format!("see {key}")),
                _ => problem,
            });
            return None;
        }
        unique.controller_ids.push((ids, written.at.clone()));
        let taken: u32 = unique.controller_ids.iter().map(|(ids, _)| u32::from(ids.last - ids.first) + 1).sum();
        if taken == u32::from(MAX_CNTLID) {
            let what = "no controller identifier is left for the discovery service";
            self.problem(Problem::error(&written.at, what).help(help));
        }
        Some(ids)
    }

    fn serial(&mut self, written: &Text) -> String {
        let serial = &written.value;
        let printable = serial.bytes().all(|b| (0x20..0x7f).contains(&b));
        if serial.is_empty() || serial.len() > MAX_SERIAL || !printable || serial.trim() != serial {
            let help = format!("use 1 to {MAX_SERIAL} printable ASCII characters, no space at either end");
            self.problem(Problem::error(&written.at, format!("`{serial}` is not a serial number")).help(help));
        }
        serial.clone()
    }

    /// A namespace that is to join those of a running server.
    pub(super) fn joining_namespace<'a>(
        &mut self,
        written: &Namespace,
        others: impl Iterator<Item = &'a NamespaceConfig>,
    ) -> Option<NamespaceConfig> {
        let mut unique = Unique::default();
        for other in others {
            let medium = other.backend.path().and_then(|path| fs::metadata(path).ok()).map(|meta| medium_of(&meta));
            unique.media.extend(medium.map(|medium| (medium, Origin::Default)));
            unique.uuids.extend(other.uuid.map(|uuid| Located::new(Uuid::from_bytes(uuid), Origin::Default)));
        }
        if let Some(text) = &written.backend
            && let Ok(spec) = text.value.parse::<BackendSpec>()
            && spec.path().is_some_and(Path::is_relative)
        {
            let problem = Problem::error(&text.at, format!("`{}` is a relative path", text.value));
            self.problem(problem.help("relative paths are not supported: write the absolute path"));
            return None;
        }
        let namespace = self.namespace(written, &mut unique);
        self.no_duplicates(&unique.uuids);
        namespace
    }

    /// One namespace; `None` without valid storage.
    fn namespace(&mut self, written: &Namespace, unique: &mut Unique) -> Option<NamespaceConfig> {
        let nsid = self.nsid(written);
        let block_size = self.block_size(written);
        let uuid = written.uuid.as_ref().and_then(|uuid| self.uuid(uuid, unique));
        let backend = self.backend(written, block_size, unique)?;
        self.no_duplicates(&written.hosts);
        written.hosts.iter().for_each(|host| self.nqn(host));
        let hosts = written.hosts.iter().map(|host| host.value.clone()).collect();
        let group = self.number(written.ana_group.as_ref(), 1..=MAX_GROUP, DEFAULT_GROUP, "is not an ANA group");
        Some(NamespaceConfig { nsid, backend, block_size, uuid, hosts, ana_group: group })
    }

    fn nsid(&mut self, written: &Namespace) -> u32 {
        if written.nsid.is_none() {
            let help = "give the number under which hosts see it, such as `nsid = 1`; it must not change later";
            self.problem(Problem::error(&written.at, "`nsid` is missing").help(help));
        }
        self.number(written.nsid.as_ref(), 1..=MAX_NSID, 1, "is not a namespace identifier")
    }

    /// The configured block size, else the sector size of the medium: AWUPF 0 promises hosts that a power
    /// failure does not tear a block, and media guarantee that for a sector.
    fn block_size(&mut self, written: &Namespace) -> u32 {
        let sector = self.sector_size(written);
        let (size, at) = match &written.block_size {
            None if is_tracked(written) => (DEFAULT_BLOCK_SIZE, &written.at),
            None => (if sector.is_some_and(|bytes| bytes <= 512) { 512 } else { DEFAULT_BLOCK_SIZE }, &written.at),
            Some(size) if size.value == 512 || size.value == 4096 => (size.value as u32, &size.at),
            Some(size) => {
                let what = format!("blocks of {} bytes", size.value);
                self.problem(Problem::error(&size.at, what).help("use 512 or 4096"));
                return DEFAULT_BLOCK_SIZE;
            }
        };
        if let Some(sector) = sector.filter(|&sector| sector < size) {
            let what = format!(
                "blocks of {size} bytes on sectors of {sector}: a power failure can leave part of a block old and part new, \
                 though hosts are told that a block is atomic"
            );
            let help = "omit the block size for a new namespace; one with data has to keep its own";
            self.problem(Problem::warning(at, what).help(help));
        }
        size
    }

    /// Bytes in a sector of the medium of a namespace; `None` if it has none, or they are not known.
    fn sector_size(&self, written: &Namespace) -> Option<u32> {
        let spec = written.backend.as_ref()?.value.parse::<BackendSpec>().ok()?.relative_to(self.base);
        (self.machine.sector_size)(spec.path()?)
    }

    fn uuid(&mut self, written: &Text, unique: &mut Unique) -> Option<[u8; 16]> {
        match Uuid::try_parse(&written.value) {
            Ok(uuid) if !uuid.is_nil() => {
                unique.uuids.push(Located::new(uuid, written.at.clone()));
                Some(uuid.into_bytes())
            }
            _ => {
                let help = "write 32 hexadecimal digits, such as f81d4fae-7dec-11d0-a765-00a0c91e6bf6 (`uuidgen` makes \
                            one), or leave the key out";
                self.problem(Problem::error(&written.at, format!("`{}` is not a UUID", written.value)).help(help));
                None
            }
        }
    }

    fn backend(&mut self, written: &Namespace, block_size: u32, unique: &mut Unique) -> Option<BackendSpec> {
        let Some(text) = &written.backend else {
            let help = "set its storage, such as `backend = \"mem:1GiB\"` or `backend = \"file:/path\"`";
            self.problem(Problem::error(&written.at, "`backend` is missing").help(help));
            return None;
        };
        let spec = match text.value.parse::<BackendSpec>() {
            Ok(spec) => self.tracked(written, spec.relative_to(self.base), block_size),
            Err(wrong) => {
                self.error(&text.at, wrong);
                return None;
            }
        };
        if self.holds_whole_blocks(&spec, block_size, &text.at)
            && let Some(path) = spec.path()
        {
            self.medium(&spec, path, block_size, &text.at, unique);
        }
        Some(spec)
    }

    /// Looks at the file or device of a namespace.
    fn medium(&mut self, spec: &BackendSpec, path: &Path, block_size: u32, at: &Origin, unique: &mut Unique) {
        let found = match storage::inspect(spec, path, block_size) {
            Ok(found) => found,
            Err(unfit) => {
                let problem = Problem::error(at, unfit.what);
                self.problem(unfit.help.into_iter().fold(problem, Problem::help));
                return;
            }
        };
        if let Some((_, first)) = unique.media.iter().find(|(medium, _)| *medium == found.medium) {
            let problem = Problem::error(at, format!("{} already holds another namespace", path.display()));
            self.problem(match first {
                Origin::File { key, .. } => problem.help(format!("see {key}; two namespaces cannot share blocks")),
                _ => problem.help("two namespaces cannot share blocks"),
            });
        }
        unique.media.push((found.medium, at.clone()));
        let rest = found.size % u64::from(block_size);
        if rest != 0 {
            let what = format!("the last {rest} bytes of {} are not a whole block and are not used", path.display());
            self.problem(Problem::warning(at, what));
        }
    }

    /// Whether storage whose size was written holds whole blocks.
    fn holds_whole_blocks(&mut self, spec: &BackendSpec, block_size: u32, at: &Origin) -> bool {
        let Some(size) = spec.size().filter(|size| !size.is_multiple_of(u64::from(block_size))) else { return true };
        let what = format!("{size} bytes are not a whole number of blocks of {block_size} bytes");
        self.problem(Problem::error(at, what).help("use a size such as 512MiB or 1GiB"));
        false
    }
}
