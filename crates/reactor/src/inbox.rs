//! Bounded queues of messages: many senders, one receiver.
//!
//! An inbox belongs to the I/O thread (or the reactor) that empties it and moves with it; a [`Sender`] stays valid
//! wherever its owner lives. Sending never blocks: a full inbox hands the message back.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

/// The receiving end.
#[derive(Debug)]
pub struct Inbox<T>(Arc<ArrayQueue<T>>);

/// A sending end; clone it freely.
#[derive(Debug)]
pub struct Sender<T>(Arc<ArrayQueue<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Inbox<T> {
    /// An inbox for at most `capacity` messages.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(ArrayQueue::new(capacity)))
    }

    /// A sender to this inbox.
    #[must_use]
    pub fn sender(&self) -> Sender<T> {
        Sender(Arc::clone(&self.0))
    }

    /// Takes the oldest message. Costs two loads while there is none.
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        if self.0.is_empty() { None } else { self.0.pop() }
    }
}

impl<T> Sender<T> {
    /// Puts `message` into the inbox, or hands it back if the inbox is full.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.0.push(message)
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
