//! The sums file with a crash at any call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use proptest::prelude::*;

use super::super::BLOCKS;
use super::*;
use crate::Random;

/// Bytes written atomically by the medium.
const SECTOR: usize = 512;

/// A file that loses random unsynced sectors in a crash.
#[derive(Default)]
struct Image {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Calls until the crash.
    left: usize,
    /// Selects the sectors that survive; `None` after the crash.
    random: Option<Random>,
}

impl Image {
    /// Counts a call. The crash keeps or loses each unsynced sector.
    fn step(&mut self) -> io::Result<()> {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return Ok(());
        }
        let lost = io::Error::other("crashed");
        let Some(mut random) = self.random.take() else { return Err(lost) };
        self.durable.resize(self.live.len(), 0);
        for (durable, live) in self.durable.chunks_mut(SECTOR).zip(self.live.chunks(SECTOR)) {
            if random.one_in(2) {
                durable.copy_from_slice(live);
            }
        }
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
enum Action {
    Mark(Vec<u64>),
    Commit(Vec<(u64, u32)>),
    Note(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let range = || prop_oneof![0..4_u64, 62..RANGES];
    let action = prop_oneof![
        prop::collection::vec(range(), 1..4).prop_map(Action::Mark),
        prop::collection::vec((range(), any::<u32>()), 1..4).prop_map(Action::Commit),
        (0..RANGES).prop_map(Action::Note),
    ];
    prop::collection::vec(action, 1..40)
}

/// The expected state after a crash.
#[derive(Default)]
struct Oracle {
    /// Ranges that must have their mark.
    marked: BTreeSet<u64>,
    /// The checksums that each range may have without a mark.
    allowed: BTreeMap<u64, Vec<u32>>,
}

/// Runs `actions` until the crash; as in a namespace, only marked ranges are committed.
fn run(file: &SumsFile, actions: &[Action], oracle: &mut Oracle) -> io::Result<()> {
    for action in actions {
        match action {
            Action::Mark(ranges) => {
                file.mark(ranges)?;
                oracle.marked.extend(ranges);
            }
            Action::Commit(sums_of) => {
                let mut batch = BTreeMap::new();
                batch.extend(sums_of.iter().filter(|(range, _)| oracle.marked.contains(range)).copied());
                let batch: Vec<_> = batch.into_iter().map(|(range, value)| (range, sums(value))).collect();
                // Clearing a mark is not synced: it may exist after a crash; without it only the new checksums are valid.
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
            Action::Note(position) => file.note(Pass { began_s: 1, position: *position }, false)?,
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_crash_at_any_call_keeps_marks_and_checksums_consistent(
        actions in actions(),
        left in 5..200_usize,
        seed in 1..u64::MAX,
    ) {
        let model = Model::default();
        *model.image() = Image { left: usize::MAX, random: Some(Random::new(seed)), ..Image::default() };
        let (file, found) = SumsFile::open(Box::new(model.clone()), BYTES).expect("the model works");
        prop_assert_eq!(found, OpenState::New);
        prop_assert_eq!(file.marked().len() as u64, RANGES);
        let mut oracle = Oracle { marked: (0..RANGES).collect(), ..Oracle::default() };
        model.image().left = left;
        let outcome = run(&file, &actions, &mut oracle);
        drop(file);
        {
            let mut image = model.image();
            if outcome.is_ok() {
                image.left = 1;
                let _ = image.step(); // the power fails after the last action
            }
            image.live = image.durable.clone();
            image.left = usize::MAX;
        }
        let (file, found) = SumsFile::open(Box::new(model), BYTES).expect("the model works");
        prop_assert_eq!(found, OpenState::Unclean);
        let marked: BTreeSet<_> = file.marked().into_iter().collect();
        prop_assert!(oracle.marked.is_subset(&marked), "lost: {:?}", oracle.marked.difference(&marked));
        for range in (0..RANGES).filter(|range| !marked.contains(range)) {
            let found = file.sums(range).expect("the model works").map(|sums| sums[0]);
            prop_assert!(found.is_some_and(|found| oracle.allowed[&range].contains(&found)), "range {range}: {found:?}");
        }
    }

    /// Any file is opened or recreated, without a panic and without falsely clean ranges.
    #[test]
    fn a_damaged_file_is_recreated(at in 0..8192_usize, flip in 1..=255_u8, cut in any::<bool>()) {
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
            OpenState::Reset(_) => cut,
            OpenState::Clean | OpenState::Unclean => !cut,
            OpenState::New => false,
        };
        prop_assert!(as_expected, "{:?}", found);
    }
}

#[test]
fn a_file_on_disk_is_locked_and_reopened() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.sums");
    let open = |bytes| SumsFile::open(Box::new(open_file(&path).expect("a file")), bytes).expect("it opens");
    let (file, found) = open(BYTES);
    assert_eq!(found, OpenState::New);
    assert!(open_file(&path).is_err(), "it is locked");
    file.commit(&[(1, sums(9))], &[Some(20), None, Some(40)], |_| true).expect("it works");
    file.note(Pass { began_s: 7, position: 8 }, true).expect("it works");
    drop(file);
    let (file, found) = open(BYTES);
    assert_eq!(
        (found, file.pass(), file.marked().len() as u64),
        (OpenState::Clean, Pass { began_s: 7, position: 8 }, RANGES - 1)
    );
    assert_eq!(file.sums(1).expect("it works"), Some(sums(9)));
    assert_eq!(file.bad(), [Some(20), None, Some(40)]);
    drop(file);
    let (file, found) = open(BYTES);
    assert_eq!((found, file.bad()), (OpenState::Unclean, vec![Some(20)]), "block 40 may have been written again");
    file.note(Pass::default(), true).expect("it works");
    drop(file);
    let (file, _) = open(BYTES);
    assert_eq!(file.bad(), [Some(20)], "invalid entries are discarded");
    drop(file);
    let (file, found) = open(BYTES + 4096);
    assert_eq!(found, OpenState::Reset(FormatError::Size { found: BYTES, wanted: BYTES + 4096 }));
    assert_eq!(file.marked().len() as u64, RANGES);
}

/// A file whose next sync, if armed, meets the test twice: when it has begun, and before it goes on.
struct Waiting {
    file: Model,
    meeting: Arc<Barrier>,
    is_armed: Arc<AtomicBool>,
}

impl Storage for Waiting {
    fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, data)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn sync(&self) -> io::Result<()> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            self.meeting.wait();
            self.meeting.wait();
        }
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn reset(&self, bytes: u64) -> io::Result<()> {
        self.file.reset(bytes)
    }
}

/// A reactor reads the pass when it takes over the background work of a namespace.
#[test]
fn the_pass_is_read_while_a_sync_waits_for_storage() {
    let (meeting, is_armed) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let model = Model::default();
    model.image().left = usize::MAX;
    let storage = Waiting { file: model, meeting: Arc::clone(&meeting), is_armed: Arc::clone(&is_armed) };
    let (file, _) = SumsFile::open(Box::new(storage), BYTES).expect("opens");
    let passes = [1, 2].map(|position| Pass { began_s: 7, position });
    file.note(passes[0], false).expect("noted");
    is_armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let noting = scope.spawn(|| file.note(passes[1], false));
        meeting.wait();
        let (result, read) = mpsc::channel();
        let file = &file;
        scope.spawn(move || result.send(file.pass()));
        let during = read.recv_timeout(Duration::from_secs(60)); // only bounds a failure
        meeting.wait();
        assert_eq!(during, Ok(passes[0]), "the last one that is durable");
        noting.join().expect("no panic").expect("noted");
    });
    assert_eq!(file.pass(), passes[1]);
}
