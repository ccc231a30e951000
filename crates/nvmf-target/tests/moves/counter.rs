//! Hosts that increment one counter by fused Compare and Write.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pilotlight_host::rng::Rng;
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec, Transfer};
use pilotlight_nvme::command::{Sgl, fuse, opcode::io};
use pilotlight_nvme::{Sqe, Status};

use super::BLOCK;

/// The block with the counter.
const LBA: u64 = 5;

/// What one queue has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Increments.
    pub(crate) incremented: u64,
    /// Attempts that found another value.
    pub(crate) lost: u64,
}

/// Increments the counter of a namespace until `stop`, on one queue.
pub(crate) fn increment(options: &ConnectOptions, nsid: u32, stop: &AtomicBool) -> Result<Counts, HostError> {
    let controller = Controller::connect(options.clone())?;
    let spec = QueueSpec { qid: 1, depth: 4, max_io: BLOCK, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec)?;
    let mut rng = Rng::new(u64::from(options.hostid[0]));
    let mut counts = Counts::default();
    while !stop.load(Relaxed) {
        let seen = read(&mut queue, nsid)?;
        let [compared, written] = swap(&mut queue, nsid, seen, &mut rng)?;
        match (compared, written) {
            (Status::SUCCESS, Status::SUCCESS) => counts.incremented += 1,
            (compared, Status::FAILED_FUSED) if compared == Status::COMPARE_FAILURE.dnr() => counts.lost += 1,
            other => panic!("{other:?}"),
        }
    }
    Ok(counts)
}

/// The counter, of which each word of the block has a copy.
pub(crate) fn value(options: &ConnectOptions, nsid: u32) -> Result<u64, HostError> {
    let controller = Controller::connect(options.clone())?;
    let spec = QueueSpec { qid: 1, depth: 1, max_io: BLOCK, buffers: Buffers::PerCommand };
    read(&mut controller.open_queue(&spec)?, nsid)
}

fn read(queue: &mut Connection, nsid: u32) -> Result<u64, HostError> {
    let mut block = [0; BLOCK as usize];
    queue.execute("Read", Sqe::block_io(io::READ, nsid, LBA, 1), &[], &mut block)?;
    let words: Vec<u64> = block.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
    assert!(words.iter().all(|word| *word == words[0]), "a torn block");
    Ok(words[0])
}

/// Replaces `seen` by its successor; each command has its data in the capsule or not.
fn swap(queue: &mut Connection, nsid: u32, seen: u64, rng: &mut Rng) -> Result<[Status; 2], HostError> {
    let halves = [(io::COMPARE, fuse::FIRST, seen), (io::WRITE, fuse::SECOND, seen + 1)];
    let cids = halves.map(|(opcode, fused, value)| {
        let cid = queue.queue().reserve().expect("a free identifier");
        let in_capsule = if rng.below(2) == 0 { BLOCK } else { 0 };
        let sgl = if in_capsule > 0 { Sgl::in_capsule(BLOCK) } else { Sgl::transport(BLOCK) };
        let sqe = Sqe::block_io(opcode, nsid, LBA, 1);
        let sqe = Sqe { sgl, flags: sqe.flags | fused, ..sqe };
        queue.queue().buffer_mut(cid).as_chunks_mut::<8>().0.fill(value.to_le_bytes());
        queue.queue().issue_as_is(cid, sqe, Transfer::Out(BLOCK), in_capsule);
        cid
    });
    queue.flush()?;
    Ok([queue.wait(cids[0], "the compare", &mut [])?.status, queue.wait(cids[1], "the write", &mut [])?.status])
}
