//! Messages of authentication that wait for a check, in turns by address.
//!
//! # The problem
//! A check takes milliseconds of one thread, and anyone can cause checks. First come, first served, a host would wait for all of them.
//!
//! # The algorithm
//! Networks with waiting messages take turns, in IPv6 a /48 and in its turn each /64 ([`crate::hosts::networks`]). In its turn a network has
//! one message checked, replies before negotiations: a reply completes a login for which a challenge has been computed. Replies do not
//! precede other networks' messages, as whoever holds many challenges could send all replies at once.
//!
//! An address may have [`MOST`] messages waiting.
//!
//! # The properties
//! - A message waits for at most one message of every other network, and for earlier ones of its own.
//! - The queue is bounded, and few addresses do not fill it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::hosts::networks::{Amounts, Bound, Network};
use crate::offload::{Queue, WAITING};

/// Messages of one address.
const MOST: u64 = 64;
/// Messages.
const BOUND: Bound = Bound { total: WAITING as u64, address: MOST, least: 1 };

/// The queue.
#[derive(Debug)]
pub struct Turns<R> {
    amounts: Amounts,
    root: Node<R>,
}

/// The messages of a network: its own, or those of networks in it, the next one first.
#[derive(Debug)]
struct Node<R> {
    replies: VecDeque<R>,
    negotiations: VecDeque<R>,
    parts: VecDeque<(Network, Self)>,
}

impl<R> Default for Turns<R> {
    fn default() -> Self {
        Self { amounts: Amounts::default(), root: Node::default() }
    }
}

impl<R> Default for Node<R> {
    fn default() -> Self {
        Self { replies: VecDeque::new(), negotiations: VecDeque::new(), parts: VecDeque::new() }
    }
}

/// A message that waits.
pub trait Waiting {
    /// Where it came from.
    fn address(&self) -> IpAddr;

    /// Whether it is a reply.
    fn is_reply(&self) -> bool;
}

impl<R: Waiting> Turns<R> {
    /// Adds a message; `false` if too many wait.
    #[must_use]
    pub fn push(&mut self, message: R) -> bool {
        if !self.amounts.take(message.address(), 1, BOUND) {
            return false;
        }
        let node = Network::containing(message.address()).fold(&mut self.root, Node::part);
        let queue = if message.is_reply() { &mut node.replies } else { &mut node.negotiations };
        queue.push_back(message);
        true
    }

    /// Takes the next message.
    pub fn pop(&mut self) -> Option<R> {
        let message = self.root.pop()?;
        self.amounts.give(message.address(), 1);
        Some(message)
    }
}

impl<R: Waiting> Queue for Mutex<Turns<R>> {
    type Request = R;

    fn push(&self, message: R) -> bool {
        self.lock().unwrap_or_else(PoisonError::into_inner).push(message)
    }

    fn pop(&self) -> Option<R> {
        self.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl<R> Node<R> {
    /// The part of this network; a new one has its turn last.
    fn part(&mut self, network: Network) -> &mut Self {
        let found = self.parts.iter().position(|(of, _)| *of == network);
        let at = found.unwrap_or_else(|| {
            self.parts.push_back((network, Self::default()));
            self.parts.len() - 1
        });
        &mut self.parts[at].1
    }

    fn pop(&mut self) -> Option<R> {
        if let Some(message) = self.replies.pop_front().or_else(|| self.negotiations.pop_front()) {
            return Some(message);
        }
        let (network, mut part) = self.parts.pop_front()?;
        let message = part.pop();
        if !part.is_empty() {
            self.parts.push_back((network, part));
        }
        message
    }

    fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.negotiations.is_empty() && self.parts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Message = (IpAddr, bool);

    impl Waiting for Message {
        fn address(&self) -> IpAddr {
            self.0
        }

        fn is_reply(&self) -> bool {
            self.1
        }
    }

    fn v4(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    fn negotiate(turns: &mut Turns<Message>, address: IpAddr) -> bool {
        turns.push((address, false))
    }

    /// The addresses of all messages in their order.
    fn order(turns: &mut Turns<Message>) -> Vec<IpAddr> {
        std::iter::from_fn(|| turns.pop()).map(|(address, _)| address).collect()
    }

    #[test]
    fn a_message_waits_for_one_of_each_other_address() {
        let mut turns = Turns::default();
        for attacker in 1..=17 {
            assert!((0..MOST).filter(|_| negotiate(&mut turns, v4(attacker))).count() > 10);
        }
        assert!(negotiate(&mut turns, v4(99)), "the queue has a place");
        let before = order(&mut turns).iter().position(|address| *address == v4(99));
        assert_eq!(before, Some(17));
    }

    #[test]
    fn an_address_with_a_message_at_all_times_has_one_turn_in_each_round() {
        let mut turns = Turns::default();
        (0..3).for_each(|_| assert!(negotiate(&mut turns, v4(1)) && negotiate(&mut turns, v4(2))));
        assert!(negotiate(&mut turns, v4(3)));
        let mut order = Vec::new();
        while order.len() < 9 {
            let (address, _) = turns.pop().expect("a message");
            order.push(address);
            if address == v4(3) {
                assert!(negotiate(&mut turns, address));
            }
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 3, 1, 2, 3].map(v4));
    }

    #[test]
    fn replies_of_an_address_precede_its_negotiations_and_no_others() {
        let mut turns = Turns::default();
        for (address, is_reply) in [(1, false), (2, false), (2, true), (2, true), (1, true)] {
            assert!(turns.push((v4(address), is_reply)));
        }
        let order: Vec<Message> = std::iter::from_fn(|| turns.pop()).collect();
        let expected = [(1, true), (2, true), (1, false), (2, true), (2, false)];
        assert_eq!(order, expected.map(|(address, is_reply)| (v4(address), is_reply)));
    }

    #[test]
    fn networks_of_ipv6_share_the_turns_of_their_site() {
        let mut turns = Turns::default();
        let v6 = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 1, network, 0, 0, 0, host]);
        let messages = [v6(1, 1), v6(1, 2), v6(2, 1), v4(1), v4(1), v4(1)];
        messages.iter().for_each(|address| assert!(negotiate(&mut turns, *address)));
        assert_eq!(order(&mut turns), [v6(1, 1), v4(1), v6(2, 1), v4(1), v6(1, 2), v4(1)]);
        let of_site = (0..500).filter(|number| negotiate(&mut turns, v6(*number, 1))).count();
        assert_eq!(of_site, 2 * MOST as usize);
    }

    #[test]
    fn an_address_has_a_bounded_number_of_messages_and_what_is_taken_leaves_nothing() {
        let mut turns = Turns::default();
        assert_eq!((0..100).filter(|_| negotiate(&mut turns, v4(0))).count(), MOST as usize);
        for attacker in 1..30 {
            while negotiate(&mut turns, v4(attacker)) {}
        }
        assert!(negotiate(&mut turns, v4(1000)), "a place for another address");
        assert!(order(&mut turns).len() <= WAITING && turns.amounts.total() == 0 && turns.root.is_empty());
    }
}
