//! Shutdown of servers, controllers and namespaces with media that fail, withhold completions, or block.

#[path = "lifecycle/media.rs"]
mod media;

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use media::{Medium, TIMEOUT, eventually, in_file, stop, target, target_in};
use pilotlight_host::{Connection, HostError};
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvme::fabrics::{cc, csts, property};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_storage::{MemoryBudget, open};

/// Timeout of a stop that cannot complete. Short, as the test waits for it.
const BRIEF: Duration = Duration::from_millis(500);

fn flush_all(queue: &mut Connection) -> Result<u64, HostError> {
    queue.execute("Flush", Sqe::new(io::FLUSH, u32::MAX), &[], &mut [])
}

fn read(queue: &mut Connection, nsid: u32) {
    queue.execute("Read", Sqe::block_io(io::READ, nsid, 0, 1), &[], &mut [0; 4096]).expect("a read");
}

/// Submits a write that the medium withholds, or that blocks.
fn write(queue: &mut Connection, nsid: u32) {
    queue.submit(Sqe::block_io(io::WRITE, nsid, 0, 1), &[7; 4096], 0).expect("submitted");
    queue.flush().expect("sent");
}

/// Leaks withheld requests, whose buffers must not be dropped.
fn forget_kept(medium: &Medium) {
    let _ = ManuallyDrop::new(std::mem::take(&mut *medium.kept.lock().expect("no panic")));
}

#[test]
fn a_stop_flushes_every_namespace_and_reports_failures() {
    let target = target(4);
    target.medium(1).fail_flushes.store(true, SeqCst);
    target.medium(3).fail_flushes.store(true, SeqCst);
    let message = stop(target.server, TIMEOUT);
    let flushed: Vec<u32> = target.media.iter().map(|medium| medium.flushed.load(SeqCst)).collect();
    assert_eq!(flushed, [0, 1, 0, 1]);
    let named: Vec<bool> = (1..=4).map(|nsid| message.contains(&format!("namespace {nsid} "))).collect();
    assert_eq!(named, [true, false, true, false], "{message}");
}

#[test]
fn a_flush_of_all_namespaces_continues_after_a_failure() {
    let target = target(3);
    let (_controller, mut queue) = target.queue();
    assert!(flush_all(&mut queue).is_ok());
    target.medium(1).fail_flushes.store(true, SeqCst);
    let Err(HostError::Status { status, .. }) = flush_all(&mut queue) else { panic!("the failure is not reported") };
    assert_eq!(status, Status::INTERNAL);
    let flushed: Vec<u32> = target.media.iter().map(|medium| medium.flushed.load(SeqCst)).collect();
    assert_eq!(flushed, [1, 2, 2]);
    let failures: Vec<_> =
        target.server.stats().failures.into_iter().map(|it| (it.nsid, it.counts[0].commands)).collect();
    assert_eq!(failures, [(1, 1)], "counted for the namespace that failed");
    target.medium(1).fail_flushes.store(false, SeqCst);
    assert!(flush_all(&mut queue).is_ok(), "the failure is not reported again");
}

#[test]
fn a_failed_flush_at_shutdown_sets_a_fatal_status_until_the_reset() {
    let target = target(3);
    let mut controller = target.controller();
    target.medium(2).fail_flushes.store(true, SeqCst);
    let shutdown = cc::EN | cc::IOSQES_IOCQES | 1 << 14;
    controller.set_property(property::CC, shutdown).expect("CC");
    let csts =
        |controller: &mut pilotlight_host::Controller| controller.property(property::CSTS, false).expect("CSTS") as u32;
    let mut last = 0;
    eventually("the end of the shutdown", || {
        last = csts(&mut controller);
        last & csts::CFS != 0 || last & csts::SHST_COMPLETE != 0
    });
    assert_eq!(last, csts::RDY | csts::CFS | csts::SHST_OCCURRING, "not complete");
    assert_eq!(target.medium(3).flushed.load(SeqCst), 1, "the others are flushed");
    controller.disable().expect("a reset");
    controller.enable().expect("enabled again");
    assert_eq!(csts(&mut controller), csts::RDY);
    target.medium(2).fail_flushes.store(false, SeqCst);
    controller.shutdown().expect("complete");
}

#[test]
fn a_stop_times_out_if_a_medium_withholds_completions() {
    let target = target(2);
    let (_controller, mut queue) = target.queue();
    target.medium(2).keep_writes.store(true, SeqCst);
    write(&mut queue, 2);
    eventually("the write", || !target.medium(2).kept.lock().expect("no panic").is_empty());
    let message = stop(target.server, BRIEF);
    let unreturned = |nsid| message.contains(&format!("namespace {nsid} of {} did not return", media::NQN));
    assert!(unreturned(2) && !unreturned(1), "{message}");
    // The device may still access the buffer, so it is not unmapped.
    let mut kept = target.media[1].kept.lock().expect("no panic");
    let buffer = kept[0].buffer.as_mut().expect("a write has a buffer");
    assert_eq!(buffer[..4096], [7; 4096]);
    buffer.fill(9);
    drop(kept);
    eventually("the flush of the other namespace", || target.media[0].flushed.load(SeqCst) == 1);
    forget_kept(&target.media[1]);
}

#[test]
fn a_stop_times_out_if_a_flush_does_not_complete() {
    let target = target(3);
    target.medium(1).keep_flushes.store(true, SeqCst);
    let message = stop(target.server, BRIEF);
    assert!(message.contains("namespace 1 "), "{message}");
    eventually("the flush of the others", || target.media[1..].iter().all(|m| m.flushed.load(SeqCst) == 1));
}

#[test]
fn a_stop_times_out_if_a_reactor_is_blocked() {
    let target = target(1);
    let (_controller, mut queue) = target.queue();
    target.medium(1).submitting.set(true);
    write(&mut queue, 1);
    eventually("the write", || target.medium(1).submitting.reached.load(SeqCst));
    let message = stop(target.server, BRIEF);
    target.media[0].submitting.set(false);
    assert!(message.contains("reactor 0 ") && message.contains("namespace 1 "), "{message}");
}

#[test]
fn a_channel_that_closes_slowly_does_not_delay_hosts() {
    let target = target(2);
    let (_controller, mut queue) = target.queue();
    target.medium(2).dropping.set(true);
    target.server.remove_namespace(media::NQN, 2).expect("removed");
    eventually("the channel's end", || target.medium(2).dropping.reached.load(SeqCst));
    read(&mut queue, 1);
    target.medium(2).dropping.set(false);
    assert_eq!(stop(target.server, TIMEOUT), "stopped");
    // The last flush opened and closed another one.
    let closed_by = |at: usize| target.media[at].dropped_on.lock().expect("no panic").clone();
    assert_eq!(closed_by(1), ["reaper"]);
    assert!(closed_by(0).iter().all(|thread| !thread.starts_with("reactor")), "{:?}", closed_by(0));
}

/// The file of a removed namespace is locked until the reaper has closed its channels.
#[test]
fn a_file_can_be_added_again_right_after_its_namespace_was_removed() {
    let target = target(2);
    let dir = tempfile::tempdir().expect("a directory");
    let (file, server) = (dir.path().join("disk.img"), &target.server);
    server.remove_namespace(media::NQN, 2).expect("removed");
    server.add_namespace(media::NQN, &in_file(2, &file)).expect("added");
    target.medium(2).dropping.set(true);
    server.remove_namespace(media::NQN, 2).expect("removed");
    let opened = target.medium(2).opened.load(SeqCst);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| server.add_namespace(media::NQN, &in_file(2, &file)));
        eventually("the first attempt", || target.medium(2).opened.load(SeqCst) > opened);
        target.medium(2).dropping.set(false);
        adding.join().expect("no panic").expect("added when the file is closed");
    });
    let (_controller, mut queue) = target.queue();
    read(&mut queue, 2);
    assert_eq!(stop(target.server, TIMEOUT), "stopped");
}

#[test]
fn a_stop_with_abandoned_requests_closes_the_other_namespaces() {
    let target = target(2);
    let dir = tempfile::tempdir().expect("a directory");
    let other = in_file(2, &dir.path().join("disk.img"));
    target.server.remove_namespace(media::NQN, 2).expect("removed");
    target.server.add_namespace(media::NQN, &other).expect("added");
    let (_controller, mut queue) = target.queue();
    target.medium(1).keep_writes.store(true, SeqCst);
    write(&mut queue, 1);
    eventually("the write", || !target.medium(1).kept.lock().expect("no panic").is_empty());
    let message = stop(target.server, BRIEF);
    assert!(message.contains("did not return"), "{message}");
    let budget = std::sync::Arc::new(MemoryBudget::unlimited());
    eventually("the end of the other namespace", || open(&other.backend, 4096, &budget).is_ok());
    forget_kept(&target.media[0]);
}

/// Asynchronous requests are taken from the system's limit (`fs.aio-max-nr`, 65,536 by default) where they are used: reserved
/// for each pair of I/O thread and namespace, they would not suffice.
#[test]
fn sixty_four_io_threads_and_files_start_within_the_limit_of_the_system() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let namespace = |nsid| in_file(nsid, &dir.path().join(format!("{nsid}.img")));
    let target = target_in((1..=64).map(namespace).collect(), 64);
    let (_controller, mut queue) = target.queue();
    (1..=64).for_each(|nsid| read(&mut queue, nsid));
    target.server.stop(TIMEOUT).expect("stops");
}
