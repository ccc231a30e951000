//! Each message is dropped once, whoever goes first. `loom` reports an `Arc` that is left over.

use loom::sync::Arc;
use loom::thread;

use crate::inbox::Inbox;

#[test]
fn an_inbox_is_dropped_while_a_message_arrives() {
    loom::model(|| {
        let inbox = Inbox::new(2);
        let sender = inbox.sender();
        let sending = thread::spawn(move || drop(sender.send(Arc::new(()))));
        drop(inbox);
        sending.join().expect("sends");
    });
}

#[test]
fn an_inbox_is_dropped_with_messages_while_one_arrives() {
    loom::model(|| {
        let inbox = Inbox::new(2);
        let (sender, other) = (inbox.sender(), inbox.sender());
        let message = Arc::new(());
        sender.send(Arc::clone(&message)).expect("room");
        let sending = thread::spawn(move || drop(other.send(Arc::new(()))));
        drop(inbox);
        assert_eq!(Arc::strong_count(&message), 1, "dropped with the inbox");
        sending.join().expect("sends");
    });
}
