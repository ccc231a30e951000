//! The ring alone: no message is lost, duplicated or reordered, and space is reused. No thread spins: each tries a few times, and the rest
//! is taken at the end.

use loom::thread;

use crate::check;
use crate::inbox::{Inbox, Sender};

/// Tries to send each message once; returns the sent ones.
fn send_each(sender: &Sender<u32>, messages: &'static [u32]) -> Vec<u32> {
    messages.iter().copied().filter(|&message| sender.send(message).is_ok()).collect()
}

fn two_senders(capacity: usize, takes: usize, first: &'static [u32], second: &'static [u32]) {
    check(move || {
        let mut inbox = Inbox::new(capacity);
        let senders = [first, second].map(|messages| {
            let sender = inbox.sender();
            thread::spawn(move || send_each(&sender, messages))
        });
        let mut got: Vec<u32> = (0..takes).filter_map(|_| inbox.take()).collect();
        let sent = senders.map(|sender| sender.join().expect("sends"));
        got.extend(std::iter::from_fn(|| inbox.take()));
        assert_eq!(got.len(), sent[0].len() + sent[1].len(), "{sent:?} -> {got:?}");
        for messages in sent {
            assert!(got.iter().filter(|m| messages.contains(m)).eq(&messages), "{messages:?} -> {got:?}");
        }
    });
}

#[test]
fn one_slot_is_reused() {
    two_senders(1, 2, &[1, 2], &[11, 12]);
}

#[test]
fn two_slots_are_reused() {
    two_senders(2, 2, &[1, 2], &[11, 12]);
}

#[test]
fn all_messages_fit_into_a_large_ring() {
    loom::model(|| {
        let mut inbox = Inbox::new(2);
        let sender = inbox.sender();
        let other = thread::spawn(move || sender.send(1));
        inbox.sender().send(2).expect("room");
        other.join().expect("sends").expect("room");
        let mut got = [inbox.take(), inbox.take()];
        got.sort_unstable();
        assert_eq!((got, inbox.take()), ([Some(1), Some(2)], None));
    });
}

#[test]
fn messages_beyond_the_capacity_are_returned() {
    loom::model(|| {
        let mut inbox = Inbox::new(1);
        let sender = inbox.sender();
        let other = thread::spawn(move || sender.send(1).is_ok());
        let mine = inbox.sender().send(2).is_ok();
        let other = other.join().expect("sends");
        assert!(mine != other, "capacity 1: one of two messages is accepted");
        assert_eq!(inbox.take(), Some(if mine { 2 } else { 1 }));
        assert_eq!(inbox.take(), None);
    });
}
