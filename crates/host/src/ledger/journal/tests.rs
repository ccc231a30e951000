//! The file against a naive store with a volatile cache.

use proptest::prelude::*;

use super::*;
use crate::pattern::{Content, Stamp, fill, inspect};

const BS: usize = 512;
const N: u64 = 6;
const FIRST: u64 = 100;

#[derive(Clone, Debug)]
enum Step {
    Begin { lba: u64, blocks: u32, zero: bool },
    Settle { fua: bool },
    Fail,
    SendFlush,
    EndFlush { succeeds: bool, which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..N).prop_flat_map(|lba| (Just(lba), 1..=(N - lba).min(3) as u32));
    prop_oneof![
        4 => (range, any::<bool>()).prop_map(|((lba, blocks), zero)| Step::Begin { lba, blocks, zero }),
        4 => any::<bool>().prop_map(|fua| Step::Settle { fua }),
        1 => Just(Step::Fail),
        2 => Just(Step::SendFlush),
        2 => (prop::bool::weighted(0.8), 0..4usize).prop_map(|(succeeds, which)| Step::EndFlush { succeeds, which }),
    ]
}

/// What a change leaves in a block: a generation, or zeroes.
#[derive(Clone, Copy, Debug)]
struct Version {
    generation: u32,
    zero: bool,
}

/// All that ever was sent to a block, and how much of it is settled and durable, by the definition and nothing else.
#[derive(Clone, Debug, Default)]
struct Block {
    versions: Vec<Version>,
    settled: u32,
    durable: u32,
}

struct Run {
    ledger: Ledger,
    journal: Journal,
    blocks: Vec<Block>,
    changes: Vec<(u64, u32)>,
    /// Marks, and what was settled when the Flush was sent.
    flushes: Vec<(u64, Vec<u32>)>,
}

impl Run {
    fn new(path: &Path) -> Self {
        let file = Arc::new(LedgerFile::create(path, FIRST, N, BS as u32, 7).unwrap());
        let ledger = Ledger::new(FIRST, N, BS as u32, 7);
        let blocks = vec![Block::default(); N as usize];
        Self { ledger, journal: Journal::new(file, FIRST, N), blocks, changes: Vec::new(), flushes: Vec::new() }
    }

    fn of(&mut self, lba: u64, blocks: u32) -> &mut [Block] {
        &mut self.blocks[(lba - FIRST) as usize..][..blocks as usize]
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Begin { lba, blocks, zero } => {
                let lba = FIRST + lba;
                if self.ledger.begin(lba, blocks, zero) {
                    self.journal.begun(&self.ledger, lba, blocks).unwrap();
                    self.changes.push((lba, blocks));
                    for block in self.of(lba, blocks) {
                        let generation = block.versions.len() as u32 + 1;
                        block.versions.push(Version { generation, zero });
                    }
                }
            }
            Step::Settle { fua } if !self.changes.is_empty() => {
                let (lba, blocks) = self.changes.remove(0);
                self.ledger.end(lba, blocks, true);
                self.journal.succeeded(&self.ledger, lba, blocks, fua).unwrap();
                for block in self.of(lba, blocks) {
                    block.settled = block.versions.len() as u32;
                    block.durable = if fua { block.settled } else { block.durable };
                }
            }
            Step::Fail if !self.changes.is_empty() => {
                let (lba, blocks) = self.changes.remove(0);
                self.ledger.end(lba, blocks, false);
            }
            Step::SendFlush => {
                let settled = self.blocks.iter().map(|block| block.settled).collect();
                self.flushes.push((self.journal.mark(), settled));
            }
            Step::EndFlush { succeeds, which } if !self.flushes.is_empty() => {
                let (mark, settled) = self.flushes.remove(which % self.flushes.len());
                if succeeds {
                    self.journal.flushed(&self.ledger, mark).unwrap();
                    for (block, settled) in self.blocks.iter_mut().zip(settled) {
                        block.durable = block.durable.max(settled);
                    }
                }
            }
            _ => {}
        }
    }
}

fn content(lba: u64, version: Version) -> Vec<u8> {
    let mut data = vec![0; BS];
    if !version.zero {
        fill(&mut data, Stamp { lba, run: 7, generation: version.generation });
    }
    data
}

fn faults(ledger: &Ledger, lba: u64, data: &[u8]) -> Vec<super::super::Mismatch> {
    let (mut floors, mut faults) = ([0], Vec::new());
    ledger.floors(lba, &mut floors);
    ledger.judge(lba, &floors, data, |fault| faults.push(fault));
    faults
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At the moment of a crash: each version from the durable one on is accepted, each older one is not, and durable is what the
    /// definition says.
    #[test]
    fn a_crash_at_any_moment_can_be_judged(steps in proptest::collection::vec(step(), 1..120)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut run = Run::new(&path);
        steps.iter().for_each(|step| run.take(step));
        let read = Ledger::read(&path).unwrap();
        for (lba, block) in (FIRST..).zip(&run.blocks) {
            prop_assert_eq!(read.entry(lba).settled, block.durable);
            prop_assert_eq!(read.entry(lba).issued, block.versions.len() as u32);
            for version in &block.versions {
                let faults = faults(&read, lba, &content(lba, *version));
                // Zeroes do not say of which zeroing they are: a later one makes them right.
                let later_zeroes = |v: &Version| v.zero && v.generation >= block.durable;
                let may_be = version.generation >= block.durable
                    || (version.zero && (block.durable == 0 || block.versions.iter().any(later_zeroes)));
                prop_assert_eq!(faults.is_empty(), may_be, "{:?} of {:?}: {:?}", version, block, faults);
            }
            let before = faults(&read, lba, &[7; BS]);
            prop_assert_eq!(before.is_empty(), block.durable == 0, "what was there before the run");
        }
    }
}

#[test]
fn the_file_says_what_was_begun_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut run = Run::new(&path);
    run.take(&Step::Begin { lba: 2, blocks: 2, zero: false });
    let read = Ledger::read(&path).unwrap();
    assert_eq!((read.first(), read.blocks(), read.block_size(), read.run()), (FIRST, N, BS as u32, 7));
    assert_eq!((read.settled_blocks(), read.touched(8).collect::<Vec<_>>()), (0, vec![(FIRST + 2, 2)]));
    let block = content(FIRST + 2, Version { generation: 1, zero: false });
    assert!(matches!(inspect(&block), Content::Whole(_)) && faults(&read, FIRST + 2, &block).is_empty());
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    std::fs::write(&path, "precious").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("nothing"), &link).unwrap();
    for path in [&path, &link, Path::new("/dev/null")] {
        let refused = LedgerFile::create(path, 0, 1, 512, 1).unwrap_err();
        assert!(matches!(refused, LedgerError::Exists { .. }), "{refused}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    assert!(!folder.path().join("nothing").exists());
}

#[test]
fn what_is_no_ledger_is_refused_and_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let says = |path: &Path, words: &str| {
        let error = Ledger::read(path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says(&path, "No such file");
    says(folder.path(), "no regular file");
    says(Path::new("/dev/zero"), "no regular file");
    std::fs::write(&path, "short").unwrap();
    says(&path, "too short");
    std::fs::write(&path, [1; 8192]).unwrap();
    says(&path, "no ledger");
    std::fs::remove_file(&path).unwrap();
    let mut run = Run::new(&path);
    run.take(&Step::Begin { lba: 1, blocks: 1, zero: false });
    let whole = std::fs::read(&path).unwrap();
    for at in 0..4 * 4 {
        let mut damaged = whole.clone();
        damaged[HEADER_LEN as usize + ENTRY_LEN + at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        says(&path, "block 101 is damaged");
    }
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    says(&path, "6 blocks");
}
