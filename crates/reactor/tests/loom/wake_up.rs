//! No lost wake-up, for each kind of wait; and a lost one with a step omitted.

use std::mem::ManuallyDrop;

use loom::thread;

use crate::check;
use crate::inbox::Inbox;
use crate::sync::{self, Step, leave_out};
use crate::wait::Monitor;

const NO_LIMIT: u64 = u64::MAX;

fn by_futex(inbox: &mut Inbox<u32>) {
    inbox.wait_futex(NO_LIMIT);
}

fn by_doorbell(inbox: &mut Inbox<u32>) {
    if inbox.arm() {
        sync::poll();
        inbox.disarm();
    }
}

fn by_monitor(inbox: &mut Inbox<u32>) {
    inbox.wait_monitor(Monitor::Model, NO_LIMIT);
}

fn by_exclusive_monitor(inbox: &mut Inbox<u32>) {
    inbox.wait_monitor(Monitor::Exclusive, NO_LIMIT);
}

/// Leaks its content if a model fails: destructors run operations of `loom`, which are not allowed then.
pub(crate) struct Kept<T>(pub(crate) ManuallyDrop<T>);

impl<T> Kept<T> {
    pub(crate) fn new(content: T) -> Self {
        Self(ManuallyDrop::new(content))
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: dropped only here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        }
    }
}

/// An owner that sleeps if it finds nothing, until all messages of all senders have arrived.
fn model(senders: u32, messages: u32, wait: fn(&mut Inbox<u32>)) {
    check(move || {
        let mut kept = Kept::new(Inbox::new(2));
        let inbox = &mut *kept.0;
        inbox.doorbell().expect("made");
        let sending: Vec<_> = (0..senders)
            .map(|_| {
                let sender = Kept::new(inbox.sender());
                thread::spawn(move || (0..messages).for_each(|message| sender.0.send(message).expect("room")))
            })
            .collect();
        let mut missing = senders * messages;
        while missing > 0 {
            match inbox.take() {
                Some(_) => missing -= 1,
                None => wait(inbox),
            }
        }
        sending.into_iter().for_each(|sender| sender.join().expect("sends"));
        inbox.disarm();
        assert!(!sync::is_readable(), "a stale ring would end every later wait at once");
    });
}

mod one_sender {
    use super::*;

    #[test]
    fn wakes_a_futex() {
        model(1, 2, by_futex);
    }

    #[test]
    fn wakes_by_the_doorbell() {
        model(1, 2, by_doorbell);
    }

    #[test]
    fn wakes_a_monitor() {
        model(1, 2, by_monitor);
    }

    #[test]
    fn wakes_an_exclusive_monitor() {
        model(1, 2, by_exclusive_monitor);
    }
}

mod two_senders {
    use super::*;

    #[test]
    fn wake_a_futex() {
        model(2, 1, by_futex);
    }

    #[test]
    fn wake_by_the_doorbell() {
        model(2, 1, by_doorbell);
    }

    #[test]
    fn wake_a_monitor() {
        model(2, 1, by_monitor);
    }

    #[test]
    fn wake_an_exclusive_monitor() {
        model(2, 1, by_exclusive_monitor);
    }
}

/// The owner does not check again after arming.
mod no_recheck {
    use super::*;

    fn fails(wait: fn(&mut Inbox<u32>)) {
        leave_out(Step::Recheck);
        model(1, 1, wait);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_of_a_futex() {
        fails(by_futex);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_by_the_doorbell() {
        fails(by_doorbell);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_of_a_monitor() {
        fails(by_monitor);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_of_an_exclusive_monitor() {
        fails(by_exclusive_monitor);
    }
}

/// The owner waits without having armed.
mod wait_before_arm {
    use super::*;

    fn fails(wait: fn(&mut Inbox<u32>)) {
        leave_out(Step::Arm);
        model(1, 1, wait);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_of_a_futex() {
        fails(by_futex);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_by_the_doorbell() {
        fails(by_doorbell);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_of_a_monitor() {
        fails(by_monitor);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_of_an_exclusive_monitor() {
        fails(by_exclusive_monitor);
    }
}

/// The sender reads the owner's state before its message is visible.
mod no_sender_fence {
    use super::*;

    fn fails(wait: fn(&mut Inbox<u32>)) {
        leave_out(Step::SenderFence);
        model(1, 1, wait);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_of_a_futex() {
        fails(by_futex);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn loses_the_wake_up_by_the_doorbell() {
        fails(by_doorbell);
    }

    /// No re-check is needed: the store itself is the wake-up.
    #[test]
    fn does_not_affect_a_monitor() {
        fails(by_monitor);
    }
}
