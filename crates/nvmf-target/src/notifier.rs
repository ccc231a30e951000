//! Notifications of new hosts and queues for an OS thread (`server/notices.rs`).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Wakes the thread that publishes hosts and classes.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(SyncSender<()>);

impl Notifier {
    /// A notifier, and what it wakes; that ends when the notifier and its clones are dropped.
    pub(crate) fn new() -> (Self, Receiver<()>) {
        let (sender, receiver) = sync_channel(1); // one pending notification is sufficient
        (Self(sender), receiver)
    }

    /// Reports a possible change.
    pub(crate) fn notify(&self) {
        let _ = self.0.try_send(());
    }
}
