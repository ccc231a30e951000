//! A simulated medium with a volatile cache, for tests of power failures.
//!
//! # The problem
//! `kill -9` does not test flushes: the page cache survives. Here the medium itself has a cache that is lost.
//!
//! # Terms
//! Reads return the *live* image; the *durable* image survives. A write changes the live image; a flush, or Force Unit
//! Access for its own blocks, makes it durable. When the power is *cut*, the medium is frozen: its image becomes the
//! durable one plus a subset of the unflushed versions of each block, chosen by a seed, and every later request fails.
//!
//! # The tested property
//! Each block of the frozen image has the content of the last successful flush, or a later one. A target that completes a
//! flush without passing it on, or too early, violates this. [`FrozenBackend::ignoring_flushes`] proves that a test
//! detects that.
//!
//! It locks and allocates for each request: it is for tests only.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Backend, Channel, Completion, Geometry, IoError, Op, Random, Request, Submitted, check_geometry};

/// Versions of a block that are kept until a flush; dropping the oldest only narrows the choice.
const VERSIONS: usize = 8;
/// The error of requests after the power was cut: EIO.
const POWER_IS_OFF: IoError = IoError::Medium(5);

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After the n-th successful flush or write with Force Unit Access (counted from 1).
    AfterFlush(u64),
    /// During the n-th request (counted from 1): it fails, and any of its blocks may have been changed.
    DuringRequest(u64),
}

/// The content of a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    block_size: u32,
    blocks: u64,
    /// Missing blocks are zero.
    content: BTreeMap<u64, Arc<[u8]>>,
}

impl Image {
    /// A block's bytes.
    pub fn block(&self, lba: u64) -> Vec<u8> {
        self.content.get(&lba).map_or_else(|| vec![0; self.block_size as usize], |data| data.to_vec())
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
}

/// A namespace that loses unflushed data.
pub struct FrozenBackend {
    medium: Arc<Mutex<Medium>>,
}

impl FrozenBackend {
    /// An empty medium of `blocks` blocks of `block_size` bytes.
    ///
    /// # Errors
    /// A block size that is neither 512 nor 4096, no blocks at all, or more bytes than 2^63.
    pub fn new(block_size: u32, blocks: u64) -> io::Result<Self> {
        check_geometry(block_size, blocks)?;
        Ok(Self::from_image(Image { block_size, blocks, content: BTreeMap::new() }))
    }

    /// A medium with the image that survived.
    pub fn from_image(image: Image) -> Self {
        let medium = Medium {
            durable: image,
            cached: BTreeMap::new(),
            ignores_flushes: false,
            cut: None,
            flushes: 0,
            requests: 0,
            frozen: None,
        };
        Self { medium: Arc::new(Mutex::new(medium)) }
    }

    /// Makes the medium complete flushes without effect. A test of durability must fail with it.
    pub fn ignoring_flushes(self) -> Self {
        lock(&self.medium).ignores_flushes = true;
        self
    }

    /// Cuts the power at a later moment; `seed` selects the unflushed data that survives.
    pub fn cut_power_at(&self, moment: Moment, seed: u64) {
        lock(&self.medium).cut = Some((moment, Random::new(seed)));
    }

    /// Cuts the power now, and returns the image that survives.
    pub fn cut_power(&self, seed: u64) -> Image {
        lock(&self.medium).freeze(&mut Random::new(seed)).clone()
    }

    /// The image that survived, if the power was cut.
    pub fn frozen(&self) -> Option<Image> {
        lock(&self.medium).frozen.clone()
    }

    /// Successful flushes and writes with Force Unit Access.
    pub fn flushes(&self) -> u64 {
        lock(&self.medium).flushes
    }

    /// Requests before the power was cut.
    pub fn requests(&self) -> u64 {
        lock(&self.medium).requests
    }
}

fn lock(medium: &Mutex<Medium>) -> MutexGuard<'_, Medium> {
    medium.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A version of a block; `None` is zeroes.
type Version = Option<Arc<[u8]>>;

struct Medium {
    durable: Image,
    /// The versions of each block since its last flush, the newest last; never empty.
    cached: BTreeMap<u64, Vec<Version>>,
    ignores_flushes: bool,
    cut: Option<(Moment, Random)>,
    flushes: u64,
    requests: u64,
    frozen: Option<Image>,
}

impl Medium {
    fn live(&self, lba: u64) -> Option<&Arc<[u8]>> {
        match self.cached.get(&lba).and_then(|versions| versions.last()) {
            Some(version) => version.as_ref(),
            None => self.durable.content.get(&lba),
        }
    }

    fn set(&mut self, lba: u64, version: Version) {
        if version.is_none() && !self.cached.contains_key(&lba) && !self.durable.content.contains_key(&lba) {
            return;
        }
        let versions = self.cached.entry(lba).or_default();
        if versions.len() == VERSIONS {
            versions.remove(0);
        }
        versions.push(version);
    }

    fn keep(image: &mut Image, lba: u64, version: Version) {
        match version {
            Some(data) => image.content.insert(lba, data),
            None => image.content.remove(&lba),
        };
    }

    /// Makes the newest versions of some blocks durable.
    fn flush(&mut self, range: std::ops::Range<u64>) {
        self.flushes += 1;
        if self.ignores_flushes {
            return;
        }
        let flushed: Vec<_> = self.cached.range(range).map(|(&lba, _)| lba).collect();
        for lba in flushed {
            let newest = self.cached.remove(&lba).and_then(|mut versions| versions.pop());
            Self::keep(&mut self.durable, lba, newest.flatten());
        }
    }

    /// Cuts the power, if it is still on.
    fn freeze(&mut self, random: &mut Random) -> &Image {
        let mut image = self.durable.clone();
        for (&lba, versions) in &self.cached {
            let choice = random.below(versions.len() as u64 + 1) as usize;
            if let Some(version) = choice.checked_sub(1).and_then(|index| versions.get(index)) {
                Self::keep(&mut image, lba, version.clone());
            }
        }
        self.frozen.get_or_insert(image)
    }

    fn run(&mut self, request: &mut Request) -> Result<(), IoError> {
        if self.frozen.is_some() {
            return Err(POWER_IS_OFF);
        }
        request.check_end(self.durable.blocks)?;
        self.requests += 1;
        let ends = matches!(self.cut, Some((Moment::DuringRequest(n), _)) if n == self.requests);
        self.apply(request)?;
        if !ends {
            self.make_durable(request);
        }
        let flushed = matches!(self.cut, Some((Moment::AfterFlush(n), _)) if n == self.flushes);
        if let Some((_, mut random)) = self.cut.clone().filter(|_| ends || flushed) {
            self.freeze(&mut random);
        }
        if ends { Err(POWER_IS_OFF) } else { Ok(()) }
    }

    /// Applies a request to the live image.
    fn apply(&mut self, request: &mut Request) -> Result<(), IoError> {
        let size = self.durable.block_size as usize;
        let blocks = request.lba..request.lba + u64::from(request.blocks);
        match request.op {
            Op::Flush => {}
            Op::Read => {
                let pieces = request.data(size).chunks_exact_mut(size);
                for (lba, piece) in blocks.zip(pieces) {
                    match self.live(lba) {
                        Some(data) => piece.copy_from_slice(data),
                        None => piece.fill(0),
                    }
                }
            }
            Op::Write { .. } => {
                let pieces = request.data(size).chunks_exact(size);
                blocks.zip(pieces).for_each(|(lba, piece)| self.set(lba, Some(piece.into())));
            }
            Op::CompareAndWrite { .. } => {
                let (expected, data) = request.compare_and_write_data(size);
                let zero = |piece: &[u8]| piece.iter().all(|&byte| byte == 0);
                let equals = |(lba, piece): (u64, &[u8])| self.live(lba).map_or(zero(piece), |data| data[..] == *piece);
                if !blocks.clone().zip(expected.chunks_exact(size)).all(equals) {
                    return Err(IoError::Miscompare);
                }
                blocks.zip(data.chunks_exact(size)).for_each(|(lba, piece)| self.set(lba, Some(piece.into())));
            }
            Op::WriteZeroes { .. } | Op::Deallocate | Op::Clear => blocks.for_each(|lba| self.set(lba, None)),
        }
        Ok(())
    }

    fn make_durable(&mut self, request: &Request) {
        match request.op {
            Op::Flush => self.flush(0..u64::MAX),
            Op::Write { fua: true } | Op::CompareAndWrite { fua: true } | Op::WriteZeroes { fua: true, .. } => {
                self.flush(request.lba..request.lba + u64::from(request.blocks));
            }
            _ => {}
        }
    }
}

impl Backend for FrozenBackend {
    fn geometry(&self) -> Geometry {
        let medium = lock(&self.medium);
        Geometry {
            block_size: medium.durable.block_size,
            blocks: medium.durable.blocks,
            volatile_write_cache: true,
            deallocated_reads_zero: true,
            is_read_only: false,
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let medium = lock(&self.medium);
        let cached = medium.cached.values().filter(|versions| versions.last().is_some_and(Option::is_some)).count();
        let durable = medium.durable.content.keys().filter(|lba| !medium.cached.contains_key(lba)).count();
        Ok((cached + durable) as u64 * u64::from(medium.durable.block_size))
    }

    fn open_channel(&self, _depth: u32) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(FrozenChannel { medium: Arc::clone(&self.medium) }))
    }

    /// The new size is durable at once.
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        if let Some(blocks) = blocks {
            let mut medium = lock(&self.medium);
            check_geometry(medium.durable.block_size, blocks)?;
            medium.durable.blocks = blocks;
            medium.durable.content.split_off(&blocks);
            medium.cached.split_off(&blocks);
        }
        Ok(self.geometry())
    }
}

struct FrozenChannel {
    medium: Arc<Mutex<Medium>>,
}

impl Channel for FrozenChannel {
    fn submit(&mut self, mut request: Request, _now_ns: u64) -> Submitted {
        let result = lock(&self.medium).run(&mut request);
        Submitted::Done(request.complete(result))
    }

    fn poll(&mut self, _now_ns: u64, _done: &mut Vec<Completion>) {}

    fn in_flight(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::conformance::{self, Driver, Subject};
    use super::*;

    const WRITE: Op = Op::Write { fua: false };
    const FUA: Op = Op::Write { fua: true };

    #[test]
    fn conforms() {
        let create =
            |block_size, blocks| Arc::new(FrozenBackend::new(block_size, blocks).expect("valid")) as Arc<dyn Backend>;
        conformance::check(&Subject {
            create: &create,
            stores: true,
            resizes: true,
            counts_space: true,
            requests: 1_000,
            seed: 1,
        });
    }

    fn block(value: u8) -> Vec<u8> {
        vec![value; 512]
    }

    #[test]
    fn flushed_data_survives_and_other_data_may() {
        let mut seen = [0; 4];
        for seed in 0..100 {
            let backend = FrozenBackend::new(512, 10).expect("valid");
            let mut driver = Driver::open(&backend, 4);
            driver.write(0, &block(1)).expect("works");
            driver.run(Op::Flush, 0, 0, None).expect("works");
            for value in 2..=3 {
                driver.write(0, &block(value)).expect("works");
            }
            driver.run(FUA, 1, 1, Some(&block(9))).expect("works");
            driver.run(Op::Deallocate, 0, 1, None).expect("works");
            let image = backend.cut_power(seed);
            assert_eq!(image.block(1), block(9), "force unit access");
            seen[usize::from(image.block(0)[0])] += 1;
            assert_eq!(driver.read(1, 1).unwrap_err(), POWER_IS_OFF);
            assert_eq!(backend.cut_power(seed + 1), image, "the power is cut once");
            let again = FrozenBackend::from_image(image);
            assert_eq!(Driver::open(&again, 4).read(1, 1).expect("the power is on again"), block(9));
        }
        assert!(seen.iter().all(|&count| count > 10), "flushed, two writes, zeroes: {seen:?}");
    }

    #[test]
    fn a_request_during_the_power_cut_fails_and_may_change_any_of_its_blocks() {
        let mut survivors = [0; 9];
        for seed in 0..50 {
            let backend = FrozenBackend::new(512, 10).expect("valid");
            backend.cut_power_at(Moment::DuringRequest(2), seed);
            let mut driver = Driver::open(&backend, 4);
            driver.run(FUA, 0, 1, Some(&block(1))).expect("the power is on");
            assert_eq!(driver.run(FUA, 1, 8, Some(&block(7).repeat(8))).unwrap_err(), POWER_IS_OFF);
            let image = backend.frozen().expect("off");
            assert_eq!((image.block(0), image.block(9)), (block(1), block(0)));
            survivors[(1..9).filter(|&lba| image.block(lba) == block(7)).count()] += 1;
        }
        assert!(survivors[1..8].iter().sum::<i32>() > 40, "most leave a part: {survivors:?}");
    }

    /// Checks the tested property on the backend itself. Returns whether it holds.
    fn is_durable(backend: &FrozenBackend, seed: u64) -> bool {
        let mut random = Random::new(seed);
        backend.cut_power_at(Moment::AfterFlush(1 + random.below(6)), seed);
        let mut driver = Driver::open(backend, 4);
        // For each block: the version of the last flush, and all later ones.
        let mut allowed: HashMap<u64, Vec<u8>> = (0..16).map(|lba| (lba, vec![0])).collect();
        for value in 1..=200 {
            let lba = random.below(16);
            let fua = random.one_in(20);
            if driver.run(if fua { FUA } else { WRITE }, lba, 1, Some(&block(value))).is_err() {
                break;
            }
            let versions = allowed.get_mut(&lba).expect("one of 16");
            versions.push(value);
            if fua {
                *versions = vec![value];
            }
            if random.one_in(20) && driver.run(Op::Flush, 0, 0, None).is_ok() {
                allowed.values_mut().for_each(|versions| *versions = versions.split_off(versions.len() - 1));
            }
        }
        let image = backend.frozen().unwrap_or_else(|| backend.cut_power(seed));
        allowed.iter().all(|(&lba, versions)| versions.contains(&image.block(lba)[0]))
    }

    #[test]
    fn a_medium_that_ignores_flushes_is_detected() {
        let make = || FrozenBackend::new(512, 16).expect("valid");
        assert!((0..100).all(|seed| is_durable(&make(), seed)));
        let detected = (0..100).filter(|&seed| !is_durable(&make().ignoring_flushes(), seed)).count();
        assert!(detected > 80, "detected {detected} of 100");
    }

    #[test]
    fn the_same_seed_gives_the_same_image() {
        let run = |seed| {
            let backend = FrozenBackend::new(512, 16).expect("valid");
            is_durable(&backend, seed);
            backend.frozen().expect("off")
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
