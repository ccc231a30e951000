//! Delays of authentication after failures, by the address that they came from.
//!
//! **Problem.** Guesses of a secret must be slow, but whoever claims the NQN of another host must not lock it out. So failures count for
//! their source address, never for a name.
//!
//! **Algorithm.** An address with failures has a next time: a check of a response from it is answered then at the earliest, and moves it on
//! by the delay, so that guesses over many connections are as slow as over one. The delay doubles with each failure, up to
//! [`MAX_DELAY_NS`]. Addresses are forgotten [`MEMORY_NS`] after their next time, or when the table is full, those whose next time is
//! earliest first. IPv6 addresses count by their /64, which one host may own whole.
//!
//! **Properties.** The table is bounded. An address without failures is never delayed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// Delay after the first failure, in nanoseconds.
const MIN_DELAY_NS: u64 = 100_000_000;
/// Longest delay, in nanoseconds.
const MAX_DELAY_NS: u64 = 10_000_000_000;
/// Time after which the failures of an address are forgotten, in nanoseconds.
const MEMORY_NS: u64 = 60_000_000_000;
/// Maximum addresses.
const ADDRESSES: usize = 4096;

/// Failures of one address.
#[derive(Clone, Copy, Debug)]
struct Failures {
    delay_ns: u64,
    next_ns: u64,
}

/// The addresses with failures.
#[derive(Debug, Default)]
pub struct Penalties(Mutex<HashMap<IpAddr, Failures>>);

impl Penalties {
    /// When the result of a check at `now_ns` may be answered to `address`, in nanoseconds.
    pub fn note(&self, address: IpAddr, has_failed: bool, now_ns: u64) -> u64 {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = source(address);
        let known = table.get(&address).filter(|known| known.next_ns.saturating_add(MEMORY_NS) > now_ns).copied();
        let Some(known) = known else {
            table.remove(&address);
            if has_failed {
                make_room(&mut table, now_ns);
                let next_ns = now_ns + MIN_DELAY_NS;
                table.insert(address, Failures { delay_ns: MIN_DELAY_NS, next_ns });
                return next_ns;
            }
            return now_ns;
        };
        let delay_ns = if has_failed { (2 * known.delay_ns).min(MAX_DELAY_NS) } else { known.delay_ns };
        let next_ns = known.next_ns.max(now_ns) + delay_ns;
        table.insert(address, Failures { delay_ns, next_ns });
        next_ns
    }
}

/// What an address counts as.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        other => other,
    }
}

fn make_room(table: &mut HashMap<IpAddr, Failures>, now_ns: u64) {
    if table.len() < ADDRESSES {
        return;
    }
    table.retain(|_, known| known.next_ns.saturating_add(MEMORY_NS) > now_ns);
    if table.len() >= ADDRESSES
        && let Some(earliest) = table.iter().min_by_key(|(_, known)| known.next_ns).map(|(address, _)| *address)
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
    fn guesses_over_many_connections_are_as_slow_as_over_one() {
        let penalties = Penalties::default();
        let answered: Vec<u64> = (0..9).map(|_| penalties.note(v4(1), true, 0)).collect();
        let steps: Vec<u64> = answered.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
        assert_eq!(steps, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert!(penalties.note(v4(1), false, 0) > answered[8], "a right response waits too");
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
        (0..2 * ADDRESSES as u32).for_each(|number| _ = penalties.note(v4(number), true, u64::from(number)));
        assert_eq!(penalties.0.lock().unwrap().len(), ADDRESSES);
        let last = 2 * ADDRESSES as u32 - 1;
        assert!(penalties.note(v4(last), false, u64::from(last)) > u64::from(last) + MIN_DELAY_NS);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_together_and_mapped_ones_as_ipv4() {
        let penalties = Penalties::default();
        penalties.note("2001:db8::1".parse().unwrap(), true, 0);
        assert!(penalties.note("2001:db8::2".parse().unwrap(), false, 0) > MIN_DELAY_NS);
        assert_eq!(penalties.note("2001:db8:0:1::1".parse().unwrap(), false, 0), 0);
        penalties.note("::ffff:192.0.2.1".parse().unwrap(), true, 0);
        assert!(penalties.note("192.0.2.1".parse().unwrap(), false, 0) > MIN_DELAY_NS);
    }
}
