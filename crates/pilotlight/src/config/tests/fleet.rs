//! The section `[fleet]`.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::config::Fleet;

const WHOLE: &str =
    "etcd = \"http://192.0.2.11:2379\"\nrack = \"rack-7\"\nname = \"storage-1\"\nfloor = \"120W\"\nfull = \"400W\"\n";

fn file(fleet: &str) -> String {
    with_subsystem(&format!("[fleet]\n{fleet}"))
}

fn output(fleet: &str) -> String {
    ConfigDir::new().output(&file(fleet))
}

fn loaded(fleet: &str) -> Fleet {
    ConfigDir::new().load(&file(fleet)).unwrap().operation.fleet.unwrap()
}

#[test]
fn defaults_and_files() {
    let fleet = loaded(WHOLE);
    assert_eq!((fleet.floor_uw, fleet.full_uw, fleet.priority), (120_000_000, 400_000_000, 0));
    assert_eq!(fleet.lease, std::time::Duration::from_secs(20));
    let config_dir = ConfigDir::new();
    let text = WHOLE.replace("http:", "https:")
        + "ca_file = \"etcd-ca.pem\"\ncert_file = \"etcd-cert.pem\"\nkey_file = \"etcd-key.pem\"\nuser = \"a\"\npassword_file = \"etcd-password\"";
    let fleet = config_dir.load(&file(&text)).unwrap().operation.fleet.unwrap();
    assert_eq!(
        (fleet.etcd.user.clone(), fleet.etcd.ca.as_deref()),
        (Some(("a".into(), "etcd-password".into())), Some("etcd-ca.pem\n"))
    );
    assert!(!format!("{fleet:?}").contains("password"), "not in a log");
}

#[test]
fn full_power_can_come_from_the_profile() {
    let text = file(&WHOLE.replace("full = \"400W\"\n", "")) + "\n[goals]\nprofile = \"machine.toml\"\n";
    let full_uw = ConfigDir::new().load(&text).unwrap().operation.fleet.unwrap().full_uw;
    assert!((400_000_000..700_000_000).contains(&full_uw), "{full_uw}"); // CPU 210 W, ten drives, others 160 W
    let missing = output(&WHOLE.replace("full = \"400W\"\n", ""));
    assert!(missing.contains("`full` is missing") && missing.contains("full = \"400W\""), "{missing}");
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    for (from, to, expected) in [
        ("rack = \"rack-7\"\n", "", "`rack` is missing"),
        ("name = \"storage-1\"\n", "", "`name` is missing"),
        ("floor = \"120W\"\n", "", "`floor` is missing"),
        ("rack-7", "rack/7", "is not a name for etcd"),
        ("http://192.0.2.11:2379", "192.0.2.11:2379", "is not an address of etcd"),
        ("http://", "https://", "needs `ca_file`"),
        ("floor = \"120W\"", "floor = \"500W\"", "`floor` is above `full`"),
        ("floor = \"120W\"", "floor = \"off\"", "expected a power such as 120W"),
        ("etcd = \"http://192.0.2.11:2379\"\n", "", "has no effect without `etcd`"),
    ] {
        let refused = output(&WHOLE.replace(from, to));
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    for (more, expected) in [
        ("lease = \"1s\"", "use 2s to 1h"),
        ("priority = 256", "256 is not a priority"),
        ("ca_file = \"etcd-ca.pem\"", "without TLS"),
        ("cert_file = \"etcd-cert.pem\"", "needs `key_file` too"),
        ("user = \"a\"", "needs `password_file` too"),
        ("password_file = \"etcd-password\"", "needs `user` too"),
        ("password_file = \"none\"\nuser = \"a\"", "cannot be read: No such file"),
    ] {
        let refused = output(&format!("{WHOLE}{more}"));
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
}

#[test]
fn key_and_password_that_others_may_read_are_refused() {
    let config_dir = ConfigDir::new();
    let tls = "ca_file = \"etcd-ca.pem\"\ncert_file = \"etcd-cert.pem\"\nkey_file = \"etcd-key.pem\"\n";
    let text = WHOLE.replace("http:", "https:") + tls + "user = \"a\"\npassword_file = \"etcd-password\"\n";
    for (key, name) in [("key_file", "etcd-key.pem"), ("password_file", "etcd-password")] {
        let path = config_dir.path().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(config_dir.load(&file(&text)).is_err(), "{key}");
        let refused = config_dir.output(&file(&text));
        let why = format!("{name}: is accessible to other users (mode 0640): chmod 600");
        assert!(refused.contains(&format!("{key} = ")) && refused.contains(&why), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    for name in ["etcd-ca.pem", "etcd-cert.pem"] {
        fs::set_permissions(config_dir.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert!(config_dir.load(&file(&text)).is_ok(), "certificates are public");
}
