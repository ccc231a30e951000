//! Namespaces that are added, removed and resized at run time. The server notifies hosts.

use pilotlight_nvmf_target::config::{MAX_NSID, NamespaceConfig};
use pilotlight_nvmf_target::{Capped, ServerError};
use pilotlight_storage::{BackendSpec, format_size, parse_size};

use super::Admin;
use crate::admin::refusal::Refusal;
use crate::admin::request::{NamespaceAdd, NamespaceResize, Target};
use crate::config::{NewNamespace, Problem, check_namespace, file_size, note_overcommitment, nqn};
use crate::namespace::{Listing, NamespaceReport};
use crate::serve::state::State;

impl Admin {
    /// The namespaces of a subsystem, or of all.
    pub(super) fn list_namespaces(&self, nqn: Option<&str>) -> Result<Listing, Refusal> {
        let state = self.state();
        let subsystems = match nqn {
            Some(nqn) => vec![subsystem(&state, Some(nqn))?],
            None => state.config.subsystems.iter().map(|subsystem| subsystem.nqn.clone()).collect(),
        };
        let namespaces = subsystems.iter().flat_map(|nqn| self.list(&state, nqn)).collect();
        Ok(Listing { namespaces, notes: Vec::new() })
    }

    fn list(&self, state: &State, nqn: &str) -> Vec<NamespaceReport> {
        let subsystem = state.config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
        let namespaces = subsystem.into_iter().flat_map(|subsystem| &subsystem.namespaces);
        let mut list: Vec<_> = namespaces.map(|namespace| self.describe(state, nqn, namespace)).collect();
        list.sort_by_key(|namespace| namespace.nsid);
        list
    }

    fn describe(&self, state: &State, nqn: &str, namespace: &NamespaceConfig) -> NamespaceReport {
        let blocks = state.blocks(nqn, namespace.nsid);
        NamespaceReport {
            nqn: nqn.to_owned(),
            nsid: namespace.nsid,
            backend: namespace.backend.to_string(),
            block_bytes: namespace.block_size,
            blocks,
            size_bytes: blocks * u64::from(namespace.block_size),
            requests_at_once: self.server.access(nqn, namespace.nsid).ok().flatten().map(|access| access.to_string()),
            allocated_bytes: self.server.allocated_bytes(nqn, namespace.nsid).ok(),
            hosts: namespace.hosts.clone(),
            configured: state.configured_namespace(nqn, namespace.nsid) == Some(namespace),
        }
    }

    /// Adds a namespace.
    pub(super) fn add_namespace(&self, new: &NamespaceAdd) -> Result<Listing, Refusal> {
        let mut state = self.state();
        let nqn = &subsystem(&state, new.nqn.as_deref())?;
        let used = |nsid: u32| {
            state.config.subsystems.iter().any(|subsystem| {
                subsystem.nqn == *nqn && subsystem.namespaces.iter().any(|namespace| namespace.nsid == nsid)
            })
        };
        let free = || (1..=MAX_NSID).find(|&nsid| !used(nsid)).map(i64::from);
        let nsid = new.nsid.or_else(free).ok_or_else(|| {
            Refusal::for_field("nsid", format!("{nqn} has {MAX_NSID} namespaces already")).help("remove one first")
        })?;
        let others = state.config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
        let (backend, block_size, uuid) = (new.backend.as_str(), new.block_size, new.uuid.as_deref());
        let new = NewNamespace { nsid, backend, block_size, uuid };
        let (namespace, mut notes) = check_namespace(new, others, &self.machine).map_err(|problem| unfit(&problem))?;
        self.server.add_namespace(nqn, &namespace).map_err(|error| refusal(&error))?;
        state.note_size(nqn, &namespace, None);
        if let Some(namespaces) = state.namespaces(nqn) {
            namespaces.push(namespace.clone());
        }
        state.note_override(nqn, namespace.nsid);
        notes.extend((namespace.backend.memory() > 0).then(|| note_overcommitment(&state.config)).flatten());
        Ok(Listing { namespaces: vec![self.describe(&state, nqn, &namespace)], notes })
    }

    /// Removes a namespace.
    pub(super) fn remove_namespace(&self, nqn: Option<&str>, nsid: i64) -> Result<Listing, Refusal> {
        let mut state = self.state();
        let nqn = &subsystem(&state, nqn)?;
        let namespace = find(&state, nqn, nsid)?;
        let report = self.describe(&state, nqn, &namespace);
        self.server.remove_namespace(nqn, namespace.nsid).map_err(|error| refusal(&error))?;
        if let Some(namespaces) = state.namespaces(nqn) {
            namespaces.retain(|other| other.nsid != namespace.nsid);
        }
        state.forget_size(nqn, namespace.nsid);
        state.note_override(nqn, namespace.nsid);
        let lost = report.allocated_bytes.filter(|&bytes| bytes > 0 && namespace.backend.memory() > 0);
        let note = |bytes| format!("its data is gone: {} of written blocks in memory", format_size(bytes));
        Ok(Listing { namespaces: vec![report], notes: lost.map(note).into_iter().collect() })
    }

    /// Resizes a namespace.
    pub(super) fn resize_namespace(&self, resize: &NamespaceResize) -> Result<Listing, Refusal> {
        let mut state = self.state();
        let nqn = &subsystem(&state, resize.nqn.as_deref())?;
        let mut namespace = find(&state, nqn, resize.nsid)?;
        let size = resize.size.as_ref().map(|size| wanted_size(size, &namespace)).transpose()?;
        let now = state.blocks(nqn, namespace.nsid) * u64::from(namespace.block_size);
        // without a size it has that of its file or device, which another process may have truncated
        let next = size.or_else(|| medium_size(&namespace));
        if let Some(next) = next.filter(|&next| next < now && !resize.shrink) {
            let (next, now) = (format_size(next), format_size(now));
            let what = match size {
                Some(_) => {
                    format!("{next} is less than the {now} that it has: the data beyond the new end would be lost")
                }
                None => format!(
                    "the file or device holds {next}, less than the {now} that hosts see: the data beyond the new end would be lost"
                ),
            };
            return Err(Refusal::for_field("size", what).help("allow it to shrink (--shrink, or \"shrink\": true)"));
        }
        let blocks = size.map(|size| size / u64::from(namespace.block_size));
        let blocks = self.server.resize_namespace(nqn, namespace.nsid, blocks).map_err(|error| refusal(&error))?;
        let bytes = blocks * u64::from(namespace.block_size);
        let mut notes = outdated(&namespace.backend, bytes);
        namespace.backend.set_size(bytes);
        state.note_size(nqn, &namespace, Some(blocks));
        let running = state.namespaces(nqn).and_then(|all| all.iter_mut().find(|other| other.nsid == namespace.nsid));
        if let Some(running) = running {
            running.clone_from(&namespace);
        }
        state.note_override(nqn, namespace.nsid);
        notes.extend(
            (bytes > now && namespace.backend.memory() > 0).then(|| note_overcommitment(&state.config)).flatten(),
        );
        Ok(Listing { namespaces: vec![self.describe(&state, nqn, &namespace)], notes })
    }
}

/// A change of the hosts that see a namespace.
pub(super) enum Visibility {
    /// All allowed hosts.
    All,
    Only(Vec<String>),
    Add(Vec<String>),
    Remove(Vec<String>),
}

impl Visibility {
    pub(super) fn of_show(hosts: Vec<String>, all: bool, only: bool) -> Self {
        match (all, only) {
            (true, _) => Self::All,
            (false, true) => Self::Only(hosts),
            (false, false) => Self::Add(hosts),
        }
    }
}

impl Admin {
    /// Changes which hosts see a namespace.
    pub(super) fn set_visibility(&self, nqn: Option<&str>, nsid: i64, change: &Visibility) -> Result<Listing, Refusal> {
        let mut state = self.state();
        let nqn = &subsystem(&state, nqn)?;
        let mut namespace = find(&state, nqn, nsid)?;
        namespace.hosts = visible_to(&namespace, change)?;
        let changed = self.server.set_namespace_hosts(nqn, namespace.nsid, &namespace.hosts);
        changed.map_err(|error| refusal(&error))?;
        let running = state.namespaces(nqn).and_then(|all| all.iter_mut().find(|other| other.nsid == namespace.nsid));
        running.into_iter().for_each(|running| running.clone_from(&namespace));
        state.note_override(nqn, namespace.nsid);
        Ok(Listing { namespaces: vec![self.describe(&state, nqn, &namespace)], notes: Vec::new() })
    }
}

/// The hosts that see a namespace after a change; an empty list means all.
fn visible_to(namespace: &NamespaceConfig, change: &Visibility) -> Result<Vec<String>, Refusal> {
    let (nsid, known) = (namespace.nsid, &namespace.hosts);
    let (Visibility::Only(named) | Visibility::Add(named) | Visibility::Remove(named)) = change else {
        return Ok(Vec::new());
    };
    for host in named {
        nqn::check(host).map_err(|what| Refusal::for_field("hosts", what).help(nqn::FORMS))?;
    }
    if known.is_empty() && !matches!(change, Visibility::Only(_)) {
        let what = format!("every host that may connect sees namespace {nsid}");
        let help = format!("name those that are to see it: `pilotlight namespace show {nsid} --host HOST --only`");
        return Err(Refusal::for_field("hosts", what).help(help));
    }
    let mut hosts: Vec<String> = match change {
        Visibility::Remove(_) => known.iter().filter(|host| !named.contains(host)).cloned().collect(),
        Visibility::Only(_) => named.clone(),
        _ => known.iter().chain(named).cloned().collect(),
    };
    let mut seen = Vec::new();
    hosts.retain(|host| {
        !seen.contains(host) && {
            seen.push(host.clone());
            true
        }
    });
    if hosts.is_empty() {
        let what = format!("no host would see namespace {nsid}, and a list without a host is one for all");
        let help = format!(
            "`pilotlight namespace show {nsid} --all` shows it to every host, `namespace remove {nsid}` to none"
        );
        return Err(Refusal::for_field("hosts", what).help(help));
    }
    Ok(hosts)
}

/// The subsystem with this NQN, or the only one.
pub(super) fn subsystem(state: &State, nqn: Option<&str>) -> Result<String, Refusal> {
    let subsystems = &state.config.subsystems;
    let there_are = || {
        let names: Vec<_> = subsystems.iter().map(|subsystem| subsystem.nqn.as_str()).collect();
        format!("subsystems: {}", names.join(", "))
    };
    match (nqn, subsystems.as_slice()) {
        (Some(nqn), all) if all.iter().any(|subsystem| subsystem.nqn == nqn) => Ok(nqn.to_owned()),
        (Some(nqn), _) => Err(Refusal::for_field("nqn", format!("there is no subsystem {nqn}")).help(there_are())),
        (None, [only]) => Ok(only.nqn.clone()),
        (None, _) => Err(Refusal::for_field("nqn", "name the subsystem: there is more than one").help(there_are())),
    }
}

/// The target of a request.
pub(super) fn find_target(state: &State, target: Target<'_>) -> Result<Capped, Refusal> {
    match target {
        Target::Host(nqn) => {
            nqn::check(nqn).map_err(|what| Refusal::for_field("host", what).help(nqn::FORMS))?;
            Ok(Capped::Host { nqn: nqn.to_owned() })
        }
        Target::Namespace { nqn, nsid } => {
            let nqn = subsystem(state, nqn)?;
            let nsid = find(state, &nqn, nsid)?.nsid;
            Ok(Capped::Namespace { nqn, nsid })
        }
    }
}

/// The namespace with this NSID.
fn find(state: &State, nqn: &str, nsid: i64) -> Result<NamespaceConfig, Refusal> {
    let subsystem = state.config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
    let all = subsystem.map_or(&[][..], |subsystem| &subsystem.namespaces);
    let found = all.iter().find(|namespace| i64::from(namespace.nsid) == nsid).cloned();
    found.ok_or_else(|| {
        let numbers: Vec<_> = all.iter().map(|namespace| namespace.nsid.to_string()).collect();
        let there_are =
            if all.is_empty() { "it has none".to_owned() } else { format!("it has {}", numbers.join(", ")) };
        Refusal::for_field("nsid", format!("{nqn} has no namespace {nsid}")).help(there_are)
    })
}

/// Bytes of whole blocks that a namespace's file or device holds now.
fn medium_size(namespace: &NamespaceConfig) -> Option<u64> {
    let bytes = file_size(&namespace.backend)?;
    Some(bytes - bytes % u64::from(namespace.block_size))
}

/// A size in bytes that holds whole blocks.
fn wanted_size(text: &str, namespace: &NamespaceConfig) -> Result<u64, Refusal> {
    let size = parse_size(text).map_err(|wrong| Refusal::for_field("size", wrong))?;
    if size.is_multiple_of(u64::from(namespace.block_size)) {
        return Ok(size);
    }
    let what = format!("{size} bytes are not a whole number of blocks of {} bytes", namespace.block_size);
    Err(Refusal::for_field("size", what).help("use a size such as 512MiB or 1GiB"))
}

/// A note if the size of a file is also in the configuration.
fn outdated(backend: &BackendSpec, bytes: u64) -> Vec<String> {
    let written = backend.path().and(backend.size()).filter(|&written| written != bytes);
    let note = |written| {
        format!("?size={} is outdated: change it in the configuration, or the next start fails", format_size(written))
    };
    written.map(note).into_iter().collect()
}

/// A problem with a new namespace as a refusal with its field.
fn unfit(problem: &Problem) -> Refusal {
    let refusal = match problem.flag() {
        Some(field) => Refusal::for_field(field, &problem.what),
        None => Refusal::new(&problem.what),
    };
    problem.help.iter().fold(refusal, Refusal::help)
}

/// A server error as a refusal with its field.
pub(super) fn refusal(error: &ServerError) -> Refusal {
    let field = match error {
        ServerError::NoSubsystem(_) | ServerError::SubsystemExists(_) | ServerError::TooManySubsystems(_) => "nqn",
        ServerError::NoNamespace { .. } | ServerError::Exists { .. } => "nsid",
        ServerError::OtherBlockSize { .. } => "block_size",
        ServerError::Open(_) | ServerError::Closing(_) => "backend",
        ServerError::Backend(_) => "size",
        ServerError::Listen { .. } => "address",
    };
    Refusal::for_field(field, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "nqn.2024-05.com.example:a";
    const B: &str = "nqn.2024-05.com.example:b";

    #[test]
    fn visibility_changes() {
        let list = |hosts: &[&str]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let next = |hosts: &[&str], change: Visibility| {
            let backend = "mem:1MiB".parse().unwrap();
            let namespace = NamespaceConfig { hosts: list(hosts), ..NamespaceConfig::new(3, backend, 4096) };
            visible_to(&namespace, &change)
        };
        assert_eq!(next(&[], Visibility::Only(list(&[A, A]))), Ok(list(&[A])));
        assert_eq!(next(&[A], Visibility::Only(list(&[B]))), Ok(list(&[B])));
        assert_eq!(next(&[A], Visibility::Add(list(&[A, B]))), Ok(list(&[A, B])));
        assert_eq!(next(&[A, B], Visibility::Remove(list(&[A]))), Ok(list(&[B])));
        assert_eq!(next(&[A], Visibility::All), Ok(Vec::new()));
        assert!(next(&[], Visibility::Add(list(&[A]))).unwrap_err().help[0].contains("--only"));
        assert!(next(&[], Visibility::Remove(list(&[A]))).unwrap_err().help[0].contains("--only"));
        assert!(next(&[A], Visibility::Remove(list(&[A]))).unwrap_err().help[0].contains("--all"));
        assert_eq!(next(&[A], Visibility::Add(list(&["x"]))).unwrap_err().field.as_deref(), Some("hosts"));
    }
}
