//! The file compared with a reference store with a volatile cache.

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

/// Content of a block after a change: a generation, or zeroes.
#[derive(Clone, Copy, Debug)]
struct Version {
    generation: u32,
    zero: bool,
}

/// All changes of a block, and the last settled and durable one, by definition.
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
    /// Marks, and the settled generations when the Flush was sent.
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

    fn apply(&mut self, step: &Step) {
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
    let (mut min_generations, mut faults) = ([0], Vec::new());
    ledger.min_generations(lba, &mut min_generations);
    ledger.check(lba, &min_generations, data, |fault| faults.push(fault));
    faults
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After a crash each version from the durable one on is accepted, each older one is not.
    #[test]
    fn versions_before_the_durable_one_are_faults_after_a_crash(steps in proptest::collection::vec(step(), 1..120)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut run = Run::new(&path);
        steps.iter().for_each(|step| run.apply(step));
        let read = Ledger::read(&path).unwrap();
        for (lba, block) in (FIRST..).zip(&run.blocks) {
            prop_assert_eq!(read.entry(lba).settled, block.durable);
            prop_assert_eq!(read.entry(lba).issued, block.versions.len() as u32);
            for version in &block.versions {
                let faults = faults(&read, lba, &content(lba, *version));
                // Zeroes have no generation: a later zeroing allows them.
                let later_zeroes = |v: &Version| v.zero && v.generation >= block.durable;
                let allowed = version.generation >= block.durable
                    || (version.zero && (block.durable == 0 || block.versions.iter().any(later_zeroes)));
                prop_assert_eq!(faults.is_empty(), allowed, "{:?} of {:?}: {:?}", version, block, faults);
            }
            let before = faults(&read, lba, &[7; BS]);
            prop_assert_eq!(before.is_empty(), block.durable == 0, "content before the run");
        }
    }
}

#[test]
fn a_change_is_recorded_before_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut run = Run::new(&path);
    run.apply(&Step::Begin { lba: 2, blocks: 2, zero: false });
    let read = Ledger::read(&path).unwrap();
    assert_eq!((read.first(), read.blocks(), read.block_size(), read.run()), (FIRST, N, BS as u32, 7));
    assert_eq!((read.settled_blocks(), read.changed_ranges(8).collect::<Vec<_>>()), (0, vec![(FIRST + 2, 2)]));
    let block = content(FIRST + 2, Version { generation: 1, zero: false });
    assert!(matches!(inspect(&block), Content::Whole(_)) && faults(&read, FIRST + 2, &block).is_empty());
}

#[test]
fn an_existing_file_is_not_overwritten() {
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
fn invalid_and_damaged_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let assert_error = |path: &Path, words: &str| {
        let error = Ledger::read(path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    assert_error(&path, "No such file");
    assert_error(folder.path(), "not a regular file");
    assert_error(Path::new("/dev/zero"), "not a regular file");
    std::fs::write(&path, "short").unwrap();
    assert_error(&path, "too short");
    std::fs::write(&path, [1; 8192]).unwrap();
    assert_error(&path, "not a ledger");
    std::fs::remove_file(&path).unwrap();
    let mut run = Run::new(&path);
    run.apply(&Step::Begin { lba: 1, blocks: 1, zero: false });
    let whole = std::fs::read(&path).unwrap();
    for at in 0..4 * 4 {
        let mut damaged = whole.clone();
        damaged[HEADER_LEN as usize + ENTRY_LEN + at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert_error(&path, "block 101 is damaged");
    }
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_error(&path, "6 blocks");
}
