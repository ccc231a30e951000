//! Real threads, real sleeps: nothing lost, doubled or reordered, and every sleeper is woken.

use std::thread;

use pilotlight_reactor::{Inbox, Sender, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const SENDERS: u64 = 4;
/// From each sender.
const MESSAGES: u64 = 20_000;
/// A wait that takes longer was not ended by a sender.
const TOO_LONG_S: u64 = 20;

fn by_futex(inbox: &mut Inbox<u64>) {
    let from = clock::now_ns();
    inbox.wait_futex(from + TOO_LONG_S * 1_000_000_000);
    assert!(clock::now_ns() - from < TOO_LONG_S * 1_000_000_000, "a lost wake-up");
}

fn by_doorbell(inbox: &mut Inbox<u64>) {
    inbox.doorbell().expect("made");
    if inbox.arm() {
        let limit = Timespec { tv_sec: TOO_LONG_S as i64, tv_nsec: 0 };
        let rung = poll(&mut [PollFd::new(&inbox.doorbell().expect("made"), PollFlags::IN)], Some(&limit));
        assert_eq!(rung, Ok(1), "a lost wake-up");
        inbox.disarm();
    }
}

/// Waits in one way or the other or not at all, whatever the numbers so far come to.
fn by_turns(inbox: &mut Inbox<u64>, state: &mut u64) {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407); // Knuth's MMIX
    match *state >> 61 {
        0..=2 => by_futex(inbox),
        3..=5 => by_doorbell(inbox),
        6 => std::hint::spin_loop(),
        _ => thread::yield_now(),
    }
}

fn send(sender: &Sender<u64>, message: u64) {
    let mut message = Err(message);
    while let Err(back) = message {
        message = sender.send(back);
        if message.is_err() {
            thread::yield_now();
        }
    }
}

fn many_to_one(capacity: usize) {
    let mut inbox = Inbox::new(capacity);
    let senders: Vec<_> = (0..SENDERS)
        .map(|id| {
            let sender = inbox.sender();
            thread::spawn(move || (0..MESSAGES).for_each(|n| send(&sender, n * SENDERS + id)))
        })
        .collect();
    let mut next = [0; SENDERS as usize];
    let mut state = capacity as u64;
    for _ in 0..SENDERS * MESSAGES {
        let message = loop {
            match inbox.take() {
                Some(message) => break message,
                None => by_turns(&mut inbox, &mut state),
            }
        };
        let (n, id) = (message / SENDERS, (message % SENDERS) as usize);
        assert_eq!(n, next[id], "of sender {id}");
        next[id] += 1;
    }
    senders.into_iter().for_each(|sender| sender.join().expect("sends"));
    assert_eq!(inbox.take(), None);
}

#[test]
fn four_senders_and_one_place() {
    many_to_one(1);
}

#[test]
fn four_senders_and_a_few_places() {
    many_to_one(8);
}

#[test]
fn four_senders_and_many_places() {
    many_to_one(1024);
}

/// Two threads that sleep until the other has answered: each message is the only one that can wake.
fn there_and_back(wait: fn(&mut Inbox<u64>)) {
    const ROUNDS: u64 = 3_000;
    let (mut here, mut there) = (Inbox::new(1), Inbox::new(1));
    let (to_here, to_there) = (here.sender(), there.sender());
    let receive = move |inbox: &mut Inbox<u64>| loop {
        match inbox.take() {
            Some(message) => return message,
            None => wait(inbox),
        }
    };
    let other = thread::spawn(move || (0..ROUNDS).for_each(|_| send(&to_here, receive(&mut there) + 1)));
    for round in 0..ROUNDS {
        send(&to_there, round);
        assert_eq!(receive(&mut here), round + 1);
    }
    other.join().expect("answers");
}

#[test]
fn there_and_back_by_futex() {
    there_and_back(by_futex);
}

#[test]
fn there_and_back_by_doorbell() {
    there_and_back(by_doorbell);
}
