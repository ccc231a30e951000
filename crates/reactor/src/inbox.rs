//! Bounded queues of messages: many senders, one receiver.
//!
//! An inbox belongs to the I/O thread (or the reactor) that empties it and moves with it; a [`Sender`] stays valid
//! wherever its owner lives. Sending never blocks: a full inbox hands the message back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};

#[derive(Debug)]
struct Shared<T> {
    queue: ArrayQueue<T>,
    /// The owner waits, or is about to.
    armed: AtomicBool,
    doorbell: OnceLock<OwnedFd>,
}

/// The receiving end.
#[derive(Debug)]
pub struct Inbox<T>(Arc<Shared<T>>);

/// A sending end; clone it freely.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Inbox<T> {
    /// An inbox for at most `capacity` messages.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let shared =
            Shared { queue: ArrayQueue::new(capacity), armed: AtomicBool::new(false), doorbell: OnceLock::new() };
        Self(Arc::new(shared))
    }

    /// A sender to this inbox.
    #[must_use]
    pub fn sender(&self) -> Sender<T> {
        Sender(Arc::clone(&self.0))
    }

    /// Takes the oldest message. Costs two loads while there is none.
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        if self.0.queue.is_empty() { None } else { self.0.queue.pop() }
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }

    /// The descriptor that becomes readable when a message comes while the inbox is armed; made on first use.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn doorbell(&self) -> io::Result<BorrowedFd<'_>> {
        if self.0.doorbell.get().is_none() {
            let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let _ = self.0.doorbell.set(made);
        }
        Ok(self.0.doorbell.get().ok_or(io::ErrorKind::NotFound)?.as_fd())
    }

    /// The owner is about to wait for the doorbell. `false`: there is a message, and nothing is armed.
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.0.armed.store(true, SeqCst);
        fence(SeqCst);
        if self.0.queue.is_empty() {
            return true;
        }
        self.disarm();
        false
    }

    /// The owner is back.
    pub fn disarm(&mut self) {
        if !self.0.armed.swap(false, SeqCst)
            && let Some(doorbell) = self.0.doorbell.get()
        {
            let _ = rustix::io::read(doorbell, &mut [0; 8]);
        }
    }
}

impl<T> Sender<T> {
    /// Puts `message` into the inbox, or hands it back if the inbox is full.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.0.queue.push(message)?;
        fence(SeqCst);
        if self.0.armed.load(SeqCst)
            && self.0.armed.swap(false, SeqCst)
            && let Some(doorbell) = self.0.doorbell.get()
        {
            let _ = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_hands_back_what_does_not_fit() {
        let mut inbox = Inbox::new(2);
        let sender = inbox.sender();
        assert_eq!(inbox.take(), None);
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.clone().send(2), Ok(()));
        assert_eq!(sender.send(3), Err(3));
        assert_eq!((inbox.take(), inbox.take(), inbox.take()), (Some(1), Some(2), None));
    }
}
