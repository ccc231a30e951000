//! Namespaces that would shrink.

use super::*;

/// Reloads with `shrink` allowed for namespace 1; returns the recorded calls.
fn reload_shrinking(state: &mut State, to: &ServerConfig) -> Vec<String> {
    let recorder = Recorder::default();
    let may_shrink = [("a".to_owned(), 1)];
    apply(state, Wanted { config: to, operation: &operation("static"), may_shrink: &may_shrink }, &recorder);
    recorder.calls.into_inner().unwrap()
}

#[test]
fn nothing_shrinks_without_leave() {
    for kind in ["mem:", "null:", "delay:1ms:mem:"] {
        let sized = |size| server(vec![namespace(1, &format!("{kind}{size}"))]);
        let mut state = state(&sized("2GiB"));
        assert_eq!(reload_state(&mut state, &sized("1GiB"), Recorder::default()), [""; 0]);
        assert_eq!(state.config, sized("2GiB"), "the running state is noted, so that the next reload reports it again");
        assert_eq!(reload_shrinking(&mut state, &sized("1GiB")), ["resize a 1 Some(262144)"]);
        assert_eq!(state.config, sized("1GiB"));
        assert_eq!(reload_state(&mut state, &sized("3GiB"), Recorder::default()), ["resize a 1 Some(786432)"]);
    }
}

#[test]
fn leave_is_given_to_one_namespace() {
    let sized = |size| server(vec![namespace(1, size), namespace(2, size)]);
    let mut state = state(&sized("mem:2GiB"));
    assert_eq!(reload_shrinking(&mut state, &sized("mem:1GiB")), ["resize a 1 Some(262144)"]);
}

#[test]
fn a_namespace_shrinks_with_its_file_only_if_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    let sized = |size| server(vec![namespace(1, &format!("file:{}{size}", path.display()))]);
    let mut state = state(&sized("?size=8MiB"));
    file.set_len(4 << 20).unwrap();
    for to in [sized("?size=4MiB"), sized("")] {
        assert_eq!(reload_state(&mut state, &to, Recorder::default()), [""; 0]);
        assert_eq!(state.config, sized("?size=8MiB"));
    }
    assert_eq!(reload_shrinking(&mut state, &sized("?size=4MiB")), ["resize a 1 None"]);
    file.set_len(16 << 20).unwrap();
    assert_eq!(
        reload_state(&mut state, &sized(""), Recorder::default()),
        ["resize a 1 None"],
        "growing needs no leave"
    );
}

#[test]
fn messages_name_both_sizes() {
    let state = state(&server(vec![namespace(1, "mem:2GiB")]));
    let shrink = Shrink::find(&state, "a", &namespace(1, "mem:1GiB"), Some(262_144)).unwrap();
    let refusal = shrink.refusal("a", 1);
    assert!(refusal.starts_with("namespace 1 of a keeps its 2GiB: 1GiB is smaller"), "{refusal}");
    assert!(refusal.contains("`shrink = true`"), "{refusal}");
    assert!(shrink.notice("a", 1).starts_with("namespace 1 of a shrinks from 2GiB to 1GiB"));
}
