//! Crash test of data and checksums: random writes, flushes, damage and scrubbing are recorded; then the power fails at a
//! random point of the record, and random unflushed sectors are lost.

mod passes;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::control::{Background, BackgroundConfig, Drive};
use super::super::pace::Round;
use super::super::scrub::{Cx, Scrubber};
use super::super::sums::file::{OpenState, Storage};
use super::super::sums::format::{BAD_AT, Layout, PLACE, PLACES, RECORD, decode_bad, decode_record};
use super::super::sums::ranges::Mark;
use super::super::sums::{BLOCKS, RANGE, sums_of};
use super::super::upkeep::{Place, Upkeep};
use super::*;
use crate::buffer::BufferPool;
use crate::{Completion, IoError, Op, Random, Request, Submitted};

/// Bytes written atomically.
const SECTOR: usize = 512;
const RANGES: u64 = 6;
/// The last range is shorter.
const BYTES: u64 = RANGES * RANGE - 2 * BLOCK;
const LBAS: u64 = BYTES / BLOCK;
/// Content of a damaged block.
const GARBAGE: u8 = 0xee;
const S: u64 = 1_000_000_000;
const DAYS_31: u64 = 31 * 86_400 * S;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Data,
    Sums,
}

/// An event of a medium.
enum Event {
    Write(Medium, usize, Vec<u8>),
    Sync(Medium),
    /// A block is damaged, durably.
    Damage(u64),
    /// The sums file is recreated, durably.
    Reset(usize),
}

/// Both media and their record.
#[derive(Default)]
struct Media {
    data: Vec<u8>,
    sums: Vec<u8>,
    record: Vec<Event>,
    /// A block that reads as garbage until it is dropped from caches; the medium is correct.
    stale: Option<u64>,
    /// Reads of that block so far.
    stale_reads: u64,
}

impl Media {
    fn medium(&mut self, medium: Medium) -> &mut Vec<u8> {
        match medium {
            Medium::Data => &mut self.data,
            Medium::Sums => &mut self.sums,
        }
    }

    fn read(&mut self, at: usize, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.data[at..at + buffer.len()]);
        let stale_at = self.stale.and_then(|lba| ((lba * BLOCK) as usize).checked_sub(at));
        if let Some(block) = stale_at.and_then(|from| buffer.get_mut(from..from + BLOCK as usize)) {
            block.fill(GARBAGE);
            self.stale_reads += 1;
        }
    }

    fn write(&mut self, medium: Medium, at: usize, bytes: &[u8]) {
        self.medium(medium)[at..at + bytes.len()].copy_from_slice(bytes);
        self.record.push(Event::Write(medium, at, bytes.to_vec()));
    }

    fn damage(&mut self, lba: u64) {
        self.data[(lba * BLOCK) as usize..][..BLOCK as usize].fill(GARBAGE);
        self.record.push(Event::Damage(lba));
    }

    fn is_garbage(&self, lba: u64) -> bool {
        self.data[(lba * BLOCK) as usize..][..BLOCK as usize].iter().all(|&byte| byte == GARBAGE)
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Media>>);

impl Shared {
    fn media(&self) -> MutexGuard<'_, Media> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Shared {
    fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let media = self.media();
        let bytes = media.sums.get(offset as usize..offset as usize + data.len());
        data.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.media().write(Medium::Sums, offset as usize, data);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.media().record.push(Event::Sync(Medium::Sums));
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.media().sums.len() as u64)
    }

    fn reset(&self, bytes: u64) -> io::Result<()> {
        let mut media = self.media();
        media.sums = vec![0; bytes as usize];
        media.record.push(Event::Reset(bytes as usize));
        Ok(())
    }
}

impl Backend for Shared {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: BLOCK as u32,
            blocks: LBAS,
            volatile_write_cache: true,
            deallocated_reads_zero: true,
            is_read_only: false,
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(BYTES)
    }

    fn open_channel(&self, _depth: u32) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(Recorded { shared: self.clone(), waiting: VecDeque::new() }))
    }

    fn resize(&self, _blocks: Option<u64>) -> io::Result<Geometry> {
        Ok(self.geometry())
    }

    fn drop_cache(&self, bytes: Range<u64>) {
        let mut media = self.media();
        media.stale = media.stale.filter(|lba| !bytes.contains(&(lba * BLOCK)));
    }
}

/// A channel that executes requests when it is polled.
struct Recorded {
    shared: Shared,
    waiting: VecDeque<Request>,
}

impl Channel for Recorded {
    fn submit(&mut self, request: Request, _now_ns: u64) -> Submitted {
        self.waiting.push_back(request);
        Submitted::Pending
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<Completion>) {
        while done.len() < done.capacity() {
            let Some(mut request) = self.waiting.pop_front() else { return };
            let mut media = self.shared.media();
            let (at, bytes) = ((request.lba * BLOCK) as usize, (u64::from(request.blocks) * BLOCK) as usize);
            let buffer = request.buffer.as_deref_mut().map(|buffer| &mut buffer[..bytes]);
            match (request.op, buffer) {
                (Op::Read, Some(buffer)) => media.read(at, buffer),
                (Op::Write { .. }, Some(buffer)) => media.write(Medium::Data, at, buffer),
                (Op::Flush, _) => media.record.push(Event::Sync(Medium::Data)),
                _ => media.write(Medium::Data, at, &vec![0; bytes]),
            }
            drop(media);
            done.push(request.complete(Ok(())));
        }
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

/// A namespace with a host and a scrubber.
struct Served {
    scrubber: Scrubber,
    background: Background,
    /// The scrubber's and the host's channel.
    channels: [Box<dyn Channel>; 2],
    pool: BufferPool,
    tracker: Arc<Tracker>,
    _backend: TrackedBackend,
    now_ns: u64,
    /// Results of the host's requests.
    results: Vec<Result<(), IoError>>,
    /// The sums file was closed cleanly before.
    was_clean: bool,
}

impl Served {
    fn open(shared: &Shared) -> Self {
        let (file, found) = SumsFile::open(Box::new(shared.clone()), BYTES).expect("memory");
        let backend = TrackedBackend::track(Arc::new(shared.clone()), Some(file), false).expect("a thread");
        let tracker = Arc::clone(backend.tracker().expect("tracked"));
        let upkeep = Arc::new(Upkeep::new(Some(Arc::clone(&tracker))));
        let drive = Arc::new(Drive::default());
        upkeep.place(Place { owner: 0, drive, scrubs: true, nqn: "nqn".to_owned(), nsid: 1 });
        let fast = BackgroundConfig { scrub_bytes_per_s: u64::MAX, ..BackgroundConfig::default() };
        Self {
            scrubber: Scrubber::new(&upkeep, backend.geometry(), 30, S).expect("memory"),
            background: Background::new(fast, 1),
            channels: std::array::from_fn(|_| backend.open_channel(8).expect("a channel")),
            pool: BufferPool::new(4 << 20).expect("memory"),
            tracker,
            _backend: backend,
            now_ns: S,
            results: Vec::new(),
            was_clean: matches!(found, OpenState::Clean),
        }
    }

    fn scrub(&mut self) {
        self.now_ns += S;
        let now_ns = self.now_ns;
        let round = Round { now_ns, took_requests: false, has_requests: false, has_hosts: false };
        let channel = &mut *self.channels[0];
        self.scrubber.poll(&mut Cx { channel, shared: &self.background, round, tag: 0 });
        let mut done = Vec::with_capacity(4);
        self.channels[0].poll(now_ns, &mut done);
        done.into_iter().for_each(|one| self.scrubber.on_completion(one, &self.background, now_ns));
    }

    /// Scrubs until all ranges are summed and another pass has ended.
    fn scrub_all(&mut self) {
        let progress = |this: &Self| this.scrubber.upkeep.stats().expect("placed");
        self.now_ns += DAYS_31;
        let passes = progress(self).passes;
        while progress(self).passes < passes + 1 || !self.tracker.dirty.is_empty() {
            self.scrub();
            std::thread::yield_now();
        }
    }

    fn submit(&mut self, op: Op, lba: u64, blocks: u64, byte: u8) {
        let has_data = matches!(op, Op::Write { .. } | Op::Read);
        let mut buffer = has_data.then(|| self.pool.alloc((blocks * BLOCK) as usize).expect("memory"));
        buffer.iter_mut().for_each(|buffer| buffer.fill(byte));
        let request = Request { tag: 0, op, lba, blocks: blocks as u32, buffer };
        match self.channels[1].submit(request, self.now_ns) {
            Submitted::Done(completion) => self.end(completion),
            Submitted::Pending => {}
            Submitted::Busy(request) => request.buffer.into_iter().for_each(|buffer| self.pool.free(buffer)),
        }
    }

    fn end(&mut self, completion: Completion) {
        self.results.push(completion.result);
        completion.buffer.into_iter().for_each(|buffer| self.pool.free(buffer));
    }

    fn poll(&mut self) {
        let mut done = Vec::with_capacity(8);
        self.channels[1].poll(self.now_ns, &mut done);
        done.into_iter().for_each(|completion| self.end(completion));
    }

    fn drain(&mut self) {
        while self.channels[1].in_flight() > 0 {
            self.poll();
            std::thread::yield_now();
        }
        while self.scrubber.is_on_drive() {
            self.scrub();
        }
    }

    /// The blocks with failing reads.
    fn bad(&mut self) -> Vec<u64> {
        let fails = |lba: &u64| {
            self.drain();
            self.results.clear();
            self.submit(Op::Read, *lba, 1, 0);
            self.drain();
            self.results == [Err(IoError::Checksum)]
        };
        (0..LBAS).filter(fails).collect()
    }
}

/// Serves random requests, damages blocks, and closes cleanly. Returns the media and the bad blocks at the end.
fn history(random: &mut Random) -> (Shared, Vec<u64>) {
    let shared = Shared::default();
    shared.media().data = vec![0; BYTES as usize];
    let mut served = Served::open(&shared);
    served.scrub_all();
    for step in 0..400 {
        let lba = random.below(LBAS);
        match random.below(32) {
            0..4 => served.submit(
                Op::Write { fua: false },
                lba,
                1 + random.below((LBAS - lba).min(24)),
                step as u8 % 200 + 1,
            ),
            4 => served.submit(Op::Flush, 0, 0, 0),
            5 => served.submit(Op::Deallocate, lba, 1, 0),
            // unflushed data is damaged as well, as by a faulty medium
            6 if served.channels[1].in_flight() == 0 => shared.media().damage(lba),
            // a bad block is written again
            30 => {
                let bad = served.tracker.bad.places().into_iter().flatten().next();
                bad.into_iter().for_each(|lba| served.submit(Op::Write { fua: false }, lba, 1, 1));
            }
            7 => served.now_ns += DAYS_31,
            8..16 => served.poll(),
            _ => served.scrub(),
        }
        if random.one_in(3) {
            std::thread::yield_now();
        }
        if random.one_in(60) {
            served.drain();
            served.scrub_all(); // otherwise few ranges are without writes for long enough to be summed
        }
    }
    served.drain();
    let bad = served.bad();
    drop(served);
    (shared, bad)
}

/// The media when the power fails after `events` events.
fn crash(record: &[Event], events: usize, random: &mut Random) -> Media {
    let mut media = Media { data: vec![0; BYTES as usize], ..Media::default() };
    for medium in [Medium::Data, Medium::Sums] {
        let mut pending: Vec<(usize, &[u8])> = Vec::new();
        for event in &record[..events] {
            match event {
                Event::Write(of, at, bytes) if *of == medium => pending.push((*at, bytes)),
                Event::Sync(of) if *of == medium => {
                    pending
                        .drain(..)
                        .for_each(|(at, bytes)| media.medium(medium)[at..at + bytes.len()].copy_from_slice(bytes));
                }
                Event::Reset(bytes) if medium == Medium::Sums => media.sums = vec![0; *bytes],
                Event::Damage(lba) if medium == Medium::Data => {
                    pending.drain(..).for_each(|(at, bytes)| media.data[at..at + bytes.len()].copy_from_slice(bytes));
                    media.damage(*lba);
                }
                _ => {}
            }
        }
        for (at, bytes) in pending {
            let (mut from, end) = (at, at + bytes.len());
            while from < end {
                let to = end.min((from / SECTOR + 1) * SECTOR);
                if random.one_in(2) {
                    media.medium(medium)[from..to].copy_from_slice(&bytes[from - at..to - at]);
                }
                from = to;
            }
        }
    }
    media.record.clear();
    media
}

/// Checks that the mark of each written range is durable.
fn check_order(record: &[Event]) {
    let layout = Layout::new(BYTES);
    let (mut durable, mut pending, mut written) = (Vec::new(), Vec::new(), 0);
    for event in record {
        match event {
            Event::Reset(bytes) => durable = vec![0; *bytes],
            Event::Write(Medium::Sums, at, bytes) => pending.push((*at, bytes)),
            Event::Sync(Medium::Sums) => {
                pending.drain(..).for_each(|(at, bytes)| durable[at..at + bytes.len()].copy_from_slice(bytes));
            }
            Event::Write(Medium::Data, at, bytes) => {
                let word_at = layout.word_at(0) as usize;
                // unsynced data may be lost
                let pending = pending.iter().filter(|(at, _)| *at == word_at).map(|(_, word)| word[0]);
                let marks = pending.fold(durable[word_at], |marks, word| marks & word);
                for range in *at as u64 / RANGE..(*at + bytes.len()).div_ceil(RANGE as usize) as u64 {
                    assert!(marks >> range & 1 == 1, "range {range} is written before its mark is durable");
                    written += 1;
                }
            }
            _ => {}
        }
    }
    assert!(written > 20, "{written} ranges were written");
}

/// The bad blocks stored in a sums file.
fn kept_bad(sums: &[u8]) -> Vec<u64> {
    let place = |at: usize| sums.get(BAD_AT as usize + at * PLACE..)?.get(..PLACE);
    let mut kept: Vec<u64> = (0..PLACES).filter_map(|at| decode_bad(at, place(at)?)).collect();
    kept.sort_unstable();
    kept
}

/// Checks the namespace after a crash.
fn check_crash(media: Media, random: &mut Random) {
    let shared = Shared(Arc::new(Mutex::new(media)));
    let kept = kept_bad(&shared.media().sums);
    let mut served = Served::open(&shared);
    let suspects = |shared: &Shared| (0..LBAS).filter(|&lba| shared.media().is_garbage(lba)).collect::<Vec<_>>();
    let damaged = suspects(&shared);
    let marks: Vec<Mark> = (0..RANGES).map(|range| served.tracker.ranges.mark(range)).collect();
    for range in (0..RANGES).filter(|&range| marks[range as usize] == Mark::Clean) {
        let at = Layout::new(BYTES).record_at(range) as usize;
        let known = decode_record(range, &shared.media().sums[at..at + RECORD]).expect("a clean range has checksums");
        let bytes = served.tracker.bytes_of(range);
        let now = sums_of(&shared.media().data[bytes.start as usize..bytes.end as usize]);
        let differs = (0..BLOCKS as u64).filter(|&at| known[at as usize] != now[at as usize]);
        let lbas: Vec<u64> = differs.map(|at| range * BLOCKS as u64 + at).collect();
        assert!(lbas.iter().all(|lba| damaged.contains(lba)), "blocks {lbas:?} of a clean range, damaged: {damaged:?}");
    }
    let known = served.bad(); // before a pass may find that they match their checksums
    assert!(known.iter().all(|lba| damaged.contains(lba)), "known as bad {known:?}, damaged {damaged:?}");
    let is_clean = |lba: &u64| marks[(lba / BLOCKS as u64) as usize] == Mark::Clean;
    // after a clean close marks remain where there was no time for checksums, and all stored blocks are valid
    let expected: Vec<u64> = kept.into_iter().filter(|lba| served.was_clean || is_clean(lba)).collect();
    assert_eq!(known, expected, "stored bad blocks in ranges without a mark");
    (0..2).for_each(|_| served.scrub_all()); // the first may be the rest of a pass
    let bad = served.bad();
    assert!(bad.iter().all(|lba| damaged.contains(lba)), "bad {bad:?}, damaged {damaged:?}");
    // All ranges are summed: new damage is found, and nothing else.
    let lba = random.below(LBAS);
    let was_garbage = damaged.contains(&lba);
    shared.media().damage(lba);
    served.scrub_all();
    let expected: Vec<u64> = (0..LBAS).filter(|other| bad.contains(other) || *other == lba && !was_garbage).collect();
    assert_eq!(served.bad(), expected);
    served.drain();
}

#[test]
fn a_crash_loses_no_mark_and_good_blocks_are_not_reported() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let (shared, bad) = history(&mut random);
        let record = std::mem::take(&mut shared.media().record);
        check_order(&record);
        for _ in 0..8 {
            let events = random.below(record.len() as u64 + 1) as usize;
            check_crash(crash(&record, events, &mut random), &mut random);
        }
        let mut served = Served::open(&shared);
        assert_eq!(served.bad(), bad, "after a clean close the same blocks are bad");
        served.drain();
    }
}
