//! Edits of a file keep comments and order.

use expect_test::expect;

use super::*;

const NQN: &str = "nqn.2024-05.com.example:a";
const FILE: &str = r#"# The disks of rack 7.
[server]
listen = "192.0.2.7:4420" # the storage network

[policy]
name = "sandman" # saves
window = "64"
min_requests = "3"

[[subsystem]]
nqn = "nqn.2024-05.com.example:a"
allowed_hosts = ["nqn.2024-05.com.example:h"] # the database

# scratch
[[subsystem.namespace]]
nsid = 1
backend = "mem:1GiB" # grows

[[subsystem.namespace]]
nsid = 2
backend = "file:disk.img"
"#;

/// [`FILE`] after edits: its text, and the changes.
fn edited() -> (String, Vec<String>) {
    let mut edit = Edit::parse(FILE).unwrap();
    let min_requests = vec![("min_requests".to_owned(), "4".to_owned()), ("spread".to_owned(), "deviation".to_owned())];
    edit.set_policy(&PolicyChoice { name: "sandman".to_owned(), parameters: min_requests });
    edit.set("goals", "budget", Some("300W".into()));
    edit.set_allowed_hosts(NQN, &["nqn.2024-05.com.example:h".to_owned(), "nqn.2024-05.com.example:i".to_owned()]);
    edit.change_backend((NQN, 1), |_| "mem:2GiB".to_owned());
    edit.remove_namespace(NQN, 2);
    let namespace = NamespaceConfig {
        nsid: 3,
        backend: "file:/disk".parse().unwrap(),
        block_size: 512,
        uuid: Some([7; 16]),
        hosts: vec!["nqn.2024-05.com.example:i".to_owned()],
        ana_group: 1,
    };
    edit.add_namespace(NQN, &namespace);
    let of = Capped::Namespace { nqn: NQN.to_owned(), nsid: 1 };
    edit.set_of(&of, "max_bytes_per_s", Some("100MB/s".into()));
    edit.set_of(&Capped::Host { nqn: "nqn.2024-05.com.example:h".to_owned() }, "priority", Some(5.into()));
    edit.set_minimum(5, Some("1GB/s".into()));
    edit.finish()
}

#[test]
fn comments_and_order_stay() {
    expect![[r##"
            # The disks of rack 7.
            [server]
            listen = "192.0.2.7:4420" # the storage network

            [policy]
            name = "sandman" # saves
            min_requests = "4"
            spread = "deviation"

            [[subsystem]]
            nqn = "nqn.2024-05.com.example:a"
            allowed_hosts = ["nqn.2024-05.com.example:h", "nqn.2024-05.com.example:i"] # the database

            # scratch
            [[subsystem.namespace]]
            nsid = 1
            backend = "mem:2GiB" # grows
            max_bytes_per_s = "100MB/s"

            [[subsystem.namespace]]
            nsid = 3
            backend = "file:/disk"
            block_size = 512
            uuid = "07070707-0707-0707-0707-070707070707"
            hosts = ["nqn.2024-05.com.example:i"]

            [goals]
            budget = "300W"

            [[host]]
            nqn = "nqn.2024-05.com.example:h"
            priority = 5

            [[class]]
            priority = 5
            min_bytes_per_s = "1GB/s"
        "##]]
    .assert_eq(&edited().0);
}

#[test]
fn changes_are_listed_once() {
    expect![[r#"
            [policy]
            budget in [goals]
            allowed_hosts of nqn.2024-05.com.example:a
            backend of namespace 1 of nqn.2024-05.com.example:a
            namespace 2 of nqn.2024-05.com.example:a
            namespace 3 of nqn.2024-05.com.example:a
            max_bytes_per_s of namespace 1 of nqn.2024-05.com.example:a
            priority of host nqn.2024-05.com.example:h
            min_bytes_per_s of priority 5"#]]
    .assert_eq(&edited().1.join("\n"));
}

#[test]
fn parameters_are_in_the_order_they_were_set() {
    let set = [("min_requests", "3"), ("window", "8"), ("spread", "error"), ("window", "64")];
    let parameters = set.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let policy = PolicyChoice { name: "sandman".to_owned(), parameters };
    let file = "[policy]\nname = \"sandman\"\n# measured\nwindow = \"64\" # blocks\nmin_requests = 3\n\n[goals]\n";
    let mut edit = Edit::parse(file).unwrap();
    edit.set_policy(&policy);
    expect![[r#"
            [policy]
            name = "sandman"
            min_requests = "3"
            spread = "error"
            # measured
            window = "64" # blocks

            [goals]
        "#]]
    .assert_eq(&edit.finish().0);
    let mut edit = Edit::parse("policy = { name = \"sandman\", window = 64, min_requests = 3 }\n").unwrap();
    edit.set_policy(&policy);
    let text = edit.finish().0;
    assert!(text.find("min_requests") < text.find("spread") && text.find("spread") < text.find("window"), "{text}");
}

#[test]
fn inline_tables_are_expanded_when_extended() {
    let text = format!("subsystem = [{{ nqn = \"{NQN}\", namespace = [{{ nsid = 1, backend = \"mem:1GiB\" }}] }}]\n");
    let mut edit = Edit::parse(&text).unwrap();
    edit.set_allowed_hosts(NQN, &["h".to_owned()]);
    edit.change_backend((NQN, 1), |_| "mem:2GiB".to_owned());
    expect![[r#"
            [[subsystem ]]
            nqn = "nqn.2024-05.com.example:a"
            allowed_hosts = ["h"]

            [[subsystem.namespace]]
            nsid = 1
            backend = "mem:2GiB"
        "#]]
    .assert_eq(&edit.finish().0);
}

#[test]
fn unset_values_leave_no_key() {
    let mut edit = Edit::parse(FILE).unwrap();
    edit.set_allowed_hosts(NQN, &[]);
    edit.set("goals", "tolerance", None);
    edit.set_minimum(5, None);
    edit.set_of(&Capped::Host { nqn: "h".to_owned() }, "priority", None);
    let (text, _) = edit.finish();
    assert!(!text.contains("allowed_hosts") && !text.contains("tolerance") && !text.contains("priority"), "{text}");
}
