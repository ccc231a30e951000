//! Ends the program when a stop hangs.
//!
//! The target cancels requests and flushes by itself. But the stop begins only when the last reload and the last command over the
//! control socket are carried out, and a change of a namespace may be in a call that does not return.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tracing::error;

use crate::exit::Exit;
use crate::privileges;

/// Time beyond the drain timeout: more than a stop can take (`pilotlight_nvmf_target::Server::stop`).
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Does something unless it is dropped in time.
pub(super) struct ForcedExit {
    _armed: Sender<()>,
}

impl ForcedExit {
    /// Calls `act` after `within`.
    pub(super) fn arm(within: Duration, act: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (armed, disarmed) = channel::<()>();
        let body = move || {
            if disarmed.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
                act();
            }
        };
        thread::Builder::new().name("forced_exit".to_owned()).spawn(body)?;
        Ok(Self { _armed: armed })
    }
}

/// Time for the helper process to restore the machine; it may be in the call that does not return.
pub(super) const RESTORE: Duration = Duration::from_secs(1);

/// Leaves with the exit code of a stop with work unfinished. Nobody has killed the server, so no power limit stays.
pub(super) fn leave() {
    let exit = || std::process::exit(i32::from(Exit::Undrained.code()));
    error!("the stop is held up, most likely by a change of a namespace that does not end; leaving without a flush");
    crate::log::flush();
    if let Ok(_forced_exit) = ForcedExit::arm(RESTORE, exit) {
        privileges::finish();
    }
    exit();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvError, channel};

    use super::*;

    const CHILD: &str = "PILOTLIGHT_TEST_LEAVES";

    /// In a child process, as this one has other tests to run.
    #[test]
    fn the_reason_is_in_the_log_before_the_program_leaves() {
        if std::env::var_os(CHILD).is_some() {
            crate::log::start(0).unwrap();
            privileges::tests::connect_to_helper();
            leave();
        }
        let name = "serve::forced_exit::tests::the_reason_is_in_the_log_before_the_program_leaves";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{log}");
        assert!(log.contains("ERROR") && log.contains("the stop is held up"), "{log}");
        assert!(log.contains(privileges::tests::RESTORES), "it was not killed: {log}");
    }

    #[test]
    fn acts_when_the_time_is_over() {
        let (acted, results) = channel();
        let _overdue = ForcedExit::arm(Duration::from_millis(1), move || acted.send(()).unwrap()).unwrap();
        assert_eq!(results.recv(), Ok(()));
    }

    #[test]
    fn does_nothing_once_it_is_dropped() {
        let (acted, results) = channel();
        let forced_exit = ForcedExit::arm(Duration::from_secs(3600), move || acted.send(()).unwrap()).unwrap();
        drop(forced_exit);
        assert_eq!(results.recv(), Err(RecvError), "it was dropped, and not called");
    }
}
