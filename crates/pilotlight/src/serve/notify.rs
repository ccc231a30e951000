//! Notifications to systemd (`sd_notify(3)`): ready, reloading, stopping, and the watchdog.
//!
//! *Watchdog.* With `WatchdogSec=`, a keep-alive is sent four times in its period, if every reactor that is awake has completed a
//! loop since the last one. A reactor that sleeps counts as alive and is not woken. Without systemd nothing is sent. The thread is
//! not that of housekeeping: a send may wait for systemd, and a server whose hosts are served is not restarted because housekeeping is late.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_plant::CoreState;
use pilotlight_reactor::{ReactorStats, RuntimeStats, keep_off};
use sd_notify::NotifyState;
use tracing::{debug, error};

use super::admin::Admin;
use crate::status::health::HealthReport;

/// Hosts can connect.
pub(super) fn ready() {
    send(&[NotifyState::Ready]);
}

/// The server is reloading, until [`ready`].
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => debug!("cannot notify systemd of a reload: {error}"),
    }
}

/// The server is stopping, within this time.
pub(super) fn stopping(within: Duration) {
    let us = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
    send(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(us)]);
}

fn send(state: &[NotifyState<'_>]) {
    let socket = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    let sent = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => send_to_abstract(name, state),
        None => sd_notify::notify(state),
    };
    if let Err(error) = sent {
        debug!("cannot notify systemd: {error}");
    }
}

/// To a socket in the abstract namespace, whose name `sd_notify` takes for a path.
fn send_to_abstract(name: &[u8], state: &[NotifyState<'_>]) -> io::Result<()> {
    let message: String = state.iter().map(|one| format!("{one}\n")).collect();
    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// Keep-alives until the end of this.
pub(super) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Sends keep-alives if the unit has a watchdog; `None` otherwise.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub(super) fn start(admin: &Arc<Admin>, reactors: &[Option<u32>]) -> io::Result<Option<Self>> {
        let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else { return Ok(None) };
        let (stop, stopped) = channel::<()>();
        let (admin, cpus) = (Arc::clone(admin), reactors.iter().flatten().copied().collect::<Vec<u32>>());
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            keep_off(&cpus);
            let mut before = admin.runtime_stats();
            while stopped.recv_timeout(limit / 4) == Err(RecvTimeoutError::Timeout) {
                let now = admin.runtime_stats();
                match stuck(&before, &now) {
                    None => send(&[NotifyState::Watchdog]),
                    Some(reactor) => {
                        error!(reactor, "a reactor is awake and does not loop; systemd gets no keep-alive")
                    }
                }
                before = now;
            }
        })?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The health of a server from two snapshots; the first may be the second.
pub(super) fn health(first: &RuntimeStats, now: &RuntimeStats, addresses: usize) -> HealthReport {
    HealthReport {
        reactors: now.reactors.len(),
        reactors_started: now.reactors.iter().filter(|reactor| reactor.loops > 0).count(),
        addresses,
        stuck_reactor: stuck(first, now),
    }
}

/// A reactor that was awake in both snapshots, and has neither looped nor slept in between.
fn stuck(before: &RuntimeStats, now: &RuntimeStats) -> Option<usize> {
    let is_stuck = |(was, is): (&ReactorStats, &ReactorStats)| {
        let wakes = |stats: &ReactorStats| stats.asleep.each_ref().map(|sleep| sleep.wakes);
        let is_awake = was.state == CoreState::Awake && is.state == CoreState::Awake;
        is_awake && was.loops == is.loops && wakes(was) == wakes(is)
    };
    before.reactors.iter().zip(&now.reactors).position(is_stuck)
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::Depth;

    use super::*;

    fn stats(reactors: [(CoreState, u64); 2]) -> RuntimeStats {
        let one = |(state, loops)| ReactorStats { state, loops, ..crate::status::measure::none_yet() };
        RuntimeStats { reactors: reactors.map(one).to_vec(), ..RuntimeStats::default() }
    }

    #[test]
    fn an_awake_reactor_must_loop_and_a_sleeping_one_need_not() {
        let (awake, asleep) = (CoreState::Awake, CoreState::Asleep(Depth::MonitorWait));
        let before = stats([(awake, 5), (asleep, 7)]);
        assert_eq!(stuck(&before, &stats([(awake, 6), (asleep, 7)])), None);
        assert_eq!(stuck(&before, &stats([(awake, 6), (awake, 7)])), None, "it has just woken");
        assert_eq!(stuck(&before, &stats([(asleep, 5), (asleep, 7)])), None, "it has just fallen asleep");
        let mut after = stats([(awake, 5), (awake, 8)]);
        assert_eq!(stuck(&before, &after), Some(0));
        after.reactors[0].asleep[1].wakes = 1;
        assert_eq!(stuck(&before, &after), None, "it slept in between");
    }

    #[test]
    fn a_probe_gets_the_watchdog_rule_and_started_reactors() {
        let awake = CoreState::Awake;
        let (before, now) = (stats([(awake, 5), (awake, 0)]), stats([(awake, 6), (awake, 0)]));
        let expected = HealthReport { reactors: 2, reactors_started: 1, addresses: 3, stuck_reactor: Some(1) };
        assert_eq!(health(&before, &now, 3), expected);
    }
}
