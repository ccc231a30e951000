//! Tests of `secrets_file.rs`: lines, and files that are not kept secret.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;

const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const TLS: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

fn file(text: &str, mode: u32) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("secrets");
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
    (directory, path)
}

fn table() -> String {
    format!(
        "# hosts\n\nnqn.2026-01.example:a dhchap_key {SECRET}\n  nqn.2026-01.example:a\tdhchap_ctrl_key\t{SECRET}\r\n\
         nqn.2026-01.example:b tls_key {TLS}\n"
    )
}

#[test]
fn a_file_has_the_secrets_of_several_hosts() {
    let (_directory, path) = file(&table(), 0o600);
    let hosts = load(&path, None).expect("a valid file");
    assert_eq!(hosts.len(), 2);
    let (a, b) = (&hosts["nqn.2026-01.example:a"], &hosts["nqn.2026-01.example:b"]);
    let text = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.to_text().to_string());
    assert_eq!((text(&a.host).as_deref(), text(&a.controller).as_deref()), (Some(SECRET), Some(SECRET)));
    assert!(a.tls.is_none() && b.host.is_none() && b.controller.is_none());
    assert_eq!(b.tls.as_ref().map(|key| key.to_text().to_string()).as_deref(), Some(TLS));
}

#[test]
fn wrong_lines_are_named() {
    let nqn = "nqn.2026-01.example:a";
    let cases = [
        (format!("{nqn} {SECRET}"), 1, LineError::Words),
        (format!("{nqn} dhchap_key {SECRET} more"), 1, LineError::Words),
        (format!("# a\n\nhost dhchap_key {SECRET}"), 3, LineError::Nqn),
        (format!("nqn.{} dhchap_key {SECRET}", "n".repeat(220)), 1, LineError::Nqn),
        (format!("{nqn} key {SECRET}"), 1, LineError::Kind),
        (format!("{nqn} tls_key {SECRET}"), 1, FormatError::Prefix("NVMeTLSkey-1", "gen-tls-key").into()),
        (format!("{nqn} dhchap_key {}", &SECRET[..50]), 1, FormatError::Terminator.into()),
        (format!("{nqn} dhchap_key {SECRET}\n{nqn} dhchap_key {SECRET}"), 2, LineError::Twice),
    ];
    for (text, line, expected) in cases {
        assert_eq!(parse(&text).expect_err("a wrong line"), (line, expected), "{text}");
    }
}

#[test]
fn a_message_names_file_line_and_remedy_but_no_secret() {
    let (_directory, path) = file(&table().replace("fiaR", "fiaS"), 0o600);
    let message = load(&path, None).expect_err("a wrong checksum").to_string();
    assert!(message.contains("/secrets: line 3: the checksum does not match"), "{message}");
    assert!(!message.contains("AAEC"), "{message}");
    let (_directory, path) = file(&table(), 0o644);
    let message = load(&path, None).expect_err("an open file").to_string();
    assert!(message.ends_with("/secrets: is accessible to other users (mode 0644): chmod 600"), "{message}");
}

#[test]
fn open_files_are_refused() {
    for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o440, 0o444] {
        let (_directory, path) = file(&table(), mode);
        let error = load(&path, None).expect_err("an open file");
        assert!(matches!(error.cause, Cause::Mode(found) if found == mode), "{error}");
    }
}

#[test]
fn credentials_of_systemd_are_accepted() {
    for mode in [0o400, 0o440] {
        let (directory, path) = file(&table(), mode);
        assert!(load(&path, Some(directory.path())).is_ok(), "{mode:o}");
        assert!(mode == 0o400 || load(&path, Some(Path::new("/run"))).is_err());
    }
    for mode in [0o444, 0o640, 0o460] {
        let (directory, path) = file(&table(), mode);
        assert!(load(&path, Some(directory.path())).is_err(), "{mode:o}");
    }
}

#[test]
fn only_regular_files_are_read() {
    let (directory, path) = file(&table(), 0o600);
    let link = directory.path().join("link");
    symlink(&path, &link).expect("a link");
    let cause = |path: &Path| load(path, None).expect_err("no regular file").cause;
    assert!(matches!(cause(&link), Cause::Link));
    assert!(matches!(cause(directory.path()), Cause::NotRegular));
    assert!(matches!(cause(Path::new("/dev/null")), Cause::NotRegular));
    assert!(matches!(cause(&directory.path().join("absent")), Cause::Io(_)));
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a named pipe");
    assert!(matches!(cause(&pipe), Cause::NotRegular), "and it does not wait for a writer");
}

#[test]
fn long_files_and_other_files_are_refused() {
    let (_directory, path) = file("", 0o600);
    fs::File::options().write(true).open(&path).expect("the file").set_len(MAX_BYTES + 1).expect("a sparse file");
    assert!(matches!(load(&path, None).expect_err("a long file").cause, Cause::TooLong));
    fs::write(&path, [0xff, 0xfe]).expect("a file");
    assert!(matches!(load(&path, None).expect_err("no text").cause, Cause::NotText));
}

/// The owners that a test without privileges cannot make.
#[test]
fn the_owner_is_root_or_the_user_of_the_server() {
    let regular = 0o100_600;
    for (owner, user) in [(0, 1000), (1000, 1000), (0, 0)] {
        assert!(check(regular, owner, user, false).is_ok());
    }
    for (owner, user) in [(1001, 1000), (1000, 0)] {
        assert!(matches!(check(regular, owner, user, false), Err(Cause::Owner(found)) if found == owner));
    }
    assert!(matches!(check(0o104_640, 0, 0, true), Err(Cause::Mode(0o4640))));
}
