//! Files that get another number: no host is left without storage that the configuration has.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::status::report::PowerReport;

#[test]
fn a_file_with_another_nsid_is_moved_and_its_size_checked() {
    let from = server(vec![namespace(1, "file:/disk"), namespace(2, "delay:1ms:file:/other")]);
    let to = server(vec![namespace(3, "file:/disk"), namespace(4, "delay:1ms:file:/other"), namespace(5, "mem:1MiB")]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, ["move a 1 to a 3", "move a 2 to a 4", "resize a 3 None", "resize a 4 None", "add a 5"]);
    assert_eq!(running, to);
}

#[test]
fn a_file_moves_between_subsystems() {
    let config =
        |a, b| ServerConfig { subsystems: vec![subsystem("a", a), subsystem("b", b)], ..ServerConfig::default() };
    let from = config(vec![namespace(1, "file:/disk")], vec![namespace(2, "file:/other")]);
    let to = config(vec![namespace(2, "file:/other")], vec![namespace(1, "file:/disk")]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, ["move b 2 to a 2", "move a 1 to b 1", "resize a 2 None", "resize b 1 None"]);
    assert_eq!(running, to);
}

/// Both subsystems change at a restart only; until then the file stays where it is.
#[test]
fn a_file_moves_to_a_new_subsystem_and_from_a_removed_one() {
    let from = server(vec![namespace(1, "file:/disk")]);
    let to = ServerConfig { subsystems: vec![subsystem("new", vec![namespace(1, "file:/disk")])], ..from.clone() };
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, ["add subsystem new", "move a 1 to new 1", "remove subsystem a", "resize new 1 None"]);
    assert_eq!(running, to);
}

/// Its storage would be closed, and the data in it unavailable until it can be opened under its new number.
#[test]
fn a_subsystem_stays_while_storage_cannot_be_moved_out_of_it() {
    let from = server(vec![namespace(1, "file:/disk")]);
    let to = |namespace| ServerConfig { subsystems: vec![subsystem("new", vec![namespace])], ..from.clone() };
    let small = to(NamespaceConfig { block_size: 512, ..namespace(1, "file:/disk") });
    let (calls, running) = reload(&from, &small, Recorder::default());
    assert_eq!(calls, ["add subsystem new"]);
    assert_eq!(running.subsystems[0], from.subsystems[0]);
    let refusing = Recorder { refuse: Some("move"), ..Recorder::default() };
    let (calls, running) = reload(&from, &to(namespace(1, "file:/disk")), refusing);
    assert_eq!(calls, ["add subsystem new", "move a 1 to new 1"]);
    assert_eq!(running.subsystems[0], from.subsystems[0]);
}

#[test]
fn a_file_with_changed_format_and_nsid_is_not_moved() {
    let from = server(vec![namespace(1, "file:/disk")]);
    let small = NamespaceConfig { block_size: 512, ..namespace(2, "file:/disk") };
    for (to, why) in [(small, "with another block size"), (namespace(2, "delay:1ms:file:/disk"), "with other delays")] {
        let to = server(vec![to]);
        let (calls, running) = reload(&from, &to, Recorder::default());
        assert_eq!((calls.as_slice(), &running), (&[][..] as &[String], &from));
        assert!(plan(&from, &to).waiting[0].contains(why), "{:?}", plan(&from, &to).waiting);
    }
}

#[test]
fn a_move_that_fails_is_tried_again() {
    let (from, to) = (server(vec![namespace(1, "file:/disk")]), server(vec![namespace(2, "file:/disk")]));
    let (calls, running) = reload(&from, &to, Recorder { refuse: Some("move"), ..Recorder::default() });
    assert_eq!((calls.as_slice(), &running), (&["move a 1 to a 2".to_owned()][..], &from));
    assert_eq!(reload(&running, &to, Recorder::default()).1, to);
}

/// A file that was added under one number at run time keeps it although the configuration has it under another.
#[test]
fn namespaces_added_at_run_time_are_not_moved() {
    let mut state = state(&server(vec![]));
    state.config = server(vec![namespace(5, "file:/disk")]);
    state.note_override("a", 5);
    let calls = reload_state(&mut state, &server(vec![namespace(1, "file:/disk")]), Recorder::default());
    assert_eq!(calls, ["resize a 5 None"]);
    assert_eq!(state.config, server(vec![namespace(5, "file:/disk")]));
}

#[test]
fn one_file_is_known_under_every_name() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, link) = (dir.path().join("disk"), dir.path().join("link"));
    std::fs::write(&disk, [0; 4096]).unwrap();
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    let backend = |path: &std::path::Path| format!("file:{}", path.display());
    let from = server(vec![namespace(1, &backend(&disk))]);
    let (calls, _) = reload(&from, &server(vec![namespace(2, &backend(&link))]), Recorder::default());
    assert_eq!(calls, ["move a 1 to a 2", "resize a 2 None"]);
}

/// A server with one subsystem that keeps each file open once, and takes until the next reload to close it.
struct Model {
    /// Which file each number has.
    serves: Mutex<BTreeMap<u32, String>>,
    closing: Mutex<BTreeSet<String>>,
    moves_fail: bool,
}

impl Model {
    fn new(config: &ServerConfig, moves_fail: bool) -> Self {
        Self { serves: Mutex::new(files(config)), closing: Mutex::default(), moves_fail }
    }
}

fn refused<T>() -> Result<T, ServerError> {
    Err(std::io::Error::other("refused by the model").into())
}

fn files(config: &ServerConfig) -> BTreeMap<u32, String> {
    config.subsystems[0].namespaces.iter().map(|namespace| (namespace.nsid, namespace.backend.to_string())).collect()
}

impl Running for Model {
    fn add_subsystem(&self, _subsystem: &SubsystemConfig) -> Result<(), ServerError> {
        refused()
    }
    fn remove_subsystem(&self, _nqn: &str) -> Result<(), ServerError> {
        refused()
    }
    fn set_listeners(&self, _config: &ServerConfig) -> Result<Draining, ServerError> {
        refused().map(|()| Draining::default())
    }
    fn set_paths(&self, _rules: &[PathRule]) -> Draining {
        Draining::default()
    }
    fn set_subsystem_listen(&self, _nqn: &str, _listen: &[SocketAddr]) -> Result<Draining, ServerError> {
        refused().map(|()| Draining::default())
    }
    fn set_allowed_hosts(&self, _nqn: &str, _allowed_hosts: &[String]) -> Result<Draining, ServerError> {
        refused().map(|()| Draining::default())
    }
    fn set_namespace_hosts(&self, _nqn: &str, _nsid: u32, _hosts: &[String]) -> Result<(), ServerError> {
        refused()
    }
    fn set_discovery(&self, _advertised: Advertised, _referrals: Vec<(String, u16)>) {}
    fn add_namespace(&self, _nqn: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        let (mut serves, file) = (self.serves.lock().unwrap(), namespace.backend.to_string());
        let is_open = serves.values().any(|open| *open == file) || self.closing.lock().unwrap().contains(&file);
        if is_open || serves.contains_key(&namespace.nsid) {
            return refused();
        }
        serves.insert(namespace.nsid, file);
        Ok(())
    }
    fn remove_namespace(&self, _nqn: &str, nsid: u32) -> Result<(), ServerError> {
        let Some(file) = self.serves.lock().unwrap().remove(&nsid) else { return refused() };
        self.closing.lock().unwrap().insert(file);
        Ok(())
    }
    fn move_namespace(&self, from: (&str, u32), _to: &str, namespace: &NamespaceConfig) -> Result<(), ServerError> {
        let mut serves = self.serves.lock().unwrap();
        if self.moves_fail || serves.contains_key(&namespace.nsid) {
            return refused();
        }
        let Some(file) = serves.remove(&from.1) else { return refused() };
        serves.insert(namespace.nsid, file);
        Ok(())
    }
    fn resize_namespace(&self, _nqn: &str, nsid: u32, _blocks: Option<u64>) -> Result<u64, ServerError> {
        if self.serves.lock().unwrap().contains_key(&nsid) { Ok(1) } else { refused() }
    }
    fn local_addrs(&self) -> Vec<SocketAddr> {
        Vec::new()
    }
    fn access(&self, _nqn: &str, _nsid: u32) -> Result<Option<Access>, ServerError> {
        Ok(None)
    }

    fn allocated_bytes(&self, _nqn: &str, _nsid: u32) -> Result<u64, ServerError> {
        Ok(0)
    }
    fn stats(&self) -> ServerStats {
        ServerStats::default()
    }
    fn set_policy(&self, _policy: Box<dyn Policy>) -> Result<(), Unsupported> {
        Ok(())
    }
    fn set_goals(&self, goals: Goals) {
        drop(goals);
    }
    fn set_tolerances(&self, _named: &[NamespaceTolerance]) {}
    fn set_priorities(&self, _named: Vec<Priority>) {}
    fn set_cap(&self, _of: &Capped, _bytes_per_s: Option<u64>) -> Result<(), ServerError> {
        Ok(())
    }
    fn power(&self) -> Option<PowerReport> {
        None
    }
    fn view(&self) -> View {
        View::new()
    }
    fn stop(self: Box<Self>, _within: Duration) -> Result<(), DrainError> {
        Ok(())
    }
}

/// Every way to give three files different numbers from 1 to 4, or none.
fn every_configuration() -> Vec<ServerConfig> {
    let mut all = Vec::new();
    for numbers in 0..5_u32.pow(3) {
        let numbers = [numbers % 5, numbers / 5 % 5, numbers / 25];
        let used: Vec<u32> = numbers.into_iter().filter(|&nsid| nsid > 0).collect();
        if used.iter().collect::<BTreeSet<_>>().len() < used.len() {
            continue;
        }
        let files = ["file:/none/a", "file:/none/b", "file:/none/c"].into_iter().zip(numbers);
        let namespaces = files.filter(|(_, nsid)| *nsid > 0).map(|(file, nsid)| namespace(nsid, file));
        all.push(server(namespaces.collect()));
    }
    all
}

/// For every pair of configurations, whether moves succeed or not.
#[test]
fn no_configured_file_is_lost() {
    let all = every_configuration();
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))) {
        let (before, wanted) = (files(from), files(to));
        for moves_fail in [false, true] {
            let (mut state, model) = (state(from), Model::new(from, moves_fail));
            let operation = operation("static");
            let read = Wanted { config: to, operation: &operation, may_shrink: &[] };
            apply(&mut state, read, &model);
            let after = model.serves.lock().unwrap().clone();
            assert_eq!(files(&state.config), after, "what is noted is what runs: {before:?} to {wanted:?}");
            let configured: BTreeSet<_> = wanted.values().collect();
            for file in before.values().filter(|file| configured.contains(file)) {
                assert!(after.values().any(|open| open == file), "{file} is lost: {before:?} to {wanted:?}");
            }
            for (nsid, file) in &before {
                let now = after.get(nsid);
                assert!(now.is_none_or(|now| now == file), "{nsid} has other storage: {before:?} to {wanted:?}");
            }
            let contested = before.iter().any(|(nsid, file)| wanted.get(nsid).is_some_and(|other| other != file));
            if !contested && !moves_fail {
                assert_eq!(after, wanted, "from {before:?}");
            }
        }
    }
}
