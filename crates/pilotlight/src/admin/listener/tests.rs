//! Connections to the control socket.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::thread;

use super::*;

/// Responds with the number of the line and the line.
struct Echo;

impl RequestHandler for Echo {
    type Session = u32;
    fn session(&self, _: User) -> u32 {
        0
    }
    fn answer(&self, line: &[u8], session: &mut u32) -> String {
        *session += 1;
        format!("{session} {}", String::from_utf8_lossy(line))
    }
    fn refusal(&self, what: &str) -> String {
        format!("no: {what}")
    }
}

/// Runs `test` while a listener runs.
fn beside(test: impl FnOnce(&Path)) {
    beside_with(None, test);
}

/// The same where members of a group may read.
fn beside_with(read_group: Option<&group::Group>, test: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let listener = Listener::new(ControlSocket::bind(&path, read_group).unwrap()).unwrap();
    thread::scope(|scope| {
        let run = scope.spawn(|| listener.run(&Echo).unwrap());
        let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&path)));
        listener.stop();
        run.join().unwrap();
        tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn connect(path: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    BufReader::new(stream)
}

fn line(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[test]
fn lines_are_answered_in_order_per_connection() {
    beside(|path| {
        let (mut one, mut other) = (connect(path), connect(path));
        one.get_mut().write_all(b"a\nb\nc").unwrap();
        other.get_mut().write_all(b"x\n").unwrap();
        assert_eq!(line(&mut one), "1 a\n");
        assert_eq!(line(&mut one), "2 b\n");
        assert_eq!(line(&mut other), "1 x\n");
        one.get_mut().write_all(b"d\n").unwrap();
        assert_eq!(line(&mut one), "3 cd\n");
    });
}

#[test]
fn a_client_that_shuts_down_its_sending_side_still_gets_responses() {
    beside(|path| {
        let mut client = connect(path);
        client.get_mut().write_all(b"a\nb\nrest").unwrap();
        client.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(line(&mut client), "1 a\n");
        assert_eq!(line(&mut client), "2 b\n");
        assert_eq!(line(&mut client), "");
    });
}

#[test]
fn a_line_without_end_is_refused() {
    beside(|path| {
        let mut client = connect(path);
        let _ = client.get_mut().write_all(&vec![b'x'; MAX_LINE + 1]);
        assert!(line(&mut client).contains("at most 65536 bytes"));
    });
}

#[test]
fn one_that_does_not_read_holds_up_nobody() {
    beside(|path| {
        let mut deaf = connect(path);
        let long = [vec![b'x'; MAX_LINE - 2], vec![b'\n']].concat();
        deaf.get_mut().set_nonblocking(true).unwrap();
        while deaf.get_mut().write(&long).is_ok() {}
        let mut other = connect(path);
        other.get_mut().write_all(b"a\n").unwrap();
        assert_eq!(line(&mut other), "1 a\n");
    });
}

#[test]
fn there_is_an_end_to_connections() {
    beside(|path| {
        let mut clients: Vec<_> = (0..MAX_CLIENTS).map(|_| connect(path)).collect();
        for client in &mut clients {
            client.get_mut().write_all(b"a\n").unwrap();
            assert_eq!(line(client), "1 a\n");
        }
        assert!(line(&mut connect(path)).starts_with("no: too many"));
        drop(clients.pop());
        // the closed connection may be noticed after the next one is accepted
        let accepted = |path: &Path| {
            let mut client = connect(path);
            let _ = client.get_mut().write_all(b"b\n");
            line(&mut client) == "1 b\n"
        };
        assert!((0..1000).any(|_| accepted(path)));
    });
}

#[test]
fn another_user_is_refused_despite_file_permissions() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    const NO_HOST: u32 = 65_534;
    if !geteuid().is_root() || std::process::Command::new("python3").arg("-V").output().is_err() {
        eprintln!("SKIPPED: another_user_is_refused: needs root and python3, to connect as another user");
        return;
    }
    beside(|path| {
        for open in [path.parent().unwrap(), path] {
            std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.shutdown(1); \
                      print(s.makefile().readline(), end='')";
        let mut command = std::process::Command::new("python3");
        let output = command.args(["-c", script]).arg(path).current_dir("/").uid(NO_HOST).output().unwrap();
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(message.starts_with("no: access is limited"), "{output:?}");
    });
}

#[test]
fn an_idle_reader_makes_room_and_readers_leave_connections_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    const NO_HOST: u32 = 65_534;
    if !geteuid().is_root() || std::process::Command::new("python3").arg("-V").output().is_err() {
        eprintln!("SKIPPED: an_idle_reader_makes_room: needs root and python3, to connect as another user");
        return;
    }
    let readers = group::Group { name: "readers".to_owned(), gid: NO_HOST };
    beside_with(Some(&readers), |path| {
        std::fs::set_permissions(path.parent().unwrap(), std::fs::Permissions::from_mode(0o755)).unwrap();
        // the first one sends again after the second one, which is then the idlest
        let script = "import socket,sys\nopen=[]\ndef ask(s):\n s.send(b'a\\n'); print(s.makefile().readline(), end='', flush=True)\n\
                      for i in range(int(sys.argv[2])+1):\n s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); open.append(s); ask(s)\n \
                      if i==1: ask(open[0])\nprint(repr(open[1].recv(1)), flush=True)\nask(open[0])\nsys.stdin.read()";
        let mut command = std::process::Command::new("python3");
        command.args(["-c", script]).arg(path).arg(MAX_READERS.to_string()).current_dir("/").uid(NO_HOST).gid(NO_HOST);
        let mut child =
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines: Vec<String> = output.take(MAX_READERS + 4).collect();
        let mut own: Vec<_> = (0..MAX_CLIENTS - MAX_READERS).map(|_| connect(path)).collect();
        for own in &mut own {
            own.get_mut().write_all(b"a\n").unwrap();
            assert_eq!(line(own), "1 a\n");
        }
        drop(child.stdin.take());
        let _ = child.wait();
        let mut expected = vec!["1 a"; MAX_READERS + 1];
        expected.insert(2, "2 a");
        expected.extend(["b''", "3 a"]);
        assert_eq!(lines, expected);
    });
}
