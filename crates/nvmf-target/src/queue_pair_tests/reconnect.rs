//! A Connect of a host whose earlier association has ended.

use pilotlight_nvmf_proto::subsystems::directory::Directory;

use super::*;

const AGAIN: ConnAddr = ConnAddr { thread: 0, index: 2, serial: 2 };

/// Access is checked when Connect arrives, and again after it has waited.
#[test]
fn a_connect_waits_until_earlier_queues_have_stopped_and_is_checked_again() {
    for is_allowed in [true, false] {
        let mut queues = Queues::new();
        queues.admin.lost(&mut queues.thread.cx(ADMIN));
        let mut again = connecting(&mut queues.thread, AGAIN, (0, 8), CNTLID_DYNAMIC);
        again.on_barrier_passed();
        again.run_waiting(&mut queues.thread.cx(AGAIN));
        assert_eq!(again.intake(), Intake::Keep, "an I/O queue of the ended association may still submit requests");
        if !is_allowed {
            let thread = &mut queues.thread;
            let directory = Directory::clone(thread.namespaces.directory()).with_allowed_hosts(0, &["other".into()]);
            thread.shared.state().directory = Arc::new(directory);
            thread.namespaces.set_list(thread.shared.list());
        }
        queues.io.lost(&mut queues.thread.cx(IO));
        again.run_waiting(&mut queues.thread.cx(AGAIN));
        let cqe = again.transport.responses.pop().expect("a completion");
        assert_eq!(cqe.status().is_success(), is_allowed, "{}", cqe.status());
    }
}
