//! Connections that are not admitted yet, by the address that they come from.
//!
//! A connection is pending from when it is accepted until its Connect has succeeded and, where the host has a secret, its authentication.
//! Pending ones are bounded in total and for each address (an IPv6 /64 counts as one), so that half-open connections of one peer leave
//! room for others. Names do not count: whoever claims the NQN of a host takes nothing that the host needs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::penalties::source;

/// The counts.
#[derive(Debug)]
pub struct Addresses {
    counts: Mutex<Counts>,
    max_pending: u32,
    max_address_pending: u32,
}

#[derive(Debug, Default)]
struct Counts {
    total: u32,
    by_address: HashMap<IpAddr, u32>,
}

impl Addresses {
    /// At most `max_pending` in total, and `max_address_pending` of one address.
    pub(crate) fn new(max_pending: u32, max_address_pending: u32) -> Self {
        Self { counts: Mutex::default(), max_pending, max_address_pending }
    }

    /// Counts a connection from `address`; `None`, without effect, if there are too many.
    #[must_use]
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Pending> {
        let address = source(address);
        let mut counts = self.lock();
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.total >= self.max_pending || of_address >= self.max_address_pending {
            return None;
        }
        counts.total += 1;
        counts.by_address.insert(address, of_address + 1);
        drop(counts);
        Some(Pending { addresses: Arc::clone(self), address })
    }

    /// Number of pending connections.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.lock().total
    }

    fn leave(&self, address: IpAddr) {
        let mut counts = self.lock();
        counts.total -= 1;
        if let Some(count) = counts.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&address);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pending connection. Dropping it ends the count.
#[derive(Debug)]
pub struct Pending {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.addresses.leave(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn connections_are_bounded_for_each_address_and_in_total() {
        let addresses = Arc::new(Addresses::new(5, 2));
        let enter = |text: &str| addresses.enter(address(text));
        let first = [enter("192.0.2.1"), enter("::ffff:192.0.2.1")];
        assert!(first.iter().all(Option::is_some) && enter("192.0.2.1").is_none(), "a mapped address is the same");
        let second = [enter("2001:db8::1"), enter("2001:db8::2")];
        assert!(second.iter().all(Option::is_some) && enter("2001:db8::3").is_none(), "a network of IPv6 is one");
        let last = enter("192.0.2.2");
        assert!(last.is_some() && enter("192.0.2.3").is_none(), "the total");
        drop(first);
        assert!(enter("192.0.2.1").is_some());
        drop((second, last));
        assert_eq!(addresses.pending(), 0);
        assert!(addresses.lock().by_address.is_empty());
    }
}
