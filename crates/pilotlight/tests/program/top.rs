//! `pilotlight top` in a pseudo terminal: its output, its keys, and the restored terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::process::{Server, run, text};

/// Timeout of each operation on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// `pilotlight top` in a terminal of 80 columns and 24 lines.
struct Top {
    child: Running,
    keys: File,
    /// The test's end of the terminal, to read its settings after the program has ended.
    terminal: File,
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
    vanishes: Arc<AtomicBool>,
    reader: JoinHandle<()>,
}

impl Top {
    fn start(args: &[&str]) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let path = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        tcsetwinsize(&controller, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let terminal = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        // its own session, whose terminal is this one and not that of the test run
        let child = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_pilotlight"), "top", "--interval", "0.2"])
            .args(args)
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0)));
        let mut keys = File::from(controller);
        let (mut output, parser) = (keys.try_clone().unwrap(), Arc::clone(&screen));
        let vanishes = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&vanishes);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes)
                && !ends.load(Relaxed)
            {
                parser.lock().unwrap().process(&bytes[..length]);
            }
        });
        keys.flush().unwrap();
        Self { child: Running(child), keys, terminal, before, screen, vanishes, reader }
    }

    /// Closes the terminal, as a lost connection does, and returns the program.
    fn vanish(mut self) -> Running {
        self.vanishes.store(true, Relaxed);
        self.press("?"); // a change of the screen, which ends the reader
        self.reader.join().unwrap();
        self.child
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen contains this text.
    fn expect(&self, words: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if self.screen.lock().unwrap().screen().contents().contains(words) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("no `{words}` on the screen:\n{}", self.screen.lock().unwrap().screen().contents());
    }

    /// Waits for the end; the exit code. The terminal is as it was before.
    fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TIMEOUT;
        let code = loop {
            match self.child.0.try_wait().unwrap() {
                Some(status) => break status.code(),
                None if Instant::now() > deadline => panic!("it does not end"),
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        let restored = || {
            let parser = self.screen.lock().unwrap();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        };
        while !restored() {
            assert!(Instant::now() < deadline, "the alternate screen or a hidden cursor is left behind");
            thread::sleep(Duration::from_millis(10)); // until the last bytes have arrived
        }
        let now = tcgetattr(&self.terminal).unwrap();
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, of.local_modes);
        assert_eq!(modes(&now), modes(&self.before), "the terminal's modes are as before");
        code
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child.0), signal).unwrap();
    }
}

/// Kills a program that a failed test leaves.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn keys_change_a_server_and_top_reconnects() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let socket = socket.to_str().unwrap();
    let args = ["--listen", "127.0.0.1:0", "--sensor", "modelled", "--admin-socket", socket];
    let server = Server::start(&args);
    let mut top = Top::start(&["--socket", socket]);
    top.expect("policy     sandman");
    top.expect("modelled, sandman-epyc-9454p");
    top.press("b300W\r");
    top.expect("budget 300W of the CPU packages (manual)");
    server.status_until("a budget", |status| status["goals"]["budget_uw"] == 300_000_000);
    top.press("t1 minute\r");
    top.expect("tolerance: `1 minute`");
    top.press("\x1b"); // Escape leaves the line, in which a letter would be text
    top.expect("q quit");
    top.press("pk\r");
    top.expect("policy     static");
    drop(server);
    top.expect("NO CONNECTION");
    std::fs::remove_file(socket).unwrap();
    top.expect("no server has a control socket"); // it has tried to connect again
    let _server = Server::start(&args);
    top.expect("policy     sandman");
    top.press("q");
    assert_eq!(top.ended(), Some(0));
}

#[test]
fn a_signal_restores_the_terminal() {
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut top = Top::start(&["--socket", server.socket().to_str().unwrap()]);
        top.expect("I/O thread");
        top.signal(signal);
        assert_eq!(top.ended(), Some(0));
    }
}

#[test]
fn it_ends_when_its_terminal_vanishes() {
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    let top = Top::start(&["--socket", server.socket().to_str().unwrap()]);
    top.expect("I/O thread");
    let mut program = top.vanish();
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        match program.0.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => panic!("it runs on without a terminal"),
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn without_a_terminal_or_a_server_the_error_names_a_remedy() {
    let output = run(&["top"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("pilotlight status --json"), "{}", text(&output.stderr));
    let mut top = Top::start(&["--socket", "/nonexistent/a.sock"]);
    assert_eq!(top.ended(), Some(1));
    top.expect("pilotlight serve");
}
