//! No host sees a namespace during a reload that neither configuration shows it.

use std::collections::BTreeSet;

use super::*;

fn list(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

fn seen_by(hosts: &[&str], namespace: NamespaceConfig) -> NamespaceConfig {
    NamespaceConfig { hosts: list(hosts), ..namespace }
}

/// A subsystem that these hosts may connect to.
fn allowing(hosts: &[&str], namespaces: Vec<NamespaceConfig>) -> ServerConfig {
    let mut config = server(namespaces);
    config.subsystems[0].allowed_hosts = list(hosts);
    config
}

#[test]
fn a_host_is_admitted_after_a_namespace_is_hidden_from_it() {
    let from = allowing(&["h1"], vec![namespace(1, "mem:1GiB"), namespace(2, "mem:1GiB")]);
    let hidden = seen_by(&["h1"], namespace(2, "mem:1GiB"));
    let to = allowing(&["h1", "h2"], vec![namespace(1, "mem:1GiB"), hidden]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, [r#"show a 2 ["h1"]"#, r#"allow a ["h1", "h2"]"#]);
    assert_eq!(running, to);
    let (calls, _) = reload(&to, &from, Recorder::default());
    assert_eq!(calls, [r#"allow a ["h1"]"#, "show a 2 []"], "a list that becomes longer is last on the way back");
}

#[test]
fn a_host_is_admitted_after_a_namespace_is_removed_or_moved() {
    let from = allowing(&["h1"], vec![namespace(1, "mem:1GiB"), namespace(2, "file:/none/disk")]);
    let to = allowing(&[], vec![seen_by(&["h1"], namespace(3, "file:/none/disk"))]);
    let (calls, _) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, ["remove a 1", "move a 2 to a 3", "resize a 3 None", "allow a []"]);
}

#[test]
fn a_list_with_removed_and_added_hosts_changes_in_two_steps() {
    let from = allowing(&["h1", "h2"], vec![seen_by(&["h1"], namespace(1, "mem:1GiB")), namespace(2, "mem:1GiB")]);
    let to = allowing(&["h2", "h3"], vec![seen_by(&["h3"], namespace(1, "mem:1GiB"))]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    let expected = [
        r#"allow a ["h2"]"#,
        r#"show a 1 [""]"#, // nobody
        "remove a 2",
        r#"allow a ["h2", "h3"]"#,
        r#"show a 1 ["h3"]"#,
    ];
    assert_eq!(calls, expected);
    assert_eq!(running, to);
    let operation = operation("static");
    let differences = differences((&from, &operation), &to, &operation);
    assert_eq!(differences.len(), 3, "each list is named once: {differences:?}");
}

#[test]
fn old_storage_is_not_visible_to_hosts_of_its_replacement() {
    let from = allowing(&["h1", "h2"], vec![seen_by(&["h1"], namespace(1, "mem:1GiB"))]);
    let to = allowing(&["h1", "h2"], vec![seen_by(&["h2"], namespace(1, "null:1GiB"))]);
    let (calls, running) = reload(&from, &to, Recorder::default());
    assert_eq!(calls, [r#"show a 1 [""]"#], "hidden from all");
    assert_eq!(reload(&running, &to, Recorder::default()).0, [""; 0], "and stays so");
}

/// A namespace that could not be hidden is not shown to a new host.
#[test]
fn no_host_is_admitted_where_hiding_has_failed() {
    let shown = |hosts: &[&str]| seen_by(hosts, namespace(1, "file:/none/disk"));
    let from = allowing(&["h1"], vec![shown(&["h1"]), namespace(2, "mem:1GiB")]);
    let to = allowing(&["h1", "h2"], vec![shown(&["h1", "h2"])]);
    let (calls, running) = reload(&from, &to, Recorder { refuse: Some("remove a 2"), ..Recorder::default() });
    assert_eq!(calls, ["remove a 2", "resize a 1 None"]);
    assert_eq!(running, from);
    assert_eq!(reload(&running, &to, Recorder::default()).1, to);
}

/// The storage that a host sees.
fn sees(config: &ServerConfig, host: &str) -> BTreeSet<String> {
    let names = |hosts: &[String]| hosts.is_empty() || hosts.iter().any(|other| other == host);
    let admitting = config.subsystems.iter().filter(|subsystem| names(&subsystem.allowed_hosts));
    let namespaces = admitting.flat_map(|subsystem| &subsystem.namespaces);
    namespaces.filter(|namespace| names(&namespace.hosts)).map(|namespace| namespace.backend.to_string()).collect()
}

/// Every way to have a namespace and a file that moves, each for any of these hosts.
fn every_configuration() -> Vec<ServerConfig> {
    let lists: [&[&str]; 4] = [&[], &["h1"], &["h2"], &["h1", "h2"]];
    let first = || lists.iter().map(|hosts| Some(seen_by(hosts, namespace(1, "mem:1MiB")))).chain([None]);
    let places = [("a", 2), ("a", 3), ("other", 2)];
    let of_file = |hosts: &'static [&str], (nqn, nsid)| Some((nqn, seen_by(hosts, namespace(nsid, "file:/none/disk"))));
    let file =
        || places.into_iter().flat_map(|at| lists[..3].iter().map(move |hosts| of_file(hosts, at))).chain([None]);
    let mut all = Vec::new();
    for allowed in lists {
        for (first, file) in first().flat_map(|first| file().map(move |file| (first.clone(), file))) {
            let mut config = allowing(allowed, first.into_iter().collect());
            config.subsystems.push(SubsystemConfig { allowed_hosts: list(&["h2"]), ..subsystem("other", vec![]) });
            if let Some((nqn, namespace)) = file {
                let at = usize::from(nqn != "a");
                config.subsystems[at].namespaces.push(namespace);
            }
            all.push(config);
        }
    }
    all
}

#[test]
fn between_two_steps_a_subsystem_is_offered_where_one_of_both_configurations_offers_it() {
    let at = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let some_of = |set: u16| (0..3).filter(move |bit| set >> bit & 1 == 1).map(at).collect::<Vec<_>>();
    let mut all = Vec::new();
    for (listeners, listen) in (1..8).flat_map(|listeners| (0..8).map(move |listen| (listeners, listen))) {
        if listen & !listeners == 0 {
            let mut config = allowing(&[], Vec::new());
            (config.listeners, config.subsystems[0].listen) = (some_of(listeners), some_of(listen));
            all.push(config);
        }
    }
    let offered = |config: &ServerConfig| -> Vec<_> {
        let listen = &config.subsystems[0].listen;
        config.listeners.iter().filter(|one| listen.is_empty() || listen.contains(one)).copied().collect()
    };
    for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (from, to))) {
        let mut state = state(from);
        for change in plan(from, to).changes {
            record(&mut state, change, None);
            let neither =
                offered(&state.config).into_iter().find(|one| ![from, to].iter().any(|of| offered(of).contains(one)));
            assert_eq!(neither, None, "{from:?} {to:?}");
        }
        assert_eq!(offered(&state.config), offered(to));
    }
}

#[test]
fn between_two_steps_visibility_is_within_both_configurations() {
    let all = every_configuration();
    let hosts = ["h1", "h2", "h3"];
    let shown: Vec<_> = all.iter().map(|config| hosts.map(|host| sees(config, host))).collect();
    for (from, before) in all.iter().zip(&shown) {
        for (to, after) in all.iter().zip(&shown) {
            let mut state = state(from);
            for change in plan(from, to).changes {
                let what = describe(&change);
                record(&mut state, change, None);
                for (host, (before, after)) in hosts.iter().zip(before.iter().zip(after)) {
                    let now = sees(&state.config, host);
                    let neither = now.iter().find(|storage| !before.contains(*storage) && !after.contains(*storage));
                    assert_eq!(neither, None, "{host} sees it after {what}: {from:?} {to:?}");
                }
            }
            assert_eq!(hosts.map(|host| sees(&state.config, host)), *after);
        }
    }
}
