//! Reads sent directly from their blocks: loans end, however few bytes the host's socket accepts.

#[path = "waiting/host.rs"]
mod host;

use std::sync::Arc;

use host::{BLOCK, Host, MS, bench, capsule, memory};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io::{READ, WRITE_ZEROES};
use pilotlight_nvme::pdu::PduType;
use pilotlight_storage::Backend;

/// Maximum number of blocks of a command.
const BLOCKS: u32 = 32;
const OLD: u8 = 7;
const NEW: u8 = 9;

/// Writes all blocks of a command directly to the backend, as another I/O thread would.
fn write(backend: &Arc<dyn Backend>, byte: u8) {
    let mut channel = backend.open_channel(1).expect("a channel");
    let data = vec![byte; (BLOCKS * BLOCK) as usize];
    channel.write_now(0, BLOCKS, false, &data).expect("no block is on loan").expect("the write succeeds");
}

fn read(cid: u16) -> Vec<u8> {
    capsule(cid, Sqe { sgl: Sgl::transport(BLOCKS * BLOCK), ..Sqe::block_io(READ, 1, 0, BLOCKS) }, &[])
}

/// The data of the next C2HData PDU.
fn data(queue: &mut Host, bench: &mut pilotlight_nvmf_target::testing::Bench) -> Vec<u8> {
    let pdu = queue.pdu(bench);
    assert_eq!(pdu[0], PduType::C2HData as u8);
    pdu[usize::from(pdu[3])..].to_vec()
}

#[test]
fn unsent_data_does_not_lock_blocks_and_is_not_changed_by_writes() {
    for received in [0, 1, 1_000, 200_000] {
        let backend = memory();
        write(&backend, OLD);
        let mut bench = bench(&backend, 4 << 20);
        let (_admin, mut queue) = Host::both(&mut bench, 1, true);
        for cid in 1..=4 {
            queue.send(&read(cid));
        }
        bench.step(1);
        assert_eq!(bench.usage().commands, 0, "all reads complete in one turn");
        assert!(bench.usage().buffers > 0, "the socket does not accept all data");
        write(&backend, NEW);
        let mut left = received;
        while left > 0 {
            let got = queue.receive(left);
            left -= got;
            bench.step(1);
            write(&backend, NEW);
        }
        for _ in 1..=4 {
            let data = data(&mut queue, &mut bench);
            assert!(data.len() == (BLOCKS * BLOCK) as usize && data.iter().all(|&byte| byte == OLD));
        }
        queue.send(&read(5));
        assert!(data(&mut queue, &mut bench).iter().all(|&byte| byte == NEW));
        assert_eq!((bench.usage().buffers, bench.usage().charged), (0, 0));
    }
}

#[test]
fn loans_of_unsent_data_end_with_the_connection() {
    let backend = memory();
    write(&backend, OLD);
    let mut bench = bench(&backend, 4 << 20);
    let (admin, mut queue) = Host::both(&mut bench, 1, true);
    (1..=4).for_each(|cid| queue.send(&read(cid)));
    queue.send(&[0xff; 8]); // invalid: the connection ends in the turn in which the reads start
    bench.step(1);
    write(&backend, NEW);
    drop((admin, queue));
    bench.run(MS);
    assert_eq!((bench.usage().connections, bench.usage().buffers, bench.usage().charged), (0, 0, 0));
}

#[test]
fn write_zeroes_waits_for_reads_of_the_same_turn() {
    let backend = memory();
    write(&backend, OLD);
    let mut bench = bench(&backend, 4 << 20);
    let (_admin, mut queue) = Host::both(&mut bench, 1, false);
    let zeroes = |cid| capsule(cid, Sqe::block_io(WRITE_ZEROES, 1, 3, 2), &[]);
    let batch = [zeroes(1), zeroes(2), read(3), read(4)].concat();
    queue.send(&batch);
    // After the first command of each kind, the second Write Zeroes overlaps blocks that are on loan to a read.
    bench.step(1);
    assert_eq!(bench.usage().commands, 0, "a poll has two turns per connection, and no loans in the second");
    let mut responses: Vec<u8> = (0..4).map(|_| queue.pdu(&mut bench)[0]).collect();
    responses.sort_unstable();
    assert_eq!(
        responses,
        [PduType::CapsuleResp as u8, PduType::CapsuleResp as u8, PduType::C2HData as u8, PduType::C2HData as u8]
    );
}
