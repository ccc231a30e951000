//! What each host, by its NQN, takes of the server: memory of queues, and its rate of admin commands.
//!
//! A host has an account while it has an admitted queue. Host identifiers do not matter: a host can choose any number of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Commands of this time can be executed at once, in nanoseconds.
const BURST_NS: u64 = 1_000_000_000;

/// All accounts.
#[derive(Debug)]
pub struct Accounts {
    hosts: Mutex<HashMap<Box<str>, Account>>,
    /// Bytes of queues of one host.
    max_bytes: u64,
    /// Nanoseconds of one admin command; 0 for no limit.
    interval_ns: u64,
}

#[derive(Debug)]
struct Account {
    queues: u32,
    bytes: u64,
    rate: Arc<AdminRate>,
}

impl Accounts {
    /// At most `max_bytes` of a host, and `admin_rate` admin commands per second (0: any number).
    pub(crate) fn new(max_bytes: u64, admin_rate: u32) -> Self {
        let interval_ns = if admin_rate == 0 { 0 } else { 1_000_000_000 / u64::from(admin_rate) };
        Self { hosts: Mutex::default(), max_bytes, interval_ns }
    }

    /// Adds a queue of `bytes` to the account of `host`; `None`, without effect, if that is too much.
    #[must_use]
    pub fn enter(&self, host: &str, bytes: u64) -> Option<Arc<AdminRate>> {
        let mut hosts = self.lock();
        let held = hosts.get(host).map_or(0, |account| account.bytes);
        if held.saturating_add(bytes) > self.max_bytes {
            return None;
        }
        let account = hosts.entry(host.into()).or_insert_with(|| Account {
            queues: 0,
            bytes: 0,
            rate: Arc::new(AdminRate { interval_ns: self.interval_ns, next_ns: AtomicU64::new(0) }),
        });
        account.queues += 1;
        account.bytes += bytes;
        Some(Arc::clone(&account.rate))
    }

    /// Removes a queue from the account.
    pub fn leave(&self, host: &str, bytes: u64) {
        let mut hosts = self.lock();
        let Some(account) = hosts.get_mut(host) else { return };
        account.queues -= 1;
        account.bytes -= bytes;
        if account.queues == 0 {
            hosts.remove(host);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Account>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rate of admin commands of one host: a token bucket, as the time until which its commands are paid for.
#[derive(Debug)]
pub struct AdminRate {
    interval_ns: u64,
    next_ns: AtomicU64,
}

impl AdminRate {
    /// Takes a command at `now_ns`.
    ///
    /// # Errors
    /// When it can be taken, in nanoseconds.
    pub fn take(&self, now_ns: u64) -> Result<(), u64> {
        let take = |next_ns: u64| {
            let after_ns = next_ns.max(now_ns) + self.interval_ns;
            (after_ns <= now_ns + BURST_NS).then_some(after_ns)
        };
        match self.next_ns.fetch_update(Relaxed, Relaxed, take) {
            Ok(_) => Ok(()),
            Err(next_ns) => Err(next_ns + self.interval_ns - BURST_NS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_host_is_limited_over_all_its_queues() {
        let accounts = Accounts::new(100, 0);
        assert!(accounts.enter("a", 60).is_some() && accounts.enter("a", 40).is_some());
        assert!(accounts.enter("a", 1).is_none() && accounts.enter("b", 100).is_some());
        accounts.leave("a", 40);
        assert!(accounts.enter("a", 40).is_some());
        [("a", 40), ("a", 60), ("b", 100)].iter().for_each(|(host, bytes)| accounts.leave(host, *bytes));
        assert!(accounts.lock().is_empty());
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let accounts = Accounts::new(100, 10);
        let rate = accounts.enter("a", 1).expect("room");
        let start_ns = 5_000_000_000;
        assert_eq!((0..20).filter(|_| rate.take(start_ns).is_ok()).count(), 10);
        let due_ns = rate.take(start_ns).expect_err("the burst is used up");
        assert_eq!(due_ns, start_ns + 100_000_000);
        assert_eq!((rate.take(due_ns - 1), rate.take(due_ns)), (Err(due_ns), Ok(())));
        assert!(Accounts::new(1, 0).enter("a", 1).is_some_and(|rate| (0..10_000).all(|_| rate.take(7).is_ok())));
    }
}
