//! What is counted by address: how much one may hold, so that few addresses exclude no other.
//!
//! # The algorithm
//! An IPv4 address counts for itself, one of IPv6 for its /64 and its /48: one host may own a /64 whole, and one site a /48 with 65,536 of
//! them. An address may hold a quarter of what is free, and a /48 [`WIDER`] times as much as a /64. Every bound by address, every turn and
//! every delay in this crate uses these networks.
//!
//! # The properties
//! - `n` addresses that take what they can leave `0.8^n` of the whole, until that is less than the least part of an address.
//! - When nothing is held, nothing is stored.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prefix length of a site.
const SITE: u8 = 48;
/// Prefix length of a host's network.
const HOST: u8 = 64;
/// An address may hold one part of this many of what is free.
const FREE_ONE_IN: u64 = 4;
/// How many times as much as a /64 a /48 may have.
const WIDER: u64 = 2;

/// An IPv4 address, or a network of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    address: IpAddr,
    prefix_len: u8,
}

impl Network {
    /// Those of an address, the widest first.
    pub(crate) fn containing(address: IpAddr) -> impl Iterator<Item = Self> {
        let networks = match address.to_canonical() {
            IpAddr::V4(address) => [None, Some(Self { address: address.into(), prefix_len: 32 })],
            IpAddr::V6(address) => [SITE, HOST].map(|prefix_len| {
                let mask = u128::MAX << (128 - u32::from(prefix_len));
                let address = Ipv6Addr::from_bits(address.to_bits() & mask).into();
                Some(Self { address, prefix_len })
            }),
        };
        networks.into_iter().flatten()
    }

    /// How many times as much as an address it may have.
    pub(crate) const fn times(self) -> u64 {
        if self.prefix_len == SITE { WIDER } else { 1 }
    }
}

/// The most of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// In total.
    pub(crate) total: u64,
    /// Of one address, however much is free.
    pub(crate) address: u64,
    /// What an address may hold if that much is free.
    pub(crate) least: u64,
}

impl Bound {
    /// No bound.
    const NONE: Self = Self { total: u64::MAX, address: u64::MAX, least: u64::MAX };

    /// The most of one address while `held` is held in total.
    fn of_address(self, held: u64) -> u64 {
        let free = self.total.saturating_sub(held);
        (free / FREE_ONE_IN).max(self.least).min(self.address)
    }
}

/// Amounts by network.
#[derive(Debug, Default)]
pub(crate) struct Amounts {
    total: u64,
    by_network: HashMap<Network, u64>,
}

impl Amounts {
    /// Adds `amount` for `address`; `false`, without effect, if that is more than `bound`.
    #[must_use]
    pub(crate) fn take(&mut self, address: IpAddr, amount: u64, bound: Bound) -> bool {
        let held = |network| self.by_network.get(&network).copied().unwrap_or(0);
        let most = bound.of_address(self.total);
        let fits = |network: Network| held(network).saturating_add(amount) <= most.saturating_mul(network.times());
        if self.total.saturating_add(amount) > bound.total || !Network::containing(address).all(fits) {
            return false;
        }
        self.total += amount;
        Network::containing(address).for_each(|network| *self.by_network.entry(network).or_default() += amount);
        true
    }

    /// Subtracts what [`Amounts::take`] has added.
    pub(crate) fn give(&mut self, address: IpAddr, amount: u64) {
        self.total -= amount;
        for network in Network::containing(address) {
            let Some(held) = self.by_network.get_mut(&network) else { continue };
            *held -= amount;
            if *held == 0 {
                self.by_network.remove(&network);
            }
        }
    }

    /// The sum.
    #[cfg(test)]
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }
}

/// Amounts by network, shared by threads.
#[derive(Debug)]
pub(crate) struct Bounded {
    amounts: Mutex<Amounts>,
    bound: Bound,
}

impl Bounded {
    /// Nothing yet.
    pub(crate) fn new(bound: Bound) -> Self {
        Self { amounts: Mutex::default(), bound }
    }

    /// As [`Amounts::take`].
    #[must_use]
    pub(crate) fn take(&self, address: IpAddr, amount: u64) -> bool {
        self.lock().take(address, amount, self.bound)
    }

    /// As [`Amounts::take`], without a bound.
    pub(crate) fn take_any(&self, address: IpAddr, amount: u64) {
        let _ = self.lock().take(address, amount, Bound::NONE);
    }

    /// As [`Amounts::give`].
    pub(crate) fn give(&self, address: IpAddr, amount: u64) {
        self.lock().give(address, amount);
    }

    /// The sum.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.lock().total()
    }

    fn lock(&self) -> MutexGuard<'_, Amounts> {
        self.amounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_of_ipv6_counts_for_its_64_and_with_a_larger_bound_for_its_48() {
        let mut amounts = Amounts::default();
        let bound = Bound { total: 100, address: 3, least: 1 };
        let mut take = |text: &str| amounts.take(address(text), 1, bound);
        assert!((1..=3).all(|number| take(&format!("2001:db8:0:1::{number}"))));
        assert!(!take("2001:db8:0:1::4"), "the /64");
        assert!((2..=4).all(|number| take(&format!("2001:db8:0:{number}::1"))));
        assert!(!take("2001:db8:0:5::1"), "the /48 has {WIDER} times as much");
        assert!(take("2001:db8:1::1"), "another /48");
    }

    #[test]
    fn few_addresses_leave_a_part_to_others_and_each_has_the_least() {
        let mut amounts = Amounts::default();
        let bound = Bound { total: 1000, address: u64::MAX, least: 2 };
        let mut fill = |number: u8| (0..1000).filter(|_| amounts.take([10, 0, 0, number].into(), 1, bound)).count();
        assert_eq!([fill(1), fill(1), fill(2), fill(3)], [200, 0, 160, 128]);
        let others: Vec<usize> = (4..=20).map(&mut fill).collect();
        assert!(others.iter().all(|held| *held >= 2), "{others:?}");
        let total: usize = (21..=255).map(fill).sum::<usize>() + others.iter().sum::<usize>() + 488;
        assert_eq!(total, 1000);
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4_and_what_is_given_back_leaves_nothing() {
        let mut amounts = Amounts::default();
        let bound = Bound { total: 5, address: 3, least: 3 };
        assert!(amounts.take(address("192.0.2.1"), 2, bound) && !amounts.take(address("::ffff:192.0.2.1"), 2, bound));
        assert!(amounts.take(address("192.0.2.2"), 3, bound) && !amounts.take(address("2001:db8::1"), 1, bound));
        amounts.give(address("::ffff:192.0.2.1"), 2);
        assert!(amounts.take(address("2001:db8::1"), 1, bound));
        [("192.0.2.2", 3), ("2001:db8::2", 1)].iter().for_each(|(text, amount)| amounts.give(address(text), *amount));
        assert!(amounts.total == 0 && amounts.by_network.is_empty());
    }
}
