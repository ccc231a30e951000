//! One test for each command: decodes `*.hex`, compares every field, and encodes the same bytes with the constructors.

use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::{DsmRange, Sgl, cdw12, dsm, opcode};
use pilotlight_nvme::fabrics::{self, ConnectCmd, ConnectData, PropertyCmd, cc, fctype, property};
use pilotlight_nvme::pdu::{CapsuleCmd, Digests, PduType, data_offset};
use zerocopy::IntoBytes;

use crate::parts::{join, split};
use crate::vectors::vector;
use crate::{BOTH_DIGESTS, DATA_DIGEST, HEADER_DIGEST, NO_DIGESTS, assert_head, decode};

const HOST_ID: [u8; 16] =
    [0xf8, 0x1d, 0x4f, 0xae, 0x7d, 0xec, 0x11, 0xd0, 0xa7, 0x65, 0x00, 0xa0, 0xc9, 0x1e, 0x6b, 0xf6];
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
const SUBSYSTEM_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2";

/// Expected fields of a command.
struct Expected {
    opcode: u8,
    cid: u16,
    nsid: u32,
    sgl: (u8, u32),
    cdw: [u32; 6],
}

/// Decodes the capsule in `name` and compares each field; returns command and data.
fn assert_capsule(name: &str, flags: u8, pdo: u8, expected: &Expected) -> (Sqe, Vec<u8>) {
    let bytes = vector(name);
    let pdu: CapsuleCmd = decode(&bytes);
    assert_head(pdu.ch, 0x04, flags, 72, pdo, bytes.len() as u32);
    let sqe = pdu.sqe;
    assert_eq!((sqe.opcode, sqe.fuse(), sqe.psdt(), sqe.cid.get()), (expected.opcode, 0, 1, expected.cid));
    assert_eq!((sqe.nsid.get(), sqe.cdw2.get(), sqe.cdw3.get(), sqe.mptr.get()), (expected.nsid, 0, 0, 0));
    assert_eq!((sqe.sgl.identifier, sqe.sgl.length.get()), expected.sgl);
    assert_eq!((sqe.sgl.address.get(), sqe.sgl.reserved), (0, [0; 3]));
    let cdw = [sqe.cdw10(), sqe.cdw11(), sqe.cdw12(), sqe.cdw13(), sqe.cdw14(), sqe.cdw15()];
    assert_eq!(cdw, expected.cdw);
    (sqe, split(&bytes).expect("framed").0.data.to_vec())
}

/// Asserts that `sqe`, with `cid`, `sgl` and `data`, encodes to the capsule in `name`.
fn assert_encodes(name: &str, mut sqe: Sqe, cid: u16, sgl: Sgl, data: &[u8], digests: Digests) {
    (sqe.cid, sqe.sgl) = (cid.into(), sgl);
    let pdo = data_offset(PduType::CapsuleCmd, digests, 0);
    let header = CapsuleCmd::new(sqe, data.len() as u32, pdo, digests);
    assert_eq!(join(header.as_bytes(), pdo.into(), data, digests), vector(name), "{name}");
}

/// Decodes and encodes a command without in-capsule data.
fn assert_command(name: &str, expected: &Expected, built: Sqe) {
    assert_capsule(name, 0, 0, expected);
    assert_encodes(name, built, expected.cid, Sgl::transport(expected.sgl.1), &[], NO_DIGESTS);
}

#[test]
fn connect_of_the_admin_queue() {
    let name = "connect-admin";
    let cdw = [0, 31, 5000, 0, 0, 0];
    let (sqe, data) = assert_capsule(name, 0, 72, &Expected { opcode: 0x7f, cid: 0, nsid: 1, sgl: (0x01, 1024), cdw });
    assert_eq!(sqe.fctype(), fctype::CONNECT);
    let command = ConnectCmd { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 5000 };
    assert_eq!(ConnectCmd::decode(&sqe), command);
    let decoded: ConnectData = decode(&data);
    assert_eq!((decoded.hostid, decoded.cntlid.get()), (HOST_ID, fabrics::CNTLID_DYNAMIC));
    assert_eq!((decoded.reserved0, decoded.reserved1), ([0; 238], [0; 256]));
    assert_eq!(fabrics::nqn_from_field(&decoded.subnqn), Some(fabrics::DISCOVERY_NQN));
    assert_eq!(fabrics::nqn_from_field(&decoded.hostnqn), Some(HOST_NQN));
    let built = ConnectData::new(HOST_ID, 0xffff, fabrics::DISCOVERY_NQN, HOST_NQN);
    assert_encodes(name, command.encode(), 0, command.encode().sgl, built.as_bytes(), NO_DIGESTS);
}

#[test]
fn connect_of_an_io_queue_with_digests() {
    let name = "connect-io-digests";
    let cdw = [0x0002_0000, 0x0004_03ff, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x7f, cid: 12, nsid: 1, sgl: (0x01, 1024), cdw };
    let (sqe, data) = assert_capsule(name, 3, 76, &expected);
    let command = ConnectCmd { recfmt: 0, qid: 2, sqsize: 1023, cattr: ConnectCmd::DISABLE_SQ_FLOW, kato_ms: 0 };
    assert_eq!(ConnectCmd::decode(&sqe), command);
    let decoded: ConnectData = decode(&data);
    assert_eq!(decoded.cntlid.get(), 5);
    assert_eq!(fabrics::nqn_from_field(&decoded.subnqn), Some(SUBSYSTEM_NQN));
    assert_eq!(fabrics::nqn_from_field(&decoded.hostnqn), Some(HOST_NQN));
    let built = ConnectData::new(HOST_ID, 5, SUBSYSTEM_NQN, HOST_NQN);
    assert_encodes(name, command.encode(), 12, command.encode().sgl, built.as_bytes(), BOTH_DIGESTS);
}

#[test]
fn property_get() {
    let cdw = [1, 0, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x7f, cid: 1, nsid: 4, sgl: (0x5a, 0), cdw };
    let (sqe, _) = assert_capsule("property-get", 0, 0, &expected);
    assert_eq!(sqe.fctype(), fctype::PROPERTY_GET);
    let decoded = PropertyCmd::decode(&sqe);
    assert_eq!((decoded.wide, decoded.offset), (Some(true), property::CAP));
    assert_command("property-get", &expected, PropertyCmd::get(property::CAP, true));
}

#[test]
fn property_set() {
    let cdw = [0, 0x14, 0x0046_0001, 0, 0, 0];
    let expected = Expected { opcode: 0x7f, cid: 3, nsid: 0, sgl: (0x5a, 0), cdw };
    let (sqe, _) = assert_capsule("property-set", 0, 0, &expected);
    assert_eq!(sqe.fctype(), fctype::PROPERTY_SET);
    let value = cc::EN | cc::IOSQES_IOCQES;
    let decoded = PropertyCmd { wide: Some(false), offset: property::CC, value: value.into() };
    assert_eq!(PropertyCmd::decode(&sqe), decoded);
    assert_eq!((cc::shn(value), cc::shn(value | 1 << 14), cc::shn(value | 2 << 14)), (0, 1, 2));
    assert_command("property-set", &expected, PropertyCmd::set(property::CC, value));
}

#[test]
fn disconnect() {
    let expected = Expected { opcode: 0x7f, cid: 0x7fff, nsid: 8, sgl: (0x5a, 0), cdw: [0; 6] };
    assert_command("disconnect", &expected, Sqe::new(opcode::FABRICS, fctype::DISCONNECT.into()));
}

#[test]
fn identify() {
    let cdw = [3, 0, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x06, cid: 0x1008, nsid: 2, sgl: (0x5a, 4096), cdw };
    assert_command("identify", &expected, Sqe::new(opcode::admin::IDENTIFY, 2).with_cdw(10, 3));
}

#[test]
fn get_log_page() {
    let cdw = [0x00ff_8070, 0, 1024, 0, 0, 0];
    let expected = Expected { opcode: 0x02, cid: 0x1009, nsid: 0, sgl: (0x5a, 1024), cdw };
    let built = Sqe::new(opcode::admin::GET_LOG_PAGE, 0).with_cdw(10, 0x70 | 1 << 15 | 255 << 16).with_cdw(12, 1024);
    assert_command("get-log-page", &expected, built);
}

#[test]
fn set_features() {
    let cdw = [7, 0x0007_0003, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x09, cid: 0x102a, nsid: 0, sgl: (0x5a, 0), cdw };
    let built = Sqe::new(opcode::admin::SET_FEATURES, 0).with_cdw(10, 7).with_cdw(11, 3 | 7 << 16);
    assert_command("set-features", &expected, built);
}

#[test]
fn get_features() {
    let cdw = [0x10f, 0, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x0a, cid: 0x102b, nsid: 0, sgl: (0x5a, 0), cdw };
    assert_command("get-features", &expected, Sqe::new(opcode::admin::GET_FEATURES, 0).with_cdw(10, 0x0f | 1 << 8));
}

#[test]
fn abort() {
    let cdw = [0x1234_0002, 0, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x08, cid: 0x100a, nsid: 0, sgl: (0x5a, 0), cdw };
    assert_command("abort", &expected, Sqe::new(opcode::admin::ABORT, 0).with_cdw(10, 2 | 0x1234 << 16));
}

#[test]
fn async_event_request() {
    let expected = Expected { opcode: 0x0c, cid: 0x1f, nsid: 0, sgl: (0x5a, 0), cdw: [0; 6] };
    assert_command("async-event-request", &expected, Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST, 0));
}

#[test]
fn keep_alive() {
    let expected = Expected { opcode: 0x18, cid: 0x100b, nsid: 0, sgl: (0x5a, 0), cdw: [0; 6] };
    assert_command("keep-alive", &expected, Sqe::new(opcode::admin::KEEP_ALIVE, 0));
}

#[test]
fn read() {
    let cdw = [0x0203_0405, 0x0000_0001, 7, 0, 0, 0];
    let expected = Expected { opcode: 0x02, cid: 0x1234, nsid: 1, sgl: (0x5a, 4096), cdw };
    let (sqe, _) = assert_capsule("read", 0, 0, &expected);
    assert_eq!(sqe.slba(), 0x0000_0001_0203_0405);
    assert_command("read", &expected, Sqe::block_io(opcode::io::READ, 1, 0x0000_0001_0203_0405, 8));
}

#[test]
fn write_in_the_capsule() {
    let name = "write-in-capsule";
    let cdw = [42, 0, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x01, cid: 0x1239, nsid: 1, sgl: (0x01, 512), cdw };
    let (sqe, data) = assert_capsule(name, 2, 72, &expected);
    assert_eq!((sqe.slba(), data.as_slice()), (42, b"pilotlight wire!".repeat(32).as_slice()));
    let built = Sqe::block_io(opcode::io::WRITE, 1, 42, 1);
    assert_encodes(name, built, 0x1239, Sgl::in_capsule(512), &data, DATA_DIGEST);
}

#[test]
fn write_with_fua() {
    let cdw = [0, 0x80, 0x4000_0017, 0, 0, 0];
    let expected = Expected { opcode: 0x01, cid: 0x1234, nsid: 1, sgl: (0x5a, 12_288), cdw };
    let (sqe, _) = assert_capsule("write-fua", 0, 0, &expected);
    assert_eq!((sqe.slba(), sqe.cdw12() & !0xffff), (0x80_0000_0000, cdw12::FUA));
    let built = Sqe::block_io(opcode::io::WRITE, 1, 0x80_0000_0000, 24).with_cdw(12, cdw12::FUA | 23);
    assert_command("write-fua", &expected, built);
}

#[test]
fn compare() {
    let cdw = [0xdead_beef, 0, 0x8000_0007, 0, 0, 0];
    let expected = Expected { opcode: 0x05, cid: 0x1235, nsid: 1, sgl: (0x5a, 4096), cdw };
    let built = Sqe::block_io(opcode::io::COMPARE, 1, 0xdead_beef, 8).with_cdw(12, cdw12::LR | 7);
    assert_command("compare", &expected, built);
}

#[test]
fn write_zeroes() {
    let cdw = [16, 0, 0x0200_ffff, 0, 0, 0];
    let expected = Expected { opcode: 0x08, cid: 0x1236, nsid: 3, sgl: (0x5a, 0), cdw };
    let built = Sqe::block_io(opcode::io::WRITE_ZEROES, 3, 16, 65_536);
    assert_eq!(built.cdw12(), 0xffff);
    assert_command("write-zeroes", &expected, built.with_cdw(12, cdw12::DEAC | 0xffff));
}

#[test]
fn verify() {
    let cdw = [256, 0, 255, 0, 0, 0];
    let expected = Expected { opcode: 0x0c, cid: 0x1237, nsid: 1, sgl: (0x5a, 0), cdw };
    assert_command("verify", &expected, Sqe::block_io(opcode::io::VERIFY, 1, 256, 256));
}

#[test]
fn flush_with_header_digest() {
    let name = "flush-hdgst";
    let expected = Expected { opcode: 0x00, cid: 0x1238, nsid: 1, sgl: (0x5a, 0), cdw: [0; 6] };
    assert_capsule(name, 1, 0, &expected);
    // without data, data digests have no effect
    for digests in [HEADER_DIGEST, BOTH_DIGESTS] {
        assert_encodes(name, Sqe::new(opcode::io::FLUSH, 1), 0x1238, Sgl::transport(0), &[], digests);
    }
}

#[test]
fn dataset_management() {
    let name = "dataset-management";
    let cdw = [0, 4, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x09, cid: 0x123a, nsid: 1, sgl: (0x01, 16), cdw };
    let (sqe, data) = assert_capsule(name, 0, 72, &expected);
    assert_eq!((dsm::ranges(sqe.cdw10()), sqe.cdw11()), (1, dsm::AD));
    assert_eq!((dsm::ranges(0xff), dsm::IDW, dsm::IDR), (256, 2, 1));
    let range: DsmRange = decode(&data);
    assert_eq!((range.attributes.get(), range.blocks.get(), range.slba.get()), (0, 2048, 0x0a_0b0c_0d0e));
    let built = DsmRange { blocks: 2048.into(), slba: 0x0a_0b0c_0d0e.into(), ..DsmRange::default() };
    let sqe = Sqe::new(opcode::io::DATASET_MANAGEMENT, 1).with_cdw(11, dsm::AD);
    assert_encodes(name, sqe, 0x123a, Sgl::in_capsule(16), built.as_bytes(), NO_DIGESTS);
}

/// Data may be longer than the number of ranges (NR) needs.
#[test]
fn dataset_management_as_linux_sends_it() {
    let name = "dataset-management-long";
    let cdw = [0, 4, 0, 0, 0, 0];
    let expected = Expected { opcode: 0x09, cid: 0x123a, nsid: 1, sgl: (0x01, 4096), cdw };
    let (sqe, data) = assert_capsule(name, 0, 72, &expected);
    assert_eq!((dsm::ranges(sqe.cdw10()), data.len()), (1, 4096));
    let range: DsmRange = decode(&data);
    assert_eq!((range.attributes.get(), range.blocks.get(), range.slba.get()), (0, 2048, 0x0a_0b0c_0d0e));
    let sqe = Sqe::new(opcode::io::DATASET_MANAGEMENT, 1).with_cdw(11, dsm::AD);
    assert_encodes(name, sqe, 0x123a, Sgl::in_capsule(4096), &data, NO_DIGESTS);
}
