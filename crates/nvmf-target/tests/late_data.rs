//! Data that arrives after its command was aborted is not used for another command.

#[path = "waiting/host.rs"]
mod host;

use host::{BLOCK, Host, MS, bench, capsule, capsule_with, connect_cmd, connect_data, memory};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::{admin, io as opcode};
use pilotlight_nvme::pdu::{CapsuleResp, Digests, Flags, H2CData, PduType, R2T, data_offset};
use pilotlight_nvmf_target::testing::Bench;
use pilotlight_peers::raw::framed;
use zerocopy::{FromBytes, IntoBytes};

const NONE: Digests = Digests { header: false, data: false };
const DATA: Digests = Digests { header: false, data: true };

fn command(opcode: u8, lba: u64, blocks: u32) -> Sqe {
    Sqe { sgl: Sgl::transport(blocks * BLOCK), ..Sqe::block_io(opcode, 1, lba, blocks) }
}

/// Sends a write and reads its R2T.
fn write(host: &mut Host, bench: &mut Bench, cid: u16, lba: u64, blocks: u32) -> R2T {
    host.send(&capsule(cid, command(opcode::WRITE, lba, blocks), &[]));
    r2t_in(&host.pdu(bench))
}

fn r2t_in(pdu: &[u8]) -> R2T {
    assert_eq!(pdu[0], PduType::R2T as u8, "{pdu:02x?}");
    R2T::read_from_prefix(pdu).expect("a complete header").0
}

/// All data that `r2t` requests, every byte `byte`.
fn data(r2t: &R2T, byte: u8, digests: Digests) -> Vec<u8> {
    let (pdo, len) = (data_offset(PduType::H2CData, digests, 0), r2t.r2tl.get());
    let header = H2CData::new(r2t.cccid.get(), r2t.ttag.get(), r2t.r2to.get(), len, pdo, Flags::LAST_PDU, digests);
    framed(header.as_bytes(), pdo, &vec![byte; len as usize], digests)
}

/// Aborts command `cid` of queue 1.
fn abort(host: &mut Host, bench: &mut Bench, cid: u16) {
    host.send(&capsule(9, Sqe::new(admin::ABORT, 0).with_cdw(10, 1 | u32::from(cid) << 16), &[]));
    assert_eq!(host.completion(bench).result.get() & 1, 0, "command {cid} is aborted");
}

/// Commands that were aborted or wait for data use all transfers of a queue of 32 entries. The first is aborted during its
/// H2CData PDU; after it a write of `blocks` blocks gets a transfer.
fn a_write_begins_during_late_data(blocks: u32, sent: usize) {
    let mut bench = bench(&memory(), 64 << 20);
    let (mut admin, mut queue) = Host::both(&mut bench, 1, true);
    let first = write(&mut queue, &mut bench, 100, 0, 32);
    for cid in 200..223 {
        write(&mut queue, &mut bench, cid, 100, 1);
        abort(&mut admin, &mut bench, cid);
        queue.response(&mut bench);
    }
    for cid in 300..324 {
        write(&mut queue, &mut bench, cid, 100, 1);
    }
    let late = data(&first, 0xee, NONE);
    // Unreceived reads delay the start of the write until after the abort.
    let reads = (400..406).flat_map(|cid| capsule(cid, command(opcode::READ, 0, 32), &[]));
    let mut bytes: Vec<u8> = reads.collect();
    bytes.extend(capsule(500, command(opcode::WRITE, 500, blocks), &[]));
    bytes.extend(&late[..24 + sent]);
    queue.send(&bytes);
    bench.run(MS);
    abort(&mut admin, &mut bench, 100);
    let mut request = None;
    while let Some(pdu) = queue.pdu_within(&mut bench, 100 * MS) {
        request = request.or_else(|| (pdu[0] == PduType::R2T as u8).then(|| r2t_in(&pdu)));
    }
    assert_eq!(request.expect("the write's data is requested").cccid.get(), 500);
    for piece in late[24 + sent..].chunks(32_768) {
        queue.send(piece);
        bench.run(MS);
    }
    while let Some(pdu) = queue.pdu_within(&mut bench, 100 * MS) {
        let (response, _) = CapsuleResp::read_from_prefix(&pdu).expect("a header");
        assert_ne!((pdu[0], response.cqe.cid.get()), (PduType::CapsuleResp as u8, 500), "its data has not arrived");
    }
    queue.send(&capsule(600, command(opcode::READ, 500, 1), &[]));
    assert_eq!(queue.pdu(&mut bench)[24..32], [0; 8], "nothing was written");
}

#[test]
fn late_data_is_not_used_for_a_smaller_write() {
    a_write_begins_during_late_data(1, 1000);
}

#[test]
fn late_data_is_not_used_for_a_write_of_the_same_size() {
    a_write_begins_during_late_data(32, 0);
}

#[test]
fn an_abort_between_data_and_digest_does_not_reuse_the_transfer() {
    let mut bench = bench(&memory(), 64 << 20);
    let (mut admin, cntlid) = Host::admin(&mut bench, 1, 0);
    let mut queue = Host::with_digests(&mut bench, false, DATA);
    queue.send(&capsule_with(0, connect_cmd(1, 32).encode(), connect_data(1, cntlid).as_bytes(), DATA));
    queue.completion(&mut bench);
    let first = write(&mut queue, &mut bench, 1, 0, 1);
    let late = data(&first, 0xee, DATA);
    let (before, digest) = late.split_at(late.len() - 4);
    queue.send(before);
    bench.run(MS);
    abort(&mut admin, &mut bench, 1);
    queue.response(&mut bench);
    queue.send(digest);
    let requests = [(2, 10), (3, 20)].map(|(cid, lba)| write(&mut queue, &mut bench, cid, lba, 1));
    assert_ne!(requests[0].ttag.get(), requests[1].ttag.get());
    for (request, cid) in requests.iter().zip([2, 3]) {
        queue.send(&data(request, 0xbb, DATA));
        assert_eq!(queue.completion(&mut bench).cid.get(), cid);
    }
}
