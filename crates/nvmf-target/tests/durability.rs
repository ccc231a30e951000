//! Data that was flushed, or written with FUA, survives a power loss.
//!
//! The backend has a *live* and a *durable* image. Only flushes and FUA move data to the durable one; a power cut freezes it with
//! any subset of the other writes. `kill -9` is no substitute, because the page cache survives it.

mod host_support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use host_support::{NQN, Target, target};
use pilotlight_host::{Buffers, Connection, Controller, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::{cdw12, opcode::io as opcode};
use pilotlight_storage::frozen::{Image, Moment};
use pilotlight_storage::{Backend, FrozenBackend, Random};

const BLOCKS: u64 = 64;
const BLOCK: usize = 4096;
const COMMANDS: u64 = 400;

/// For each block the content that must be durable, and later contents that may be.
#[derive(Default)]
struct Model {
    /// Durable: acknowledged before an acknowledged flush, or written with FUA.
    sure: HashMap<u64, u8>,
    /// Later writes in order, each of which may have reached the medium.
    maybe: HashMap<u64, Vec<u8>>,
}

impl Model {
    fn wrote(&mut self, lba: u64, byte: u8, fua: bool) {
        if fua {
            self.sure.insert(lba, byte);
            self.maybe.remove(&lba);
        } else {
            self.maybe.entry(lba).or_default().push(byte);
        }
    }

    fn flushed(&mut self) {
        for (lba, bytes) in self.maybe.drain() {
            if let Some(&last) = bytes.last() {
                self.sure.insert(lba, last);
            }
        }
    }

    /// The first block with invalid content.
    fn violation(&self, image: &Image) -> Option<String> {
        (0..BLOCKS).find_map(|lba| {
            let block = image.block(lba);
            let allowed = |byte: u8| block.iter().all(|&b| b == byte);
            let sure = self.sure.get(&lba).copied().unwrap_or(0);
            let maybe = self.maybe.get(&lba).is_some_and(|bytes| bytes.iter().any(|&byte| allowed(byte)));
            (!allowed(sure) && !maybe).then(|| format!("block {lba} holds {:#x}, {sure:#x} was durable", block[0]))
        })
    }
}

fn serve(frozen: FrozenBackend) -> (Target, Arc<FrozenBackend>) {
    let frozen = Arc::new(frozen);
    let slot = Mutex::new(Some(Arc::clone(&frozen)));
    let target = target(1, BLOCKS, BLOCK as u32, move |_| {
        slot.lock().expect("not poisoned").take().expect("opened once") as Arc<dyn Backend>
    });
    (target, frozen)
}

fn connect(target: &Target) -> (Controller, Connection) {
    let controller = Controller::connect(target.options()).expect("a controller");
    let spec = QueueSpec { qid: 1, depth: 4, max_io: BLOCK as u32, buffers: Buffers::PerCommand };
    let io = controller.open_queue(&spec).expect("an I/O queue");
    (controller, io)
}

/// One command of a random workload; `false` if it failed, after the power cut.
fn command(io: &mut Connection, random: &mut Random, n: u64, model: &mut Model) -> bool {
    let lba = random.next_u64() % BLOCKS;
    match random.next_u64() % 8 {
        0 => {
            let ok = io.execute("flush", Sqe::new(opcode::FLUSH, 1), &[], &mut []).is_ok();
            if ok {
                model.flushed();
            }
            ok
        }
        kind => {
            let fua = kind == 1;
            let mut sqe = Sqe::block_io(opcode::WRITE, 1, lba, 1);
            if fua {
                sqe = sqe.with_cdw(12, cdw12::FUA);
            }
            let byte = (n % 250) as u8 + 1;
            let ok = io.execute("write", sqe, &[byte; BLOCK], &mut []).is_ok();
            // An unacknowledged write may have reached the medium.
            model.wrote(lba, byte, fua && ok);
            ok
        }
    }
}

/// Cuts power right after the n-th flush or FUA of a workload, and compares.
fn cut_after(flush: u64, seed: u64, frozen: FrozenBackend) -> Option<String> {
    frozen.cut_power_at(Moment::AfterFlush(flush), seed);
    let (target, frozen) = serve(frozen);
    let (controller, mut io) = connect(&target);
    let (mut random, mut model) = (Random::new(seed), Model::default());
    for n in 0..COMMANDS {
        if !command(&mut io, &mut random, n, &mut model) || frozen.frozen().is_some() {
            break;
        }
    }
    let image = frozen.frozen().expect("the workload has enough flushes");
    drop((controller, io));
    let _ = target.server.stop(std::time::Duration::from_secs(10)); // the last flush fails without power
    model.violation(&image)
}

fn medium() -> FrozenBackend {
    FrozenBackend::new(BLOCK as u32, BLOCKS).expect("a medium")
}

#[test]
fn durable_data_survives_a_power_cut_at_any_flush() {
    for flush in 1..=20 {
        assert_eq!(cut_after(flush, 1000 + flush, medium()), None, "power cut after flush {flush}");
    }
}

/// Verifies the test above: a medium that ignores flushes must fail it.
#[test]
fn a_medium_that_ignores_flushes_is_detected() {
    let caught = (1..=20).filter_map(|flush| cut_after(flush, 1000 + flush, medium().ignoring_flushes())).count();
    assert!(caught > 0, "no lost flush was detected in 20 power cuts");
}

#[test]
fn stopping_the_server_flushes() {
    let (target, frozen) = serve(medium());
    let (controller, mut io) = connect(&target);
    io.execute("write", Sqe::block_io(opcode::WRITE, 1, 3, 1), &[0x77; BLOCK], &mut []).expect("written");
    drop((controller, io));
    target.stop();
    assert_eq!(frozen.cut_power(1).block(3), vec![0x77; BLOCK], "written, never flushed by the host, and lost ({NQN})");
}

#[test]
fn shutting_the_controller_down_flushes() {
    let (target, frozen) = serve(medium());
    let (controller, mut io) = connect(&target);
    io.execute("write", Sqe::block_io(opcode::WRITE, 1, 3, 1), &[0x77; BLOCK], &mut []).expect("written");
    drop(io);
    controller.shutdown().expect("a normal shutdown completes");
    assert_eq!(frozen.cut_power(1).block(3), vec![0x77; BLOCK]);
    let _ = target.server.stop(std::time::Duration::from_secs(10));
}
