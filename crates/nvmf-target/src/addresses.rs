//! Connections that are not admitted yet, by the address that they come from.
//!
//! A connection is pending from when it is accepted until its Connect has succeeded and, where the host has a secret, its authentication.
//! Pending ones are bounded in total and for each address (an IPv6 /64 counts as one), so that half-open connections of one peer leave
//! room for others. Names do not count: whoever claims the NQN of a host takes none of its queues and memory. It does take a controller
//! identifier of the subsystem, or a queue identifier of a controller that it knows.
//!
//! A queue whose host still has to authenticate is a claim. The memory of claims is bounded in the same way.

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
    claims: Mutex<Claims>,
    /// Bytes of all claims.
    max_claimed: u64,
    /// Bytes of the claims of one address.
    max_address_claimed: u64,
}

#[derive(Debug, Default)]
struct Counts {
    total: u32,
    by_address: HashMap<IpAddr, u32>,
}

/// Bytes of claims.
#[derive(Debug, Default)]
struct Claims {
    total: u64,
    by_address: HashMap<IpAddr, u64>,
}

/// The least memory for the claims of one address in bytes: a queue of 1,024 entries with its exchange.
const MIN_CLAIMED: u64 = 512 << 10;

impl Addresses {
    /// At most `max_pending` in total, and `max_address_pending` of one address. Claims take at most half of `queue_memory` bytes, those
    /// of one address an eighth.
    pub(crate) fn new(max_pending: u32, max_address_pending: u32, queue_memory: u64) -> Self {
        Self {
            counts: Mutex::default(),
            max_pending,
            max_address_pending,
            claims: Mutex::default(),
            max_claimed: (queue_memory / 2).max(MIN_CLAIMED),
            max_address_claimed: (queue_memory / 8).max(MIN_CLAIMED),
        }
    }

    /// Takes memory for a claim from `address`; `false`, without effect, if that is too much.
    #[must_use]
    pub fn claim(&self, address: IpAddr, bytes: u64) -> bool {
        let address = source(address);
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let held = claims.by_address.get(&address).copied().unwrap_or(0);
        if claims.total.saturating_add(bytes) > self.max_claimed
            || held.saturating_add(bytes) > self.max_address_claimed
        {
            return false;
        }
        claims.total += bytes;
        claims.by_address.insert(address, held + bytes);
        true
    }

    /// Returns the memory of a claim.
    pub fn unclaim(&self, address: IpAddr, bytes: u64) {
        let address = source(address);
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.total -= bytes;
        if let Some(held) = claims.by_address.get_mut(&address) {
            *held -= bytes;
            if *held == 0 {
                claims.by_address.remove(&address);
            }
        }
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
        let addresses = Arc::new(Addresses::new(5, 2, 0));
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

    #[test]
    fn the_memory_of_claims_is_bounded_for_each_address_and_in_total() {
        let addresses = Addresses::new(1, 1, 8 << 20);
        let claim = |number: u8| addresses.claim(IpAddr::from([192, 0, 2, number]), 1 << 19);
        assert!(claim(1) && claim(1) && !claim(1) && claim(2));
        assert_eq!((3..=8).filter(|number| claim(*number)).count(), 5, "the total");
        (2..=7).for_each(|number| addresses.unclaim(IpAddr::from([192, 0, 2, number]), 1 << 19));
        addresses.unclaim(address("192.0.2.1"), 1 << 20);
        let claims = addresses.claims.lock().expect("no panic before");
        assert!(claims.total == 0 && claims.by_address.is_empty());
    }
}
