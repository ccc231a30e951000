//! Delays of authentication after failures, by the address that they came from.
//!
//! **Problem.** Guesses of a secret must be slow, but a peer that claims the NQN of another host must not lock it out. So failures count for
//! their source address, never for a name.
//!
//! **Algorithm.** An address with failures has a next time: the result of a check takes effect then at the earliest. Each failure moves it on
//! by a delay that doubles, to at most [`MAX_DELAY_NS`] from now, so that a host with the right secret is late and not locked out. Failures
//! are forgotten [`MEMORY_NS`] after the next time, or when the table is full, those whose next time is earliest first. IPv6 addresses count
//! by their /64, which one host may own whole. At most [`WAITING`] messages of one address wait for a check, so that it cannot fill the queue.
//!
//! **Properties.** The tables are bounded. An address without failures is not delayed. The longest delay is below Linux's keep-alive
//! timeout of 5 s, so that a delayed queue does not end its association. Guesses over many connections are delayed at the same time:
//! secrets have at least 256 bits, and the delay limits the cost of guesses, not their chance.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// Delay after the first failure, in nanoseconds.
const MIN_DELAY_NS: u64 = 100_000_000;
/// Longest delay, in nanoseconds.
const MAX_DELAY_NS: u64 = 3_000_000_000;
/// Time after which the failures of an address are forgotten, in nanoseconds.
const MEMORY_NS: u64 = 60_000_000_000;
/// Maximum addresses.
const ADDRESSES: usize = 4096;
/// Maximum messages of one address that wait for a check.
const WAITING: u32 = 64;

/// Failures of one address.
#[derive(Clone, Copy, Debug)]
struct Failures {
    delay_ns: u64,
    next_ns: u64,
}

/// The addresses with failures.
#[derive(Debug, Default)]
pub struct Penalties {
    failures: Mutex<HashMap<IpAddr, Failures>>,
    /// Messages that wait for a check.
    waiting: Mutex<HashMap<IpAddr, u32>>,
}

impl Penalties {
    /// Counts a message that waits for a check; `false`, without effect, if too many of this address wait.
    #[must_use]
    pub fn enter(&self, address: IpAddr) -> bool {
        let mut table = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = table.entry(source(address)).or_default();
        let has_room = *waiting < WAITING;
        *waiting += u32::from(has_room);
        has_room
    }

    /// Ends [`Penalties::enter`].
    pub fn leave(&self, address: IpAddr) {
        let mut table = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let address = source(address);
        if let Some(waiting) = table.get_mut(&address) {
            *waiting -= 1;
            if *waiting == 0 {
                table.remove(&address);
            }
        }
    }

    /// When the result of a check at `now_ns` may be answered to `address`, in nanoseconds.
    pub fn note(&self, address: IpAddr, has_failed: bool, now_ns: u64) -> u64 {
        let mut table = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
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
        if !has_failed {
            return known.next_ns.max(now_ns);
        }
        let delay_ns = (2 * known.delay_ns).min(MAX_DELAY_NS);
        let next_ns = (known.next_ns.max(now_ns) + delay_ns).min(now_ns + MAX_DELAY_NS);
        table.insert(address, Failures { delay_ns, next_ns });
        next_ns
    }
}

/// What an address counts as.
pub(crate) fn source(address: IpAddr) -> IpAddr {
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
    fn delays_grow_to_a_bound_and_a_right_response_waits_without_adding_to_them() {
        let penalties = Penalties::default();
        let answered: Vec<u64> = (0..7).map(|_| penalties.note(v4(1), true, 0) / 1_000_000).collect();
        assert_eq!(answered, [100, 300, 700, 1500, 3000, 3000, 3000]);
        assert_eq!(penalties.note(v4(1), false, 0), MAX_DELAY_NS);
        assert_eq!(penalties.note(v4(1), false, MAX_DELAY_NS), MAX_DELAY_NS, "in time");
    }

    #[test]
    fn an_address_has_a_bounded_number_of_messages_waiting() {
        let penalties = Penalties::default();
        let entered = (0..2 * WAITING).filter(|_| penalties.enter(v4(1))).count();
        assert_eq!(entered, WAITING as usize);
        assert!(penalties.enter(v4(2)), "others are admitted");
        (0..entered).for_each(|_| penalties.leave(v4(1)));
        penalties.leave(v4(2));
        assert!(penalties.enter(v4(1)));
        penalties.leave(v4(1));
        assert!(penalties.waiting.lock().unwrap().is_empty());
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
        assert_eq!(penalties.failures.lock().unwrap().len(), ADDRESSES);
        let last = 2 * ADDRESSES as u32 - 1;
        assert_eq!(penalties.note(v4(last), false, u64::from(last)), u64::from(last) + MIN_DELAY_NS);
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_together_and_mapped_ones_as_ipv4() {
        let penalties = Penalties::default();
        penalties.note("2001:db8::1".parse().unwrap(), true, 0);
        assert_eq!(penalties.note("2001:db8::2".parse().unwrap(), false, 0), MIN_DELAY_NS);
        assert_eq!(penalties.note("2001:db8:0:1::1".parse().unwrap(), false, 0), 0);
        penalties.note("::ffff:192.0.2.1".parse().unwrap(), true, 0);
        assert_eq!(penalties.note("192.0.2.1".parse().unwrap(), false, 0), MIN_DELAY_NS);
    }
}
