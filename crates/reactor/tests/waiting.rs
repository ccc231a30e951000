//! Waiting for an inbox in the kernel: which owner is rung, how often, and remaining rings.

use std::os::fd::BorrowedFd;
use std::thread;

use pilotlight_reactor::{Inbox, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const NO_LIMIT: u64 = u64::MAX;

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).expect("polls") == 1
}

fn rings(inbox: &Inbox<u32>) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(inbox.doorbell().expect("made"), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

#[test]
fn the_doorbell_rings_for_an_armed_owner_once() {
    let mut inbox = Inbox::new(4);
    let sender = inbox.sender();
    assert!(!is_readable(inbox.doorbell().expect("made")));
    for message in 0..3 {
        assert!(inbox.arm(), "empty");
        assert!(!is_readable(inbox.doorbell().expect("made")));
        sender.send(message).expect("room");
        assert!(is_readable(inbox.doorbell().expect("made")));
        inbox.disarm();
        assert!(!is_readable(inbox.doorbell().expect("made")), "a stale ring would end every later wait at once");
        assert_eq!(inbox.take(), Some(message));
    }
}

#[test]
fn each_arming_allows_one_ring() {
    let mut inbox = Inbox::new(8);
    let sender = inbox.sender();
    inbox.doorbell().expect("made");
    sender.send(0).expect("room");
    assert_eq!(rings(&inbox), 0, "awake");
    assert_eq!(inbox.take(), Some(0));
    assert!(inbox.arm());
    (1..4).for_each(|message| sender.send(message).expect("room"));
    assert_eq!(rings(&inbox), 1, "three messages, one arming");
    inbox.disarm();
    sender.send(4).expect("room");
    assert_eq!(rings(&inbox), 0, "disarmed");
}

#[test]
fn an_owner_with_a_message_does_not_arm() {
    let mut inbox = Inbox::new(4);
    inbox.doorbell().expect("made");
    inbox.sender().send(1).expect("room");
    assert!(!inbox.arm());
    inbox.sender().send(2).expect("room");
    assert!(!is_readable(inbox.doorbell().expect("made")), "nothing stayed armed");
    inbox.wait_futex(NO_LIMIT); // returns: there is a message
    assert_eq!((inbox.take(), inbox.take()), (Some(1), Some(2)));
}

#[test]
#[should_panic(expected = "doorbell")]
fn arming_without_a_doorbell_panics() {
    let _ = Inbox::<()>::new(1).arm();
}

#[test]
fn a_futex_wait_ends_at_its_deadline() {
    let mut inbox = Inbox::<u32>::new(1);
    inbox.wait_futex(0); // long in the past
    let until = clock::now_ns() + 1_000_000;
    while clock::now_ns() < until {
        inbox.wait_futex(until);
    }
}

#[test]
fn a_message_ends_a_futex_wait() {
    let mut inbox = Inbox::new(1);
    let sender = inbox.sender();
    let sleeper = thread::spawn(move || {
        loop {
            match inbox.take() {
                Some(message) => return message,
                None => inbox.wait_futex(NO_LIMIT),
            }
        }
    });
    sender.send(7).expect("room");
    assert_eq!(sleeper.join().expect("woken"), 7);
}

#[test]
fn an_inbox_keeps_its_doorbell_in_another_thread() {
    let mut inbox = Inbox::new(1);
    let sender = inbox.sender();
    inbox.doorbell().expect("made");
    assert!(inbox.arm());
    let sleeper = thread::spawn(move || {
        poll(&mut [PollFd::new(&inbox.doorbell().expect("made"), PollFlags::IN)], None).expect("polls");
        inbox.disarm();
        inbox.take()
    });
    sender.send(7).expect("room");
    assert_eq!(sleeper.join().expect("woken"), Some(7));
}
