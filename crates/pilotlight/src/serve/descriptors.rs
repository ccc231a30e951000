//! Open files: as many as the limits promise connections.

use pilotlight_nvmf_target::config::ServerConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Descriptors that the program needs for itself: log, signals, control socket, and a margin.
const OWN: u64 = 64;
/// Those of them that it has open in any case (measured 2026-11-22: 15 with one reactor, one I/O thread and one
/// `mem:` namespace, without hosts).
const OWN_LEAST: u64 = 16;
/// Descriptors of an I/O thread or reactor: epoll, wake-up, timers, AIO.
const PER_THREAD: u64 = 4;

/// Raises the limit of open files (RLIMIT_NOFILE) as configured; warns if that fails.
pub(super) fn raise(config: &ServerConfig, reactors: usize) {
    let needed = needed(config, reactors);
    let limit = getrlimit(Resource::Nofile);
    // no limit reads as `None`
    if limit.current.is_none_or(|soft| soft >= needed) {
        return;
    }
    let maximum = limit.maximum.map(|hard| hard.max(needed));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).is_ok() {
        debug!("open files limited to {needed}");
        return;
    }
    let hard = limit.maximum.unwrap_or(needed);
    let granted = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: limit.maximum });
    let open = if granted.is_ok() { hard } else { limit.current.unwrap_or(hard) };
    warn!("{}", shortage(config, needed, open));
}

/// Descriptors that the configuration may need.
fn needed(config: &ServerConfig, reactors: usize) -> u64 {
    let threads = u64::from(config.io_threads) + reactors as u64;
    let namespaces: usize = config.subsystems.iter().map(|subsystem| subsystem.namespaces.len()).sum();
    let storage = namespaces as u64 * (u64::from(config.io_threads) + 1);
    u64::from(config.limits.max_connections)
        + config.all_listeners().len() as u64
        + threads * PER_THREAD
        + storage
        + OWN
}

/// The warning that only `open` of `needed` descriptors may be open.
fn shortage(config: &ServerConfig, needed: u64, open: u64) -> String {
    let without_connections = needed - u64::from(config.limits.max_connections) - (OWN - OWN_LEAST);
    let fit = match open.saturating_sub(without_connections).min(config.limits.max_connections.into()) {
        0 => "none will fit".to_owned(),
        connections => format!("about {connections} will fit"),
    };
    format!(
        "the system allows {open} open files, {needed} are needed for {} connections: {fit}. \
         Raise it (`ulimit -n {needed}`, or LimitNOFILE={needed} in a systemd unit), or lower limits.max_connections",
        config.limits.max_connections
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_one_each() {
        let mut config = ServerConfig::default();
        let before = needed(&config, 1);
        config.limits.max_connections += 1000;
        assert_eq!(needed(&config, 1), before + 1000);
        assert!(before > u64::from(ServerConfig::default().limits.max_connections));
    }

    #[test]
    fn a_shortage_says_how_many_connections_fit() {
        let mut config = ServerConfig::default();
        config.limits.max_connections = 10_000;
        let needed = needed(&config, 1);
        let text = shortage(&config, needed, needed - 4_000);
        assert!(text.contains("about 6048 will fit") && text.contains(&format!("ulimit -n {needed}")), "{text}");
        assert!(shortage(&config, needed, 10).contains("none will fit"));
        // if only the margin is missing all connections fit, and less than the margin is enough for some
        let least = needed - 10_000 - (OWN - OWN_LEAST);
        assert!(shortage(&config, needed, least + 20).contains("about 20 will fit"));
    }
}
