//! Loans and writes without a buffer. Cases pass trivially for backends without them.

use super::super::{IoError, Op};
use super::{Driver, Subject, ok};

/// Blocks of a test's namespace: the most that one command writes.
const BLOCKS: u64 = 32;

fn filled(byte: u8, blocks: u64, block_size: u32) -> Vec<u8> {
    vec![byte; blocks as usize * block_size as usize]
}

/// Whether a request is busy.
fn is_busy(driver: &mut Driver, op: Op, lba: u64, blocks: u32, data: Option<&[u8]>) -> bool {
    let request = driver.request(op, lba, blocks, data);
    match driver.try_submit(request) {
        Ok(_) => false,
        Err(busy) => {
            driver.discard(busy);
            true
        }
    }
}

pub(super) fn exclude_writers(subject: &Subject<'_>, block_size: u32) {
    let backend = (subject.create)(block_size, BLOCKS);
    let (mut driver, mut other) = (Driver::open(&*backend, 8), Driver::open(&*backend, 8));
    let (old, new) = (filled(7, BLOCKS, block_size), filled(9, BLOCKS, block_size));
    ok(driver.write(0, &old));
    let Some(loan) = driver.lend(3, 20) else { return };
    let again = other.lend(14, 12).expect("readers share");
    for driver in [&mut driver, &mut other] {
        for (lba, blocks) in [(3, 1), (0, 4), (25, 5), (0, BLOCKS)] {
            let data = &new[..blocks as usize * block_size as usize];
            assert!(driver.write_now(lba, data).is_none(), "{blocks} blocks at {lba} are on loan");
            let write = Op::Write { fua: false };
            assert!(is_busy(driver, write, lba, blocks as u32, Some(data)), "{blocks} blocks at {lba} are on loan");
        }
        for op in [Op::Deallocate, Op::WriteZeroes { fua: false, deallocate: false }] {
            assert!(is_busy(driver, op, 5, 2, None), "{op:?} of blocks on loan");
        }
    }
    assert!(loan.bytes() == filled(7, 20, block_size) && again.bytes() == filled(7, 12, block_size));
    driver.end_loan(loan);
    other.end_loan(again);
    assert!(ok(driver.read(0, BLOCKS as u32)) == old, "busy requests had no effect");
    ok(driver.write(0, &new));
    assert!(ok(other.read(0, BLOCKS as u32)) == new, "writes succeed after the loans");
}

pub(super) fn equal_reads(subject: &Subject<'_>, block_size: u32) {
    let page = 4096 / u64::from(block_size);
    let end = 8 * page;
    let backend = (subject.create)(block_size, end);
    let mut driver = Driver::open(&*backend, 8);
    // Blocks with data, never written, and deallocated.
    for (lba, byte) in [(0, 1), (3 * page, 3), (4 * page, 4), (5 * page, 5)] {
        ok(driver.write(lba, &filled(byte, page.div_ceil(2), block_size)));
    }
    ok(driver.run(Op::Deallocate, 4 * page, page as u32, None));
    for lba in 0..end {
        for blocks in [1, page, 3 * page, end - lba].map(|blocks| blocks.min(end - lba)) {
            let Some(loan) = driver.lend(lba, blocks as u32) else { continue };
            let lent = loan.bytes().to_vec();
            driver.end_loan(loan);
            assert!(lent == ok(driver.read(lba, blocks as u32)), "{blocks} blocks at {lba}");
        }
    }
    for (lba, blocks) in [(end - 1, 2), (end, 1), (u64::MAX, 1), (u64::MAX / 4096, 9)] {
        assert!(driver.lend(lba, blocks).is_none(), "block {lba} is beyond the end");
        let data = filled(1, u64::from(blocks), block_size);
        assert!(matches!(driver.write_now(lba, &data), None | Some(Err(IoError::OutOfRange))), "block {lba}");
    }
}
