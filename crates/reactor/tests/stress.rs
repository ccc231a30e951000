//! Inboxes with threads that sleep: no message is lost, duplicated or reordered, and every wait ends.

use std::thread;

use pilotlight_reactor::{Inbox, Sender, clock};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const SENDERS: u64 = 4;
/// Messages of each sender.
const MESSAGES: u64 = 20_000;
/// Timeout of a wait.
const TIMEOUT_S: u64 = 20;

fn by_futex(inbox: &mut Inbox<u64>) {
    let from = clock::now_ns();
    inbox.wait_futex(from + TIMEOUT_S * 1_000_000_000);
    assert!(clock::now_ns() - from < TIMEOUT_S * 1_000_000_000, "a lost wake-up");
}

fn by_doorbell(inbox: &mut Inbox<u64>) {
    inbox.doorbell().expect("made");
    if inbox.arm() {
        let limit = Timespec { tv_sec: TIMEOUT_S as i64, tv_nsec: 0 };
        let rung = poll(&mut [PollFd::new(&inbox.doorbell().expect("made"), PollFlags::IN)], Some(&limit));
        assert_eq!(rung, Ok(1), "a lost wake-up");
        inbox.disarm();
    }
}

/// A random kind of wait, or none.
fn by_random_wait(inbox: &mut Inbox<u64>, rng: &mut Xoshiro256PlusPlus) {
    match rng.next_u64() >> 61 {
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
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(capacity as u64);
    for _ in 0..SENDERS * MESSAGES {
        let message = loop {
            match inbox.take() {
                Some(message) => break message,
                None => by_random_wait(&mut inbox, &mut rng),
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
fn four_senders_with_capacity_1() {
    many_to_one(1);
}

#[test]
fn four_senders_with_capacity_8() {
    many_to_one(8);
}

#[test]
fn four_senders_with_capacity_1024() {
    many_to_one(1024);
}

/// Two threads that wait for each other's message.
fn ping_pong(wait: fn(&mut Inbox<u64>)) {
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
fn ping_pong_by_futex() {
    ping_pong(by_futex);
}

#[test]
fn ping_pong_by_doorbell() {
    ping_pong(by_doorbell);
}
