//! Bounded queues of messages: many senders, one receiver.
//!
//! An inbox belongs to the I/O thread (or the reactor) that empties it and moves with it; a [`Sender`] stays valid
//! wherever its owner lives. Sending never blocks: a full inbox hands the message back.

use std::fmt;

use crate::ring::Ring;
use crate::sync::Arc;

/// The receiving end. Dropped, it drops what is in it; what is sent later goes with the last sender.
pub struct Inbox<T> {
    shared: Arc<Ring<T>>,
    /// Messages taken so far.
    head: u64,
}

/// A sending end; clone it freely.
pub struct Sender<T>(Arc<Ring<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("taken", &self.head).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> Inbox<T> {
    /// An inbox for at most `capacity` messages, rounded up to a power of two.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { shared: Arc::new(Ring::new(capacity)), head: 0 }
    }

    /// A sender to this inbox.
    #[must_use]
    pub fn sender(&self) -> Sender<T> {
        Sender(Arc::clone(&self.shared))
    }

    /// Takes the oldest message. Costs one load while there is none.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        // SAFETY: a ring has one inbox, which is not `Clone`, and `&mut self` makes this the only receiver; `head` starts
        // at 0 and counts what was taken.
        let message = unsafe { self.shared.take(self.head) };
        self.head += u64::from(message.is_some());
        message
    }

    /// Whether there is nothing to take.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty(self.head)
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

impl<T> Sender<T> {
    /// Puts `message` into the inbox, or hands it back if the inbox is full. Never blocks.
    ///
    /// # Errors
    /// The message, if there is no room.
    #[inline]
    pub fn send(&self, message: T) -> Result<(), T> {
        self.0.send(message)
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
