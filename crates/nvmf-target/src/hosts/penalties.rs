//! Delays of authentication after failures, by the address that they came from.
//!
//! **Problem.** Guesses of a secret must be slow, but a peer that claims the NQN of another host must not lock it out. So failures count for
//! their source address, never for a name.
//!
//! **Algorithm.** An address with failures has a next time: the result of a check takes effect then at the earliest. Each failure moves it on
//! by a delay that doubles, to at most [`MAX_DELAY_NS`] from now, so that a host with the right secret is late and not locked out. Failures
//! are forgotten [`MEMORY_NS`] after the next time, or when the table is full, those whose next time is earliest first. Failures count for
//! each network of an address ([`crate::hosts::networks`]); of a wider one, which may have twice as many, every second has an effect.
//!
//! **Properties.** The table is bounded. An address without failures is not delayed. The longest delay is below Linux's keep-alive
//! timeout of 5 s, so that a delayed queue does not end its association. Guesses over many connections are delayed at the same time:
//! secrets have at least 256 bits, and the delay limits the cost of guesses, not their chance.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::hosts::networks::Network;

/// Delay after the first failure, in nanoseconds.
const MIN_DELAY_NS: u64 = 100_000_000;
/// Longest delay, in nanoseconds.
const MAX_DELAY_NS: u64 = 3_000_000_000;
/// Time after which the failures of an address are forgotten, in nanoseconds.
const MEMORY_NS: u64 = 60_000_000_000;
/// Maximum networks.
const NETWORKS: usize = 4096;

/// Failures of one network.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u64,
    next_ns: u64,
}

impl Failures {
    fn is_known(&self, now_ns: u64) -> bool {
        self.next_ns.saturating_add(MEMORY_NS) > now_ns
    }

    /// Delay by the last failure of a network that may have `times` as many as an address, in nanoseconds.
    fn delay_ns(&self, times: u64) -> u64 {
        match self.count / times {
            0 => 0,
            _ if !self.count.is_multiple_of(times) => 0,
            doubled => MIN_DELAY_NS.saturating_mul(1 << (doubled - 1).min(16)).min(MAX_DELAY_NS),
        }
    }
}

/// The networks with failures.
#[derive(Debug, Default)]
pub struct Penalties {
    failures: Mutex<HashMap<Network, Failures>>,
}

impl Penalties {
    /// When the result of a check at `now_ns` may be answered to `address`, in nanoseconds.
    pub fn note(&self, address: IpAddr, has_failed: bool, now_ns: u64) -> u64 {
        let mut table = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let next = |network| note(&mut table, network, has_failed, now_ns);
        Network::containing(address).map(next).max().unwrap_or(now_ns)
    }
}

/// As [`Penalties::note`], for one network.
fn note(table: &mut HashMap<Network, Failures>, network: Network, has_failed: bool, now_ns: u64) -> u64 {
    let known = table.get(&network).filter(|known| known.is_known(now_ns)).copied();
    if !has_failed {
        if known.is_none() {
            table.remove(&network);
        }
        return known.map_or(now_ns, |known| known.next_ns.max(now_ns));
    }
    if known.is_none() {
        make_room(table, now_ns);
    }
    let Failures { count, next_ns } = known.unwrap_or(Failures { count: 0, next_ns: now_ns });
    let mut failures = Failures { count: count + 1, next_ns };
    let delayed_ns = next_ns.max(now_ns) + failures.delay_ns(network.times());
    failures.next_ns = delayed_ns.min(now_ns + MAX_DELAY_NS);
    table.insert(network, failures);
    failures.next_ns
}

fn make_room(table: &mut HashMap<Network, Failures>, now_ns: u64) {
    if table.len() < NETWORKS {
        return;
    }
    table.retain(|_, known| known.is_known(now_ns));
    if table.len() >= NETWORKS
        && let Some(earliest) = table.iter().min_by_key(|(_, known)| known.next_ns).map(|(network, _)| *network)
    {
        table.remove(&earliest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn an_address_without_failures_is_not_delayed() {
        let penalties = Penalties::default();
        assert_eq!(penalties.note(v4(1), true, 0), MIN_DELAY_NS);
        assert_eq!(penalties.note(v4(2), false, 5), 5);
    }

    #[test]
    fn delays_grow_to_a_bound_and_a_right_response_waits_without_adding_to_them() {
        let penalties = Penalties::default();
        let answered: Vec<u64> = (0..7).map(|_| penalties.note(v4(1), true, 0) / 1_000_000).collect();
        assert_eq!(answered, [100, 300, 700, 1500, 3000, 3000, 3000]);
        assert_eq!(penalties.note(v4(1), false, 0), MAX_DELAY_NS);
        assert_eq!(penalties.note(v4(1), false, MAX_DELAY_NS), MAX_DELAY_NS, "in time");
    }

    #[test]
    fn failures_are_forgotten() {
        let penalties = Penalties::default();
        let next_ns = penalties.note(v4(1), true, 0);
        assert_eq!(penalties.note(v4(1), false, next_ns + MEMORY_NS), next_ns + MEMORY_NS);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_earliest() {
        let penalties = Penalties::default();
        (0..2 * NETWORKS as u32).for_each(|number| _ = penalties.note(v4(number), true, u64::from(number)));
        assert_eq!(penalties.failures.lock().unwrap().len(), NETWORKS);
        let last = 2 * NETWORKS as u32 - 1;
        assert_eq!(penalties.note(v4(last), false, u64::from(last)), u64::from(last) + MIN_DELAY_NS);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_together_and_mapped_ones_as_ipv4() {
        let penalties = Penalties::default();
        let note = |text: &str, has_failed| penalties.note(text.parse().unwrap(), has_failed, 0);
        note("2001:db8::1", true);
        assert_eq!(note("2001:db8::2", false), MIN_DELAY_NS);
        assert_eq!(note("2001:db8:0:1::1", false), 0, "one failure does not delay the /48");
        note("2001:db8:0:2::1", true);
        assert_eq!(note("2001:db8:0:1::1", false), MIN_DELAY_NS, "two failures do");
        (3..30).for_each(|network| _ = note(&format!("2001:db8:0:{network}::1"), true));
        assert_eq!(note("2001:db8:0:1::1", false), MAX_DELAY_NS, "whoever has many networks is delayed");
        assert_eq!(note("2001:db8:1::1", false), 0);
        note("::ffff:192.0.2.1", true);
        assert_eq!(note("192.0.2.1", false), MIN_DELAY_NS);
    }
}
