//! Connections whose host has not proved who it is, by the address that they come from.
//!
//! # The problem
//! Anyone can connect, under any name. Whoever does must leave places and memory to the hosts that have a secret or a TLS key.
//!
//! # Terms
//! A connection is *pending* from when it is accepted until its Connect has succeeded and, where the host has a secret, its
//! authentication. A queue whose host still has to authenticate is a *claim*. An admitted queue of a host that has neither a secret (for
//! this subsystem) nor TLS is *unproved*.
//!
//! # The algorithm
//! Each kind is counted in total and by address ([`crate::hosts::networks`]). Of the places (`max_connections`) pending connections take at most
//! three eighths, and so do unproved queues; of the memory for queues claims, with TLS sessions before Connect, and unproved queues take
//! the same parts. An address may hold a quarter of what is free of a part. Names do not count: whoever claims the NQN of a host takes
//! none of its queues and memory. It does take a controller identifier of the subsystem, or a queue identifier of a controller that it
//! knows.
//!
//! # The properties
//! - A quarter of the places and of the memory is left to hosts that have proved who they are.
//! - The connections of one address exclude no other, whether they are pending, claims or unproved.
//! - Where no host has a secret or a key, all hosts are equal: then unproved queues are counted and not bounded, and one address can take
//!   all places. `max_host_queues` and `max_host_memory` hold for each name, and a firewall for addresses.

use std::net::IpAddr;
use std::sync::Arc;

use pilotlight_nvmf_proto::services::{Full, Standing};

use crate::config::Limits;
use crate::hosts::networks::{Bound, Bounded};

/// The least part of the places, in total and of one address, so that a host can connect a few queues at once whatever `max_connections` is.
const MIN_PLACES: u64 = 4;
/// The least part of the memory in bytes, in total and of one address: a queue of 1,024 entries with its exchange.
const MIN_BYTES: u64 = 512 << 10;

/// The counts.
#[derive(Debug)]
pub struct Addresses {
    pending: Bounded,
    /// Bytes.
    claims: Bounded,
    unproved: Bounded,
    unproved_bytes: Bounded,
}

/// The part of `whole` for one kind; an address may have `least`.
fn part(whole: u64, least: u64) -> Bound {
    Bound { total: (whole / 8 * 3).max(least), address: u64::MAX, least }
}

impl Addresses {
    /// Without connections.
    pub(crate) fn new(limits: &Limits) -> Self {
        let places = part(limits.max_connections.into(), MIN_PLACES);
        let memory = part(limits.queue_memory, MIN_BYTES);
        let pending = Bound {
            total: places.total.min(limits.max_pending.into()),
            address: limits.max_address_pending.into(),
            ..places
        };
        Self {
            pending: Bounded::new(pending),
            claims: Bounded::new(memory),
            unproved: Bounded::new(places),
            unproved_bytes: Bounded::new(memory),
        }
    }

    /// Counts a connection from `address`; `None`, without effect, if there are too many.
    #[must_use]
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Pending> {
        self.pending.take(address, 1).then(|| Pending { addresses: Arc::clone(self), address })
    }

    /// Counts a queue of `bytes`. Unproved ones are bounded if `is_bounded`.
    ///
    /// # Errors
    /// The exhausted limit; nothing is counted then.
    pub fn take(&self, standing: Standing, bytes: u64, is_bounded: bool) -> Result<(), Full> {
        match standing {
            Standing::Proved => {}
            Standing::Claim(address) if self.claims.take(address, bytes) => {}
            Standing::Claim(_) => return Err(Full::Claims),
            Standing::Unproved(address) if !is_bounded => {
                self.unproved.take_any(address, 1);
                self.unproved_bytes.take_any(address, bytes);
            }
            Standing::Unproved(address) => {
                if !self.unproved.take(address, 1) {
                    return Err(Full::Unproved);
                }
                if !self.unproved_bytes.take(address, bytes) {
                    self.unproved.give(address, 1);
                    return Err(Full::UnprovedMemory);
                }
            }
        }
        Ok(())
    }

    /// Ends [`Addresses::take`].
    pub fn give(&self, standing: Standing, bytes: u64) {
        match standing {
            Standing::Proved => {}
            Standing::Claim(address) => self.claims.give(address, bytes),
            Standing::Unproved(address) => {
                self.unproved.give(address, 1);
                self.unproved_bytes.give(address, bytes);
            }
        }
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
        self.addresses.pending.give(self.address, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn addresses(limits: &Limits) -> Arc<Addresses> {
        Arc::new(Addresses::new(limits))
    }

    #[test]
    fn pending_connections_are_bounded_for_each_address_and_in_total() {
        let addresses = addresses(&Limits { max_pending: 5, max_address_pending: 2, ..Limits::default() });
        let first = [addresses.enter(v4(1)), addresses.enter(v4(1))];
        assert!(first.iter().all(Option::is_some) && addresses.enter(v4(1)).is_none());
        let others: Vec<Pending> = (2..=4).filter_map(|number| addresses.enter(v4(number))).collect();
        assert!(others.len() == 3 && addresses.enter(v4(5)).is_none(), "the total");
        drop(first);
        assert!(addresses.enter(v4(5)).is_some());
        drop(others);
        assert_eq!(addresses.pending.total(), 0);
    }

    #[test]
    fn pending_connections_and_unproved_queues_leave_a_quarter_of_the_places() {
        let addresses = addresses(&Limits { max_connections: 256, ..Limits::default() });
        let pending: Vec<Pending> =
            (0..=255).cycle().take(10_000).filter_map(|number| addresses.enter(v4(number))).collect();
        let unproved = |number: u8| addresses.take(Standing::Unproved(v4(number)), 1, true);
        assert_eq!((0..=255).filter(|_| unproved(0).is_ok()).count(), 19, "one address");
        let taken = (0..=255).cycle().take(10_000).filter(|number| unproved(*number).is_ok()).count();
        assert_eq!((pending.len(), 19 + taken), (96, 96));
        assert_eq!(unproved(17), Err(Full::Unproved));
        addresses.give(Standing::Unproved(v4(0)), 1);
        assert_eq!(unproved(17), Ok(()));
        assert_eq!(addresses.take(Standing::Unproved(v4(0)), 1 << 30, false), Ok(()), "without a bound");
    }

    #[test]
    fn the_memory_of_claims_and_of_unproved_queues_is_bounded_for_each_address_and_in_total() {
        let addresses = addresses(&Limits { queue_memory: 8 << 20, ..Limits::default() });
        for standing in [Standing::Claim as fn(IpAddr) -> Standing, Standing::Unproved] {
            let take = |number| addresses.take(standing(v4(number)), 1 << 19, true).is_ok();
            assert!(take(1) && !take(1) && take(2));
            assert_eq!((3..=8).filter(|number| take(*number)).count(), 4, "the total");
            addresses.give(standing(v4(2)), 1 << 19);
            assert!(take(9));
        }
    }
}
