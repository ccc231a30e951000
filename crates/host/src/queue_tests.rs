//! The queue pair with PDUs of a correct and of a faulty target.

use std::io::IoSlice;

use pilotlight_nvme::command::opcode::io;
use pilotlight_nvme::pdu::{C2HData, CapsuleResp, FatalError, Flags, R2T};
use zerocopy::little_endian::U16;

use super::*;
use crate::transmit::MAX_SLICES;

const NONE: Digests = Digests { header: false, data: false };

fn terms() -> Terms {
    Terms { digests: NONE, hpda: 0, cpda: 0, max_r2t: 2, max_h2c_data: 4096, in_capsule: 512, success_flag: true }
}

fn queue(terms: Terms) -> Queue {
    Queue::new(terms, 4, 8192, Buffers::PerCommand)
}

/// Everything that waits to be sent.
fn sent(queue: &mut Queue) -> Vec<u8> {
    let mut out = [IoSlice::new(&[]); MAX_SLICES];
    let n = queue.transmit.slices(&queue.arena, &mut out);
    let bytes: Vec<u8> = out[..n].iter().flat_map(|s| s.iter().copied()).collect();
    queue.transmit.consume(bytes.len());
    assert!(queue.transmit.is_empty());
    bytes
}

fn issue(queue: &mut Queue, sqe: Sqe, transfer: Transfer) -> u16 {
    let cid = queue.reserve().expect("a slot");
    queue.issue(cid, sqe, transfer);
    cid
}

fn receive(queue: &mut Queue, bytes: &[u8]) -> Result<Vec<(Completed, Vec<u8>)>, HostError> {
    let mut done = Vec::new();
    queue.receive(bytes, |c, data| done.push((c, data.to_vec())))?;
    Ok(done)
}

fn c2h(cid: u16, offset: u32, data: &[u8], flags: Flags) -> Vec<u8> {
    let header = C2HData::new(cid, offset, data.len() as u32, 24, flags, NONE);
    [header.as_bytes(), data].concat()
}

fn response(cid: u16, status: Status) -> Vec<u8> {
    CapsuleResp::new(Cqe::new(cid, status, 0), NONE).as_bytes().to_vec()
}

fn r2t(cid: u16, ttag: u16, offset: u32, len: u32) -> Vec<u8> {
    R2T::new(cid, ttag, offset, len, NONE).as_bytes().to_vec()
}

const END: Flags = Flags::LAST_PDU.union(Flags::SUCCESS);

#[test]
fn a_read_capsule_byte_by_byte() {
    let mut q = queue(terms());
    issue(&mut q, Sqe::block_io(io::READ, 1, 0x0001_0203_0405, 8), Transfer::In(4096));
    #[rustfmt::skip]
    let expected = [
        0x04, 0, 72, 0, 72, 0, 0, 0,                        // CapsuleCmd, no data
        0x02, 0x40, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // Read, SGL, cid 0, nsid 1
        0, 0, 0, 0, 0, 0, 0, 0,                             // metadata pointer
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x5a, // transport SGL, 4,096 bytes
        5, 4, 3, 2, 1, 0, 0, 0, 7, 0, 0, 0,                 // first block, number of blocks less one
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(sent(&mut q), expected);
}

#[test]
fn a_write_in_the_capsule_with_digests_and_padding() {
    let mut q = queue(Terms { digests: Digests { header: true, data: true }, cpda: 3, ..terms() });
    let cid = q.reserve().expect("a slot");
    q.buffer_mut(cid)[..9].copy_from_slice(b"123456789");
    q.issue(cid, Sqe::new(io::WRITE, 1), Transfer::Out(9));
    let pdu = sent(&mut q);
    // data at the next multiple of 16 behind 76
    assert_eq!(pdu[..8], [0x04, 0x03, 72, 80, 93, 0, 0, 0]);
    assert_eq!(pdu[40..48], [9, 0, 0, 0, 0, 0, 0, 0x01]); // length, in-capsule SGL
    assert_eq!(pdu[72..76], digest(&pdu[..72]));
    assert_eq!(&pdu[76..89], b"\0\0\0\x00123456789");
    assert_eq!(pdu[89..], [0x83, 0x92, 0x06, 0xe3]); // CRC32C's check value
}

#[test]
fn data_arrives_in_pieces_and_is_kept() {
    let mut q = queue(terms());
    let a = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(6));
    let b = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(3));
    assert_eq!(q.in_flight(), 2);
    assert!(receive(&mut q, &c2h(a, 0, &[1, 2], Flags::empty())).unwrap().is_empty());
    let done =
        receive(&mut q, &[c2h(b, 0, &[7, 8, 9], Flags::LAST_PDU), c2h(a, 2, &[3, 4, 5, 6], END)].concat()).unwrap();
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].0.cid, done[0].1.as_slice(), done[0].0.sqhd), (a, &[1, 2, 3, 4, 5, 6][..], None));
    let done = receive(&mut q, &response(b, Status::SUCCESS)).unwrap();
    assert_eq!((done[0].0.cid, done[0].1.as_slice(), done[0].0.sqhd), (b, &[7, 8, 9][..], Some(0)));
    assert_eq!(q.in_flight(), 0);
}

#[test]
fn r2ts_are_served_in_pieces_of_max_h2c_data() {
    let mut q = queue(terms());
    let cid = q.reserve().expect("a slot");
    q.buffer_mut(cid).iter_mut().enumerate().for_each(|(i, b)| *b = (i / 256) as u8);
    q.issue(cid, Sqe::new(io::WRITE, 1), Transfer::Out(8192));
    assert_eq!(sent(&mut q).len(), 72, "too much for the capsule");
    assert!(receive(&mut q, &[r2t(cid, 9, 3072, 5120), r2t(cid, 8, 0, 3072)].concat()).unwrap().is_empty());
    let bytes = sent(&mut q);
    let (first, rest) = bytes.split_at(24 + 4096);
    let (second, third) = rest.split_at(24 + 1024);
    #[rustfmt::skip]
    assert_eq!(first[..24], [
        0x06, 0, 24, 24, 0x18, 0x10, 0, 0, 0, 0, 9, 0, 0x00, 0x0c, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
    ]);
    assert_eq!((second[1], second[10], third[1], third[10]), (4, 9, 4, 8), "LAST_PDU and tag of each R2T's end");
    assert!(first[24..].iter().enumerate().all(|(i, &b)| usize::from(b) == (3072 + i) / 256));
    let done = receive(&mut q, &response(cid, Status::SUCCESS)).unwrap();
    assert!(done[0].0.status.is_success() && done[0].1.is_empty());
}

#[test]
fn slots_are_exhausted_and_reused() {
    let mut q = queue(terms());
    let cids: Vec<u16> = (0..4).map(|_| issue(&mut q, Sqe::new(io::FLUSH, 1), Transfer::None)).collect();
    assert_eq!((cids.as_slice(), q.reserve()), (&[0, 1, 2, 3][..], None));
    receive(&mut q, &response(2, Status::SUCCESS)).unwrap();
    assert_eq!(q.reserve(), Some(2));
    q.release(2);
    assert_eq!(q.reserve(), Some(2));
}

#[test]
fn data_read_into_a_shared_buffer_is_dropped() {
    let mut q = Queue::new(terms(), 2, 64, Buffers::Shared);
    let cid = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(5));
    let done = receive(&mut q, &c2h(cid, 0, &[1, 2, 3, 4, 5], END)).unwrap();
    assert!(done[0].1.is_empty());
    assert!(q.buffer_mut(0).iter().all(|&b| b == 0));
}

#[test]
fn a_bad_data_digest_marks_the_completion() {
    let digests = Digests { header: false, data: true };
    let mut q = queue(Terms { digests, ..terms() });
    let cid = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(3));
    let header = C2HData::new(cid, 0, 3, 24, END, digests);
    let done = receive(&mut q, &[header.as_bytes(), &[1, 2, 3], &[0; 4]].concat()).unwrap();
    assert!(done[0].0.digest_error);
    let cid = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(3));
    let done = receive(&mut q, &[header.as_bytes(), &[1, 2, 3], &digest(&[1, 2, 3])].concat()).unwrap();
    assert!(!done[0].0.digest_error && done[0].0.cid == cid);
}

#[test]
fn violations_are_detected() {
    type Answer = fn(u16) -> Vec<u8>;
    let reads: [(&str, Answer); 9] = [
        ("a response to a command that is not in flight", |_| response(3, Status::SUCCESS)),
        ("an identifier beyond the queue", |_| response(999, Status::SUCCESS)),
        ("data out of order", |cid| c2h(cid, 1, &[1], Flags::empty())),
        ("too much data", |cid| c2h(cid, 0, &[0; 9], Flags::empty())),
        ("last too early", |cid| c2h(cid, 0, &[0; 4], Flags::LAST_PDU)),
        ("success without last", |cid| c2h(cid, 0, &[0; 8], Flags::SUCCESS)),
        ("success before the data", |cid| response(cid, Status::SUCCESS)),
        ("an R2T for a read", |cid| r2t(cid, 1, 0, 8)),
        ("two ends", |cid| [c2h(cid, 0, &[0; 8], END), response(cid, Status::SUCCESS)].concat()),
    ];
    for (what, answer) in reads {
        let mut q = queue(terms());
        let cid = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(8));
        assert!(matches!(receive(&mut q, &answer(cid)), Err(HostError::Violation(_))), "{what}");
    }
    let writes: [(&str, Answer); 6] = [
        ("data for a write", |cid| c2h(cid, 0, &[1], Flags::empty())),
        ("an R2T beyond the data", |cid| r2t(cid, 1, 4096, 4097)),
        ("an R2T that overflows", |cid| r2t(cid, 1, 4096, u32::MAX)),
        ("an empty R2T", |cid| r2t(cid, 1, 0, 0)),
        ("R2Ts for more than the data", |cid| [r2t(cid, 1, 0, 8192), r2t(cid, 2, 0, 1)].concat()),
        ("an R2T without a command", |_| r2t(3, 1, 0, 1)),
    ];
    for (what, answer) in writes {
        let mut q = queue(terms());
        let cid = issue(&mut q, Sqe::new(io::WRITE, 1), Transfer::Out(8192));
        assert!(matches!(receive(&mut q, &answer(cid)), Err(HostError::Violation(_))), "{what}");
    }
    let mut q = queue(Terms { success_flag: false, ..terms() });
    let cid = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(8));
    assert!(receive(&mut q, &c2h(cid, 0, &[0; 8], END)).is_err(), "SUCCESS although SQ flow control is on");
}

#[test]
fn more_outstanding_r2ts_than_maxr2t_are_a_violation() {
    let mut q = queue(terms());
    q.set_r2t_order(R2tOrder::Shuffled { seed: 1, piece: 100 });
    let cid = issue(&mut q, Sqe::new(io::WRITE, 1), Transfer::Out(8192));
    let two = [r2t(cid, 1, 0, 1000), r2t(cid, 2, 1000, 1000)].concat();
    assert!(receive(&mut q, &two).is_ok());
    let error = receive(&mut q, &r2t(cid, 3, 2000, 1000)).expect_err("the third");
    assert!(matches!(error, HostError::Violation(v) if v.fes == FatalError::LimitExceeded));
}

#[test]
fn a_failed_read_needs_no_data_and_a_termination_has_its_reason() {
    let mut q = queue(terms());
    let cid = issue(&mut q, Sqe::new(io::READ, 1), Transfer::In(8));
    let done = receive(&mut q, &response(cid, Status::LBA_OUT_OF_RANGE)).unwrap();
    assert_eq!(done[0].0.status, Status::LBA_OUT_OF_RANGE);
    let mut term = vec![3, 0, 24, 0, 24, 0, 0, 0, 2, 0, 4, 0, 0, 0];
    term.resize(24, 0);
    assert!(matches!(receive(&mut q, &term), Err(HostError::Terminated { fes: 2, fei: 4 })));
}

#[test]
fn sqhd_is_reported() {
    let mut q = queue(terms());
    let cid = issue(&mut q, Sqe::new(io::FLUSH, 1), Transfer::None);
    let mut cqe = Cqe::new(cid, Status::SUCCESS, 77);
    cqe.sqhd = U16::new(5);
    let done = receive(&mut q, CapsuleResp::new(cqe, NONE).as_bytes()).unwrap();
    assert_eq!((done[0].0.sqhd, done[0].0.result), (Some(5), 77));
}
