//! What the modules of this crate do not depend on: each other in a circle, so that each can be read, and moved, without those above it; the
//! layer beside them; sockets, clocks and threads.

mod modules;

#[test]
fn modules_depend_on_each_other_without_a_circle() {
    modules::assert_no_circle(env!("CARGO_MANIFEST_DIR"), (15, 40));
}

/// Checks that no line of code in these files and folders under `src/`, tests excluded, contains any of `words`.
fn assert_free_of(places: &[&str], words: &[&str]) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files: Vec<_> = places.iter().map(|place| root.join(place)).collect();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()));
            continue;
        }
        if path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a text");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let found = words.iter().find(|word| line.contains(*word));
            assert_eq!(found, None, "{}: {line}", path.display());
        }
    }
}

#[test]
fn the_queue_pair_does_not_depend_on_the_transport() {
    let words = ["pdu", "tcp", "Tcp", "r2t", "R2T", "OwnedFd", "epoll", "rustix", "sendmsg", "recv("];
    assert_free_of(&["queue_pair", "command.rs", "controller"], &words);
}

#[test]
fn the_transport_does_not_depend_on_commands() {
    assert_free_of(&["tcp"], &["opcode", "crate::command", "crate::controller", "Backend", "Work::"]);
}

#[test]
fn there_is_no_socket_clock_or_thread() {
    let words =
        ["rustix", "std::os", "TcpStream", "UnixStream", "Instant", "SystemTime", "clock::", "thread::", "reactor"];
    assert_free_of(&[""], &words);
}
