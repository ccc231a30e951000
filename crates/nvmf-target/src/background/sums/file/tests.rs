//! The sums file against a plain model, with a crash at any call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::super::BLOCKS;
use super::*;

/// Bytes that reach the medium as a whole.
const SECTOR: usize = 512;

/// A file that forgets, at a crash, any of what was not synced.
#[derive(Default)]
struct Image {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Calls until the crash.
    left: usize,
    /// Chooses what survives.
    random: u64,
}

impl Image {
    /// Counts a call; the crash keeps each sector that is not synced or loses it.
    fn step(&mut self) -> io::Result<()> {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return Ok(());
        }
        let lost = io::Error::other("crashed");
        if self.random == 0 {
            return Err(lost); // crashed before
        }
        self.durable.resize(self.live.len(), 0);
        for (durable, live) in self.durable.chunks_mut(SECTOR).zip(self.live.chunks(SECTOR)) {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            if self.random.is_multiple_of(2) {
                durable.copy_from_slice(live);
            }
        }
        self.random = 0;
        Err(lost)
    }
}

#[derive(Clone, Default)]
struct Model(Arc<Mutex<Image>>);

impl Model {
    fn image(&self) -> MutexGuard<'_, Image> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Model {
    fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let image = self.image();
        let bytes = image.live.get(offset as usize..offset as usize + data.len());
        data.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut image = self.image();
        let at = offset as usize;
        image.live[at..at + data.len()].copy_from_slice(data);
        image.step()
    }

    fn sync(&self) -> io::Result<()> {
        let mut image = self.image();
        image.step()?;
        image.durable = image.live.clone();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.image().live.len() as u64)
    }

    fn reset(&self, bytes: u64) -> io::Result<()> {
        let mut image = self.image();
        image.live = vec![0; bytes as usize];
        image.durable = image.live.clone();
        image.step()
    }
}

const RANGES: u64 = 70;
const BYTES: u64 = RANGES * super::super::RANGE - 4096;

fn sums(value: u32) -> Sums {
    [value; BLOCKS]
}

#[derive(Clone, Debug)]
enum Act {
    Mark(Vec<u64>),
    Commit(Vec<(u64, u32)>),
    Note(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let range = || prop_oneof![0..4_u64, 62..RANGES];
    let act = prop_oneof![
        prop::collection::vec(range(), 1..4).prop_map(Act::Mark),
        prop::collection::vec((range(), any::<u32>()), 1..4).prop_map(Act::Commit),
        (0..RANGES).prop_map(Act::Note),
    ];
    prop::collection::vec(act, 1..40)
}

/// What has to be found after a crash.
#[derive(Default)]
struct Oracle {
    /// Ranges that must have their mark.
    marked: BTreeSet<u64>,
    /// Of each range the checksums that it may have without a mark.
    allowed: BTreeMap<u64, Vec<u32>>,
}

/// Runs `acts` until the crash; a range is committed as a namespace does: only while it is marked.
fn run(file: &SumsFile, acts: &[Act], oracle: &mut Oracle) -> io::Result<()> {
    for act in acts {
        match act {
            Act::Mark(ranges) => {
                file.mark(ranges)?;
                oracle.marked.extend(ranges);
            }
            Act::Commit(sums_of) => {
                let mut batch = BTreeMap::new();
                batch.extend(sums_of.iter().filter(|(range, _)| oracle.marked.contains(range)).copied());
                let batch: Vec<_> = batch.into_iter().map(|(range, value)| (range, sums(value))).collect();
                // A mark that goes is not synced: it may be there after a crash, and without it only the new checksums hold.
                let mut clean = Vec::new();
                let result = file.commit(&batch, &[], |range| {
                    clean.push(range);
                    true
                });
                for (range, sums) in batch.iter().filter(|(range, _)| clean.contains(range)) {
                    oracle.marked.remove(range);
                    oracle.allowed.insert(*range, vec![sums[0]]);
                }
                result?;
            }
            Act::Note(position) => file.note(Pass { began_s: 1, position: *position }, false)?,
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_crash_at_any_call_loses_no_mark_and_leaves_no_wrong_sum(
        acts in acts(),
        left in 5..200_usize,
        seed in 1..u64::MAX,
    ) {
        let model = Model::default();
        *model.image() = Image { left: usize::MAX, random: seed, ..Image::default() };
        let (file, found) = SumsFile::open(Box::new(model.clone()), BYTES).expect("the model works");
        prop_assert_eq!(found, Found::New);
        prop_assert_eq!(file.marked().len() as u64, RANGES);
        let mut oracle = Oracle { marked: (0..RANGES).collect(), ..Oracle::default() };
        model.image().left = left;
        let outcome = run(&file, &acts, &mut oracle);
        drop(file);
        {
            let mut image = model.image();
            if outcome.is_ok() {
                image.left = 1;
                let _ = image.step(); // the power goes after the last act
            }
            image.live = image.durable.clone();
            image.left = usize::MAX;
        }
        let (file, found) = SumsFile::open(Box::new(model), BYTES).expect("the model works");
        prop_assert_eq!(found, Found::Unclean);
        let marked: BTreeSet<_> = file.marked().into_iter().collect();
        prop_assert!(oracle.marked.is_subset(&marked), "lost: {:?}", oracle.marked.difference(&marked));
        for range in (0..RANGES).filter(|range| !marked.contains(range)) {
            let found = file.sums(range).expect("the model works").map(|sums| sums[0]);
            prop_assert!(found.is_some_and(|found| oracle.allowed[&range].contains(&found)), "range {range}: {found:?}");
        }
    }

    /// Any file: it is opened, or made anew; never a panic, and never clean ranges out of nothing.
    #[test]
    fn a_damaged_file_is_made_anew(at in 0..8192_usize, flip in 1..=255_u8, cut in any::<bool>()) {
        let model = Model::default();
        model.image().left = usize::MAX;
        let (file, _) = SumsFile::open(Box::new(model.clone()), BYTES).expect("the model works");
        file.note(Pass { began_s: 5, position: 6 }, true).expect("the model works");
        drop(file);
        {
            let mut image = model.image();
            image.live[at] ^= flip;
            if cut {
                let len = image.live.len() - 1;
                image.live.truncate(len);
            }
        }
        let (file, found) = SumsFile::open(Box::new(model), BYTES).expect("the model works");
        prop_assert_eq!(file.marked().len() as u64, RANGES);
        let as_expected = match found {
            Found::Reset(_) => cut,
            Found::Clean | Found::Unclean => !cut,
            Found::New => false,
        };
        prop_assert!(as_expected, "{:?}", found);
    }
}

#[test]
fn a_file_on_disk_is_opened_again_and_by_one_program_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.sums");
    let open = |bytes| SumsFile::open(Box::new(open_file(&path).expect("a file")), bytes).expect("it opens");
    let (file, found) = open(BYTES);
    assert_eq!(found, Found::New);
    assert!(open_file(&path).is_err(), "it is locked");
    file.commit(&[(1, sums(9))], &[Some(20), None, Some(40)], |_| true).expect("it works");
    file.note(Pass { began_s: 7, position: 8 }, true).expect("it works");
    drop(file);
    let (file, found) = open(BYTES);
    assert_eq!(
        (found, file.pass(), file.marked().len() as u64),
        (Found::Clean, Pass { began_s: 7, position: 8 }, RANGES - 1)
    );
    assert_eq!(file.sums(1).expect("it works"), Some(sums(9)));
    assert_eq!(file.bad(), [Some(20), None, Some(40)]);
    drop(file);
    let (file, found) = open(BYTES);
    assert_eq!((found, file.bad()), (Found::Unclean, vec![Some(20)]), "block 40 may have been written again");
    file.note(Pass::default(), true).expect("it works");
    drop(file);
    let (file, _) = open(BYTES);
    assert_eq!(file.bad(), [Some(20)], "what did not count is gone");
    drop(file);
    let (file, found) = open(BYTES + 4096);
    assert_eq!(found, Found::Reset(FormatError::Size { found: BYTES, wanted: BYTES + 4096 }));
    assert_eq!(file.marked().len() as u64, RANGES);
}
