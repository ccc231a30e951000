//! Tests of differences that prevent `config save`.

use std::path::Path;

use super::*;

fn differ(running: (&ServerConfig, &Operation), wanted: (&ServerConfig, &Operation)) -> Vec<String> {
    differences(running, wanted.0, wanted.1)
}

#[test]
fn changed_block_size_and_uuid_are_differences() {
    let (runs, by) = (server(vec![namespace(1, "file:/disk")]), operation("static"));
    assert_eq!(differ((&runs, &by), (&runs, &by)), [""; 0]);
    for other in [
        NamespaceConfig { block_size: 512, ..namespace(1, "file:/disk") },
        NamespaceConfig { uuid: Some([7; 16]), ..namespace(1, "file:/disk") },
        namespace(1, "file:/other"),
    ] {
        let found = differ((&runs, &by), (&server(vec![other]), &by));
        assert!(found.len() == 1 && found[0].contains("namespace 1 of a has other storage"), "{found:?}");
    }
    let mut waiting = ServerConfig { cores: vec![0, 1], ..runs.clone() };
    waiting.limits.max_connections = 7;
    waiting.subsystems[0].serial = Some("1".to_owned());
    assert_eq!(differ((&runs, &by), (&waiting, &by)), [""; 0]);
    let of_flags = settled_differences((&runs, &by), &waiting, &Operation { mdns: true, ..by.clone() });
    assert!(of_flags.len() == 3 && of_flags[2].contains("discovery.mdns"), "{of_flags:?}");
}

#[test]
fn caps_priorities_and_tolerances_are_compared() {
    let runs = server(vec![namespace(1, "mem:1GiB")]);
    let of = |nsid: u32| Capped::Namespace { nqn: "a".to_owned(), nsid };
    let bound = crate::config::parse_tolerance("0.2").unwrap().unwrap();
    let by = operation("static");
    let set = |nsid: u32| Operation {
        caps: vec![(of(nsid), 100_000_000)],
        priorities: vec![(of(nsid), 5)],
        tolerances: vec![(of(nsid), bound)],
        ..operation("static")
    };
    assert_eq!(
        differ((&runs, &set(1)), (&runs, &by)),
        [
            "cap of namespace 1 of a: 100MB/s, is not in the file",
            "priority of namespace 1 of a: 5, is not in the file",
            "a tolerance of namespace 1 of a, is not in the file",
        ]
    );
    assert_eq!(differ((&runs, &by), (&runs, &set(1))).len(), 3);
    assert_eq!(differ((&runs, &set(1)), (&runs, &set(1))), [""; 0]);
    assert_eq!(differ((&runs, &set(2)), (&runs, &by)), [""; 0], "there is no namespace 2");
}

#[test]
fn relative_paths_of_flags_are_compared_as_they_are_written() {
    let mut config = server(vec![namespace(1, "file:disk")]);
    let socket = |path: &str| Some(AdminSocket { path: path.into(), is_explicit: true, read_group: None });
    let page = |listen: &str, token: &str| {
        let (listen, token) = (PageAddress::Unix(listen.into()), TokenFile::Configured(token.into()));
        Some(Page { listen, hosts: Vec::new(), token, tick: Duration::from_secs(1) })
    };
    let at = |of: &str| Operation {
        admin_socket: socket(&format!("{of}a.sock")),
        state_file: Some(format!("{of}goals.json").into()),
        reservations: Some(format!("{of}reservations").into()),
        page: page(&format!("{of}page.sock"), &format!("{of}token")),
        sensor: SensorChoice::Modelled(Some(format!("{of}machine.toml").into())),
        ..operation("static")
    };
    let mut by = at("");
    in_full(&mut config, &mut by, Path::new("/here"));
    assert_eq!(config, server(vec![namespace(1, "file:/here/disk")]));
    assert_eq!(by, at("/here/"));
}
