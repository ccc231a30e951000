//! Single-threaded cases.

use std::sync::Arc;

use super::super::{Backend, IoError, Op, Random};
use super::driver::TIMEOUT;
use super::{Driver, Subject, ok};
use crate::buffer::MAX_BUFFER;

/// Blocks of a test's namespace: a little over 4 MiB, so that the end is within a page at 512 bytes.
fn blocks_for(block_size: u32) -> u64 {
    (4 << 20) / u64::from(block_size) + 3
}

fn fresh_driver(subject: &Subject<'_>, block_size: u32) -> (Arc<dyn Backend>, Driver) {
    let backend = (subject.create)(block_size, blocks_for(block_size));
    let geometry = backend.geometry();
    assert_eq!((geometry.block_size, geometry.blocks), (block_size, blocks_for(block_size)));
    let driver = Driver::open(&*backend, 64);
    (backend, driver)
}

/// Bytes that differ in every block and for every seed.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

/// The expected result of a read after `data` was written.
fn stored(subject: &Subject<'_>, data: &[u8]) -> Vec<u8> {
    if subject.stores { data.to_vec() } else { vec![0; data.len()] }
}

pub(super) fn fresh(subject: &Subject<'_>, block_size: u32) {
    let (backend, mut driver) = fresh_driver(subject, block_size);
    let whole = (MAX_BUFFER / block_size as usize) as u32;
    let mut lba = 0;
    while lba < backend.geometry().blocks {
        let blocks = (backend.geometry().blocks - lba).min(u64::from(whole)) as u32;
        let data = ok(driver.read(lba, blocks));
        assert!(data.iter().all(|&byte| byte == 0), "block {lba} and on: not zero");
        lba += u64::from(blocks);
    }
}

pub(super) fn round_trips(subject: &Subject<'_>, block_size: u32) {
    let (backend, mut driver) = fresh_driver(subject, block_size);
    let end = backend.geometry().blocks;
    let most = (MAX_BUFFER / block_size as usize) as u64;
    for blocks in [1, 2, 3, 7, 8, 9, most - 1, most] {
        for lba in [0, 1, 5, 7, 8, 9, 63, 64, end / 2, end - blocks] {
            let data = pattern(lba << 16 | blocks, (blocks * u64::from(block_size)) as usize);
            ok(driver.write(lba, &data));
            assert_eq!(ok(driver.read(lba, blocks as u32)), stored(subject, &data), "{blocks} blocks at {lba}");
        }
    }
}

pub(super) fn edges(subject: &Subject<'_>, block_size: u32) {
    let (_backend, mut driver) = fresh_driver(subject, block_size);
    let size = block_size as usize;
    let around = pattern(1, 20 * size);
    for (start, blocks) in [(3, 1), (1, 9), (7, 2), (8, 8), (4, 12)] {
        ok(driver.write(0, &around));
        let inner = pattern(2, blocks * size);
        ok(driver.write(start as u64, &inner));
        let mut expected = around.clone();
        expected[start * size..(start + blocks) * size].copy_from_slice(&inner);
        assert_eq!(ok(driver.read(0, 20)), stored(subject, &expected), "{blocks} blocks at {start}");
        for lba in 0..20 {
            let one = &expected[lba * size..(lba + 1) * size];
            assert_eq!(ok(driver.read(lba as u64, 1)), stored(subject, one), "block {lba}");
        }
    }
}

pub(super) fn zeroes(subject: &Subject<'_>, block_size: u32) {
    let (backend, mut driver) = fresh_driver(subject, block_size);
    let size = block_size as usize;
    let reads_zero = backend.geometry().deallocated_reads_zero;
    let ops = [
        Op::WriteZeroes { fua: false, deallocate: false },
        Op::WriteZeroes { fua: true, deallocate: false },
        Op::WriteZeroes { fua: false, deallocate: true },
        Op::WriteZeroes { fua: true, deallocate: true },
        Op::Deallocate,
        Op::Clear,
    ];
    for op in ops.into_iter().filter(|&op| op != Op::Clear || reads_zero) {
        for (start, blocks) in [(0_usize, 32_usize), (3, 1), (1, 9), (7, 2), (8, 8), (5, 21)] {
            let data = pattern(3, 32 * size);
            ok(driver.write(0, &data));
            ok(driver.run(op, start as u64, blocks as u32, None));
            let mut expected = data;
            expected[start * size..(start + blocks) * size].fill(0);
            let mut got = ok(driver.read(0, 32));
            if op == Op::Deallocate && !reads_zero {
                got[start * size..(start + blocks) * size].fill(0);
            }
            assert!(got == stored(subject, &expected), "{op:?}, {blocks} blocks at {start}: wrong content");
        }
    }
}

pub(super) fn large_zeroes(subject: &Subject<'_>, block_size: u32) {
    let (backend, mut driver) = fresh_driver(subject, block_size);
    let geometry = backend.geometry();
    let whole = (MAX_BUFFER / block_size as usize) as u64;
    for op in [Op::Deallocate, Op::WriteZeroes { fua: false, deallocate: false }] {
        let data = pattern(4, MAX_BUFFER);
        for lba in (0..geometry.blocks - whole).step_by(whole as usize) {
            ok(driver.write(lba, &data));
        }
        let full = backend.allocated_bytes().expect("a number");
        ok(driver.run(op, 1, (geometry.blocks - 2) as u32, None));
        let left = backend.allocated_bytes().expect("a number");
        if op == Op::Deallocate && geometry.deallocated_reads_zero && subject.counts_space {
            assert!(left <= full / 4, "deallocation frees space: {full} bytes before, {left} after");
        }
        if op == Op::Deallocate && !geometry.deallocated_reads_zero {
            continue;
        }
        assert_eq!(ok(driver.read(0, 1)), stored(subject, &data[..block_size as usize]));
        for lba in (1..geometry.blocks - whole).step_by(whole as usize) {
            assert!(ok(driver.read(lba, whole as u32)).iter().all(|&byte| byte == 0), "block {lba} and on: not zero");
        }
    }
}

pub(super) fn flushes(subject: &Subject<'_>, block_size: u32) {
    let (_backend, mut driver) = fresh_driver(subject, block_size);
    ok(driver.run(Op::Flush, 0, 0, None));
    let data = pattern(5, 2 * block_size as usize);
    ok(driver.run(Op::Write { fua: true }, 6, 2, Some(&data)));
    let pending: Vec<_> = (0..20)
        .map(|lba| match lba % 5 {
            4 => driver.submit(Op::Flush, 0, 0, None),
            n => driver.submit(Op::Write { fua: n == 0 }, 10 + 2 * lba, 2, Some(&data)),
        })
        .collect();
    for tag in pending {
        ok(driver.wait(tag));
    }
    ok(driver.run(Op::Flush, 0, 0, None));
    assert_eq!(ok(driver.read(6, 2)), stored(subject, &data));
}

pub(super) fn out_of_range(subject: &Subject<'_>, block_size: u32) {
    let (backend, mut driver) = fresh_driver(subject, block_size);
    let end = backend.geometry().blocks;
    let data = pattern(6, 2 * block_size as usize);
    let zero_then_data = [&vec![0; data.len()][..], &data].concat();
    for lba in [end - 1, end, end + 100, u64::MAX / u64::from(block_size), u64::MAX - 2, u64::MAX] {
        let compare = Op::CompareAndWrite { fua: false };
        let zeroes = Op::WriteZeroes { fua: false, deallocate: true };
        for op in [Op::Read, Op::Write { fua: false }, compare, Op::Deallocate, zeroes] {
            let bytes = match op {
                Op::Write { .. } => Some(&data[..]),
                Op::CompareAndWrite { .. } => Some(&zero_then_data[..]),
                _ => None,
            };
            assert_eq!(driver.run(op, lba, 2, bytes).unwrap_err(), IoError::OutOfRange, "{op:?} at {lba}");
        }
    }
    assert!(ok(driver.read(end - 1, 1)).iter().all(|&byte| byte == 0), "a refused write has no effect");
}

pub(super) fn exactly_once(subject: &Subject<'_>, block_size: u32) {
    let (backend, _) = fresh_driver(subject, block_size);
    let mut driver = Driver::open(&*backend, 4);
    let data = pattern(7, block_size as usize);
    let mut accepted = Vec::new();
    for lba in 0..50_u64 {
        let request = driver.request(Op::Write { fua: lba % 7 == 0 }, lba, 1, Some(&data));
        match driver.try_submit(request) {
            Ok(tag) => accepted.push((lba, tag)),
            Err(busy) => driver.discard(busy),
        }
        assert!(driver.in_flight() <= 4, "a channel of depth 4 has {} in flight", driver.in_flight());
    }
    assert!(accepted.len() >= 4 || !accepted.is_empty() && driver.in_flight() < 4);
    for &(_, tag) in &accepted {
        ok(driver.wait(tag));
    }
    assert_eq!(driver.in_flight(), 0);
    for (lba, _) in accepted {
        assert_eq!(ok(driver.read(lba, 1)), stored(subject, &data));
    }
}

pub(super) fn bounded_poll(subject: &Subject<'_>, block_size: u32) {
    let (backend, mut driver) = fresh_driver(subject, block_size);
    driver.completions_per_poll(1);
    let blocks = (backend.geometry().blocks / 16) as u32;
    let tags: Vec<_> = (0..48)
        .map(|n| match n % 3 {
            0 => driver.submit(Op::Read, n, 1, None),
            1 => driver.submit(
                Op::WriteZeroes { fua: false, deallocate: true },
                n % 16 * u64::from(blocks),
                blocks,
                None,
            ),
            _ => driver.submit(Op::Flush, 0, 0, None),
        })
        .collect();
    for tag in tags {
        ok(driver.wait(tag));
    }
}

pub(super) fn moves(subject: &Subject<'_>, block_size: u32) {
    let (_backend, mut driver) = fresh_driver(subject, block_size);
    let data = pattern(8, 8 * block_size as usize);
    for round in 0..4 {
        let writes: Vec<_> =
            (0..8).map(|n| driver.submit(Op::Write { fua: false }, round + 8 * n, 8, Some(&data))).collect();
        driver = std::thread::scope(|scope| {
            let other_thread = scope.spawn(move || {
                writes.into_iter().for_each(|tag| drop(ok(driver.wait(tag))));
                driver
            });
            other_thread.join().expect("no panic")
        });
        assert_eq!(ok(driver.read(round + 56, 8)), stored(subject, &data));
    }
}

pub(super) fn random(subject: &Subject<'_>, block_size: u32) {
    let (backend, first) = fresh_driver(subject, block_size);
    let mut drivers = [first, Driver::open(&*backend, 64)];
    let mut model = Model::new(subject, &*backend);
    let mut random = Random::new(subject.seed ^ u64::from(block_size));
    for step in 0..subject.requests {
        let request = model.choose(&mut random);
        let conflicts = model.in_flight.iter().any(|other| request.conflicts(&other.1));
        if conflicts || model.in_flight.len() >= 24 || random.one_in(50) {
            model.settle(&mut drivers);
        }
        let new = || pattern(u64::from(step) << 32, request.blocks as usize * block_size as usize);
        let data = match request.op {
            Op::Write { .. } => Some(new()),
            Op::CompareAndWrite { .. } => Some([model.compared(&request), new()].concat()),
            _ => None,
        };
        let which = random.below(2) as usize;
        let tag = submit_to_one_of(&mut drivers, which, &request, data.as_deref());
        model.started(which, tag, request, data);
    }
    model.settle(&mut drivers);
    model.compare_all(&mut drivers[0]);
}

/// Submits to one channel. While it is busy, polls all: a request in another may hold the blocks.
fn submit_to_one_of(drivers: &mut [Driver], which: usize, planned: &Planned, data: Option<&[u8]>) -> u64 {
    let mut request = drivers[which].request(planned.op, planned.lba, planned.blocks, data);
    let started = std::time::Instant::now();
    loop {
        match drivers[which].try_submit(request) {
            Ok(tag) => return tag,
            Err(busy) => request = busy,
        }
        if started.elapsed() > TIMEOUT {
            drivers[which].discard(request);
            panic!("{planned:?} was busy for {TIMEOUT:?}");
        }
        if drivers.iter_mut().map(Driver::poll).sum::<usize>() == 0 {
            std::thread::yield_now();
        }
    }
}

/// A request of the random case.
#[derive(Clone, Debug)]
struct Planned {
    op: Op,
    lba: u64,
    blocks: u32,
    /// A compare-and-write of other data than the blocks have.
    differs: bool,
}

impl Planned {
    /// Whether the result depends on the order of the two.
    fn conflicts(&self, other: &Self) -> bool {
        let reads = self.op == Op::Read && other.op == Op::Read;
        let apart = self.lba + u64::from(self.blocks) <= other.lba || other.lba + u64::from(other.blocks) <= self.lba;
        !reads && !apart
    }
}

/// In flight: driver and tag; the request; the expected data of a read.
type InFlight = ((usize, u64), Planned, Option<Vec<u8>>);

/// The oracle: the namespace as a vector of bytes.
struct Model {
    image: Vec<u8>,
    block_size: usize,
    stores: bool,
    reads_zero: bool,
    in_flight: Vec<InFlight>,
}

impl Model {
    fn new(subject: &Subject<'_>, backend: &dyn Backend) -> Self {
        let geometry = backend.geometry();
        Self {
            image: vec![0; geometry.blocks as usize * geometry.block_size as usize],
            block_size: geometry.block_size as usize,
            stores: subject.stores,
            reads_zero: geometry.deallocated_reads_zero,
            in_flight: Vec::new(),
        }
    }

    fn choose(&self, random: &mut Random) -> Planned {
        let end = (self.image.len() / self.block_size) as u64;
        let op = match random.below(20) {
            0..7 => Op::Read,
            7 => Op::CompareAndWrite { fua: random.one_in(8) },
            8..16 => Op::Write { fua: random.one_in(8) },
            16 => Op::Flush,
            17 if self.reads_zero => [Op::Deallocate, Op::Clear][random.below(2) as usize],
            _ => Op::WriteZeroes { fua: random.one_in(8), deallocate: random.one_in(2) },
        };
        let most = match op {
            Op::Flush => return Planned { op, lba: 0, blocks: 0, differs: false },
            Op::CompareAndWrite { .. } => MAX_BUFFER / self.block_size / 2,
            Op::Read | Op::Write { .. } => MAX_BUFFER / self.block_size,
            _ if random.one_in(8) => end as usize,
            _ => 3 * MAX_BUFFER / self.block_size,
        };
        // Lengths are spread logarithmically, and requests concentrate at both ends.
        let bits = most.ilog2() + 1;
        let scale = 1 << random.below(u64::from(bits));
        let blocks = (1 + random.below(scale)).min(most as u64).min(end);
        let lba = match random.below(8) {
            0 => 0,
            1 => end - blocks,
            2 => random.below(64.min(end - blocks + 1)),
            _ => random.below(end - blocks + 1),
        };
        let differs = matches!(op, Op::CompareAndWrite { .. }) && random.one_in(3);
        Planned { op, lba, blocks: blocks as u32, differs }
    }

    fn bytes(&self, request: &Planned) -> std::ops::Range<usize> {
        let start = request.lba as usize * self.block_size;
        start..start + request.blocks as usize * self.block_size
    }

    /// The data with which a compare-and-write compares: the blocks', or one byte of it is different, in any place.
    fn compared(&self, request: &Planned) -> Vec<u8> {
        let mut data = self.image[self.bytes(request)].to_vec();
        if request.differs {
            let at = request.lba as usize * 7919 % data.len();
            data[at] ^= 1;
        }
        data
    }

    fn started(&mut self, driver: usize, tag: u64, request: Planned, data: Option<Vec<u8>>) {
        let range = self.bytes(&request);
        let expected = match request.op {
            Op::Read => Some(self.image[range].to_vec()),
            Op::Write { .. } if self.stores => {
                self.image[range].copy_from_slice(&data.expect("a write has data"));
                None
            }
            Op::CompareAndWrite { .. } if self.stores && !request.differs => {
                let data = data.expect("a compare-and-write has data");
                self.image[range].copy_from_slice(&data[data.len() / 2..]);
                None
            }
            Op::Write { .. } | Op::CompareAndWrite { .. } | Op::Flush => None,
            Op::Deallocate | Op::Clear | Op::WriteZeroes { .. } => {
                self.image[range].fill(0);
                None
            }
        };
        self.in_flight.push(((driver, tag), request, expected));
    }

    fn settle(&mut self, drivers: &mut [Driver; 2]) {
        for ((driver, tag), request, expected) in self.in_flight.drain(..) {
            let result = drivers[driver].wait(tag);
            if request.differs {
                assert_eq!(result.unwrap_err(), IoError::Miscompare, "{request:?}");
                continue;
            }
            let got = ok(result);
            if let Some(expected) = expected {
                assert!(got == expected, "{request:?} returned wrong data");
            }
        }
    }

    fn compare_all(&self, driver: &mut Driver) {
        for (n, expected) in self.image.chunks(MAX_BUFFER).enumerate() {
            let lba = (n * MAX_BUFFER / self.block_size) as u64;
            let got = ok(driver.read(lba, (expected.len() / self.block_size) as u32));
            assert!(got == expected, "blocks {lba} and on differ at the end");
        }
    }
}

pub(super) fn resizes(subject: &Subject<'_>, block_size: u32) {
    if !subject.resizes {
        return;
    }
    let (backend, mut driver) = fresh_driver(subject, block_size);
    let before = backend.geometry();
    assert_eq!(backend.resize(None).expect("no change"), before);
    let data = pattern(9, MAX_BUFFER);
    let whole = (MAX_BUFFER / block_size as usize) as u64;
    ok(driver.write(before.blocks - whole, &data));

    let grown = backend.resize(Some(before.blocks + whole)).expect("grows");
    assert_eq!(grown.blocks, before.blocks + whole);
    assert_eq!(ok(driver.read(before.blocks - whole, whole as u32)), stored(subject, &data));
    assert!(ok(driver.read(before.blocks, whole as u32)).iter().all(|&byte| byte == 0), "growth reads as zeroes");
    ok(driver.write(before.blocks, &data));
    assert_eq!(ok(driver.read(before.blocks, whole as u32)), stored(subject, &data));

    // To the middle of a page, where a page has several blocks.
    let small = before.blocks - whole + 3;
    assert_eq!(backend.resize(Some(small)).expect("shrinks").blocks, small);
    assert_eq!(driver.read(small, 1).unwrap_err(), IoError::OutOfRange);
    assert_eq!(driver.write(small - 1, &data[..2 * block_size as usize]).unwrap_err(), IoError::OutOfRange);
    let kept = &data[..3 * block_size as usize];
    assert_eq!(ok(driver.read(small - 3, 3)), stored(subject, kept));

    assert_eq!(backend.resize(Some(before.blocks)).expect("grows again").blocks, before.blocks);
    assert_eq!(ok(driver.read(small - 3, 3)), stored(subject, kept));
    let again = ok(driver.read(small, (before.blocks - small) as u32));
    assert!(again.iter().all(|&byte| byte == 0), "blocks cut by a shrink read as zeroes");
    assert!(backend.resize(Some(0)).is_err(), "a namespace has at least one block");
}
