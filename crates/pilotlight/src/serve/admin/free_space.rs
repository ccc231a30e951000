//! Free space of the file systems of namespaces, read by a thread of its own, as statvfs(2) may block.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How old what is known may be, where file systems answer.
const EVERY: Duration = Duration::from_secs(5);

/// Free bytes by file; `None` until they are known, and of what is no regular file.
type Known = Mutex<BTreeMap<PathBuf, Option<u64>>>;

/// Free bytes of known files.
pub(super) struct FreeSpace {
    known: Arc<Known>,
    is_watched: Once,
}

impl Default for FreeSpace {
    fn default() -> Self {
        Self { known: Arc::default(), is_watched: Once::new() }
    }
}

impl FreeSpace {
    /// Free bytes of the file system of a file; `None` at the first call for a file.
    pub(super) fn free_bytes(&self, path: &Path) -> Option<u64> {
        self.is_watched.call_once(|| {
            let known = Arc::downgrade(&self.known);
            let _ = thread::Builder::new().name("volumes".to_owned()).spawn(move || watch(&known));
        });
        let mut known = lock(&self.known);
        if let Some(&bytes) = known.get(path) {
            return bytes;
        }
        known.insert(path.to_owned(), None);
        None
    }
}

fn lock(known: &Known) -> MutexGuard<'_, BTreeMap<PathBuf, Option<u64>>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Updates known files until the map is dropped.
fn watch(known: &Weak<Known>) {
    loop {
        let Some(paths) = known.upgrade().map(|known| lock(&known).keys().cloned().collect::<Vec<_>>()) else { return };
        for path in paths {
            let bytes = free_bytes(&path);
            let Some(known) = known.upgrade() else { return };
            lock(&known).insert(path, bytes);
        }
        thread::sleep(EVERY);
    }
}

/// Free bytes of the file system of a regular file.
fn free_bytes(path: &Path) -> Option<u64> {
    let is_file = std::fs::metadata(path).ok()?.is_file();
    let volume = rustix::fs::statvfs(path).ok().filter(|_| is_file)?;
    Some(volume.f_bavail * volume.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_free_space_and_other_things_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        std::fs::write(&file, "a").unwrap();
        assert!(
            free_bytes(&file).is_some()
                && free_bytes(dir.path()).is_none()
                && free_bytes(&dir.path().join("b")).is_none()
        );
        let volumes = FreeSpace::default();
        while volumes.free_bytes(&file).is_none() {
            thread::yield_now();
        }
    }
}
