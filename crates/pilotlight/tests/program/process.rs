//! The program as a child process, killed at the end of the test: starts it, reads its output, sends signals.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use pilotlight_host::{ConnectOptions, Controller};
use serde_json::Value;
use tempfile::TempDir;

/// Timeout of each operation, well above the usual time on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Tests that may run servers at once. Most of their time servers wait for samples and timers; a polling one uses a core.
const TESTS: usize = 4;
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A test's permission to run servers, shared by all that it starts: who has one never waits for another.
struct Permit;

thread_local! {
    /// The permit of the test on this thread.
    static PERMIT: RefCell<Weak<Permit>> = const { RefCell::new(Weak::new()) };
}

impl Permit {
    fn wait() -> Arc<Self> {
        PERMIT.with_borrow_mut(|permit| {
            permit.upgrade().unwrap_or_else(|| {
                let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
                let mut running =
                    ENDED.wait_while(running, |running| *running >= TESTS).unwrap_or_else(PoisonError::into_inner);
                *running += 1;
                let new = Arc::new(Self);
                *permit = Arc::downgrade(&new);
                new
            })
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// The program with these arguments, not yet started.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilotlight"));
    command.args(args).stdin(Stdio::null()).env_remove("PILOTLIGHT_LOG").env_remove("PILOTLIGHT_SOCKET");
    command
}

/// Starts the program; both pipes are read at its end.
pub(crate) fn spawn(args: &[&str]) -> Child {
    command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Text that the program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits for a condition.
pub(crate) fn wait_for(what: &str, mut is_met: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_met() {
        assert!(Instant::now() < end, "timed out: {what}");
        thread::sleep(Duration::from_millis(5)); // between two looks at the condition
    }
}

/// A running server. Killed when the test is over, however it ends.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    _dir: Option<TempDir>,
    log: Receiver<String>,
    message: Value,
    _permit: Arc<Permit>,
}

impl Server {
    /// Starts `pilotlight serve` and waits until it serves.
    ///
    /// It has its own control socket, unless the arguments have one or name a file.
    pub(crate) fn start(args: &[&str]) -> Self {
        if args.iter().any(|arg| ["--config", "--admin-socket"].contains(arg)) {
            return Self::start_as(args, None);
        }
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        Self::start_as(&[args, &["--admin-socket", socket.to_str().unwrap()]].concat(), Some(dir))
    }

    /// The same with these variables in its environment.
    pub(crate) fn start_in(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let args = [args, &["--admin-socket", socket.to_str().unwrap()]].concat();
        Self::start_with(&args, Some(dir), environment)
    }

    fn start_as(args: &[&str], dir: Option<TempDir>) -> Self {
        Self::start_with(args, dir, &[])
    }

    fn start_with(args: &[&str], dir: Option<TempDir>, environment: &[(&str, &str)]) -> Self {
        let permit = Permit::wait();
        let args = [&["serve", "--json"], args].concat();
        let mut command = command(&args);
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = lines_of(child.stderr.take().unwrap());
        let out = lines_of(child.stdout.take().unwrap());
        let Ok(line) = out.recv_timeout(TIMEOUT) else {
            let _ = child.kill();
            panic!("the server does not start: {:?}", log.iter().collect::<Vec<_>>());
        };
        let message: Value = serde_json::from_str(&line).unwrap();
        let socket = message["admin_socket"].as_str().unwrap_or_default().into();
        Self { child, socket, _dir: dir, log, message, _permit: permit }
    }

    /// Its control socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs a command with this server's control socket.
    pub(crate) fn admin(&self, args: &[&str]) -> Output {
        run(&[args, &["--socket", self.socket.to_str().unwrap()]].concat())
    }

    /// The JSON output of a command with this server's control socket; it must succeed.
    pub(crate) fn request(&self, args: &[&str]) -> Value {
        let output = self.admin(&[args, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Requests the status until it matches.
    pub(crate) fn status_until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        let mut status = Value::Null;
        while Instant::now() < deadline {
            status = self.request(&["status"]);
            if wanted(&status) {
                return status;
            }
        }
        panic!("{what}: not seen; the last status is {status:#}");
    }

    /// Kills it as in a power cut, without cleanup.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The server's output at the start.
    pub(crate) fn message(&self) -> &Value {
        &self.message
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.message["listening"][0].as_str().unwrap().parse().unwrap()
    }

    /// Its address with TLS.
    pub(crate) fn tls_address(&self) -> SocketAddr {
        self.message["listening_tls"][0].as_str().unwrap().parse().unwrap()
    }

    /// A host connected to the only subsystem.
    pub(crate) fn connect(&self) -> Controller {
        let nqn = self.message["subsystems"][0]["nqn"].as_str().unwrap();
        Controller::connect(ConnectOptions::new(self.address(), nqn)).unwrap()
    }

    /// Its process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let signal = rustix::process::Signal::from_named_raw(match name {
            "TERM" => signal_hook::consts::SIGTERM,
            "INT" => signal_hook::consts::SIGINT,
            "HUP" => signal_hook::consts::SIGHUP,
            "STOP" => signal_hook::consts::SIGSTOP,
            "CONT" => signal_hook::consts::SIGCONT,
            _ => panic!("no signal {name}"),
        });
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal.unwrap()).unwrap();
    }

    /// Waits for a line of the log with this text.
    pub(crate) fn expect_log(&self, words: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        let mut seen = Vec::new();
        while let Ok(line) = self.log.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(words) {
                return line;
            }
            seen.push(line);
        }
        panic!("the log never printed `{words}`, but: {seen:#?}");
    }

    /// Waits for the end; the exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a pipe, read by a thread so that it never fills.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| sender.send(line).map_err(drop))
    });
    receiver
}
