//! The ring against a queue from the standard library, on one thread.

use std::collections::VecDeque;
use std::rc::Rc;

use pilotlight_reactor::{Inbox, Sender};
use proptest::prelude::*;

#[test]
fn messages_are_ordered_and_returned_if_the_ring_is_full() {
    let mut inbox = Inbox::new(2);
    let sender = inbox.sender();
    assert_eq!(inbox.take(), None);
    assert_eq!(sender.send(1), Ok(()));
    assert_eq!(sender.clone().send(2), Ok(()));
    assert_eq!(sender.send(3), Err(3));
    assert_eq!((inbox.take(), inbox.take(), inbox.take()), (Some(1), Some(2), None));
}

#[test]
fn capacities_are_rounded_up_to_a_power_of_two() {
    for (requested, room) in [(0, 1), (1, 1), (2, 2), (3, 4), (5, 8), (1000, 1024)] {
        let sender = Inbox::new(requested).sender();
        assert_eq!((0..).take_while(|_| sender.send(()).is_ok()).count(), room, "for {requested}");
    }
}

#[test]
fn a_dropped_inbox_has_dropped_its_messages() {
    let message = Rc::new(());
    let mut inbox = Inbox::new(4);
    let sender = inbox.sender();
    (0..6).for_each(|_| drop(sender.send(Rc::clone(&message))));
    drop(inbox.take());
    assert_eq!(Rc::strong_count(&message), 1 + 3);
    drop(inbox);
    assert_eq!(Rc::strong_count(&message), 1, "a sender exists");
    sender.send(Rc::clone(&message)).expect("space");
    drop(sender);
    assert_eq!(Rc::strong_count(&message), 1, "dropped with the last sender");
}

/// A numbered message on the heap, so that a double read or a leak is detected.
type Message = Box<u32>;

#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    Take,
}

/// Runs of one kind, so that the ring is often full or empty.
fn steps() -> impl Strategy<Value = Vec<(Step, usize)>> {
    prop::collection::vec((prop_oneof![Just(Step::Send), Just(Step::Take)], 1..12usize), 0..60)
}

/// The ring and its oracle.
struct Pair {
    inbox: Inbox<Message>,
    sender: Sender<Message>,
    oracle: VecDeque<Message>,
    room: usize,
}

impl Pair {
    fn send(&mut self, number: u32) {
        let sent = self.sender.send(Box::new(number));
        if self.oracle.len() < self.room {
            assert_eq!(sent, Ok(()));
            self.oracle.push_back(Box::new(number));
        } else {
            assert_eq!(sent, Err(Box::new(number)));
        }
    }

    fn take(&mut self) {
        assert_eq!(self.inbox.is_empty(), self.oracle.is_empty());
        assert_eq!(self.inbox.take(), self.oracle.pop_front());
    }
}

proptest! {
    #[test]
    fn the_ring_matches_a_queue(log2 in 0..4u32, steps in steps()) {
        let room = 1 << log2;
        let inbox = Inbox::new(room);
        let sender = inbox.sender();
        let mut pair = Pair { inbox, sender, oracle: VecDeque::new(), room };
        let mut number = 0;
        for (what, times) in steps {
            for _ in 0..times {
                match what {
                    Step::Send => pair.send(number),
                    Step::Take => pair.take(),
                }
                number += 1;
            }
        }
    }
}
