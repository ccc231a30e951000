//! Signals and their actions; a second one ends the process at once.
//!
//! SIGTERM and SIGINT stop the server, SIGHUP reloads the configuration. While the server stops, a second SIGTERM or SIGINT ends the
//! process within the signal handler itself, so that it works even if all other threads are blocked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// Signals that stop the server, with the exit code of a second one: 128 and the signal's number.
const STOPPING: [(i32, i32); 2] = [(SIGINT, 128 + SIGINT), (SIGTERM, 128 + SIGTERM)];

/// The action for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalAction {
    /// Drain and exit.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// The signals that the server handles.
pub(super) struct SignalActions {
    signals: Signals,
}

impl SignalActions {
    /// Handles signals from now on.
    pub(super) fn install() -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        for (signal, code) in STOPPING {
            // first the handler that exits if an earlier signal was noted, then the one that notes this signal
            flag::register_conditional_shutdown(signal, code, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
        }
        Ok(Self { signals: Signals::new([SIGINT, SIGTERM, SIGHUP])? })
    }

    /// Waits for the next order.
    pub(super) fn next(&mut self) -> SignalAction {
        // a stop has precedence over a reload
        loop {
            let arrived: Vec<i32> = self.signals.wait().collect();
            if arrived.iter().any(|signal| STOPPING.iter().any(|(stopping, _)| stopping == signal)) {
                return SignalAction::Stop;
            }
            if arrived.contains(&SIGHUP) {
                return SignalAction::Reload;
            }
        }
    }
}
