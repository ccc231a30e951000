//! The file of the control socket: mode, owner, and replacement after a kill.

use super::*;

#[test]
fn only_the_owner_may_connect_and_the_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/a.sock");
    let socket = ControlSocket::bind(&path, None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o700);
    assert!(UnixStream::connect(&path).is_ok());
    drop(socket);
    assert!(!path.exists());
}

#[test]
fn a_living_socket_is_left_alone_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let socket = ControlSocket::bind(&path, None).unwrap();
    let error = ControlSocket::bind(&path, None).unwrap_err().to_string();
    assert!(error.contains(&format!("(process {})", std::process::id())) && error.contains("a.sock"), "{error}");
    assert!(UnixStream::connect(&path).is_ok());
    drop(socket);
}

#[test]
fn only_a_killed_server_s_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the file outlives its listener");
    drop(ControlSocket::bind(&path, None).unwrap());
    fs::write(&path, "text").unwrap();
    assert!(matches!(ControlSocket::bind(&path, None), Err(BindError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "text");
}

#[test]
fn a_check_finds_the_errors_of_a_bind_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = (dir.path().join("a.sock"), dir.path().join("file"));
    ControlSocket::check(&dir.path().join("new/deep/a.sock")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    ControlSocket::check(&path).unwrap();
    assert!(path.exists() && !dir.path().join("new").exists());
    fs::write(&file, "text").unwrap();
    assert!(matches!(ControlSocket::check(&file), Err(BindError::NotASocket(_))));
    assert!(matches!(ControlSocket::check(&file.join("a.sock")), Err(BindError::System { .. })));
    assert!(matches!(ControlSocket::check(&file.join("deep/a.sock")), Err(BindError::System { .. })));
    assert!(matches!(ControlSocket::check(&dir.path().join("a".repeat(200))), Err(BindError::System { .. })));
    let socket = ControlSocket::bind(&path, None).unwrap();
    assert!(matches!(ControlSocket::check(&path), Err(BindError::Live { .. })));
    drop(socket);
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(ControlSocket::check(&path), Err(BindError::OpenDirectory(_))));
}

#[test]
fn a_file_that_replaced_the_socket_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let socket = ControlSocket::bind(&path, None).unwrap();
    fs::rename(&path, dir.path().join("elsewhere")).unwrap();
    fs::write(&path, "text").unwrap();
    drop(socket);
    assert!(path.exists());
}

#[test]
fn a_directory_that_others_may_change_is_refused_unless_sticky() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    for mode in [0o777, 0o770, 0o702, 0o720] {
        fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
        assert!(matches!(ControlSocket::bind(&path, None), Err(BindError::OpenDirectory(_))), "{mode:o}");
        assert!(matches!(ControlSocket::check(&path), Err(BindError::OpenDirectory(_))), "{mode:o}");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1000 | mode)).unwrap();
        ControlSocket::check(&path).unwrap();
        assert!(ControlSocket::bind(&path, None).is_ok(), "{mode:o}");
    }
}

#[test]
fn a_directory_that_the_group_cannot_search_is_named_with_a_remedy() {
    const GROUP: u32 = 65_534;
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let (outer, group) = (dir.path().canonicalize().unwrap(), Group { name: "readers".to_owned(), gid: GROUP });
    let inner = outer.join("run");
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    make_directory(&inner, None).unwrap();
    let message = || closed_to(&inner, &group).unwrap_or_default();
    set(&outer, 0o755);
    assert!(message().contains(&format!("may not search {0}; `chgrp readers {0} && chmod g+x", inner.display())));
    set(&inner, 0o711);
    assert_eq!(message(), "");
    set(&outer, 0o700);
    assert!(message().contains(&format!("may not search {};", outer.display())), "{}", message());
    set(&outer, 0o755);
    if geteuid().is_root() {
        std::os::unix::fs::chown(&inner, None, Some(GROUP)).unwrap();
        set(&inner, 0o701);
        assert!(message().contains("may not search"), "the bits of others are not for members");
        set(&inner, 0o710);
        assert_eq!(message(), "");
    }
}
