//! Sequences of commands, aborts and data.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Commands in progress with what they compare with, or write.
#[derive(Default)]
struct Model {
    sent: BTreeMap<u16, u8>,
    fetches: Vec<(u16, u16)>,
    content: u8,
}

impl Model {
    /// Takes completions and fetches. A write that succeeds has written its command identifier.
    fn take(&mut self, queues: &mut Queues) {
        let mut compared = None;
        for (cid, status) in queues.statuses() {
            let byte = self.sent.remove(&cid).expect("no command is completed twice");
            match (is_write(cid), status) {
                (false, Status::SUCCESS) => assert_eq!(byte, self.content, "equal"),
                (false, status) if status == Status::COMPARE_FAILURE.dnr() => assert_ne!(byte, self.content),
                (true, Status::SUCCESS) => {
                    assert!(!is_fused(cid) || compared == Some(Status::SUCCESS), "{cid} after {compared:?}");
                    self.content = byte;
                }
                (true, _) => assert!(compared != Some(Status::SUCCESS) || !is_fused(cid), "memory does not fail"),
                _ => {}
            }
            compared = (!is_write(cid)).then_some(status);
        }
        let channel = queues.thread.namespaces.channel(0).expect("a channel");
        let loan = channel.lend(0, 1).expect("no writer is left");
        assert!(
            loan.bytes().iter().all(|&byte| byte == self.content),
            "{} instead of {}",
            loan.bytes()[0],
            self.content
        );
        channel.end_loan(loan);
        self.fetches.extend(queues.io.transport.fetches.drain(..).map(|(slot, cid, _)| (slot, cid)));
        self.fetches.retain(|(_, cid)| self.sent.contains_key(cid));
    }

    fn send(&mut self, queues: &mut Queues, cid: u16, (place, byte): (Place, u8)) {
        self.sent.insert(cid, byte);
        match (is_write(cid), is_fused(cid)) {
            (false, _) => queues.compare(cid, (place, byte)),
            (true, true) => queues.write(cid, (place, byte)),
            (true, false) => queues.send(Sqe::block_io(opcode::io::WRITE, 1, 0, 1), cid, (place, byte)),
        }
        self.take(queues);
    }

    fn deliver(&mut self, queues: &mut Queues, choice: u8, intact: bool) {
        let (slot, cid) = self.fetches.swap_remove(usize::from(choice) % self.fetches.len());
        queues.deliver_data(slot, self.sent[&cid], intact);
        self.take(queues);
    }
}

const fn is_write(cid: u16) -> bool {
    !cid.is_multiple_of(3)
}

const fn is_fused(cid: u16) -> bool {
    cid % 3 < 2
}

proptest! {
    /// Every command is completed once, and the block has the data of the last successful write, whatever is sent, aborted and delivered.
    #[test]
    fn every_command_is_completed_once(steps in prop::collection::vec((0..12_u8, any::<u8>()), 0..80)) {
        let mut queues = Queues::of_entries(64);
        let mut model = Model::default();
        for (number, (step, choice)) in (1_u16..).zip(steps) {
            let place = PLACES[usize::from(choice % 2)];
            match step {
                0..3 => {
                    let byte = if choice < 192 { model.content } else { choice };
                    model.send(&mut queues, 3 * number, (place, byte));
                }
                3..6 => model.send(&mut queues, 3 * number + 1, (place, choice)),
                6 => model.send(&mut queues, 3 * number + 2, (place, choice)),
                7 if !model.sent.is_empty() => {
                    let cid = *model.sent.keys().nth(usize::from(choice) % model.sent.len()).expect("a command");
                    let _ = queues.io.abort(cid, &mut queues.thread.cx(IO));
                    model.take(&mut queues);
                }
                8.. if !model.fetches.is_empty() => model.deliver(&mut queues, choice, choice > 16),
                _ => {}
            }
        }
        while !model.fetches.is_empty() {
            model.deliver(&mut queues, 0, true);
        }
        model.send(&mut queues, 3 * 200 + 2, (Place::InCapsule, 1)); // ends a waiting first command
        prop_assert_eq!(model.sent.len(), 0, "{:?}", model.sent);
    }
}
