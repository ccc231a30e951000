//! A backend whose ranges are tracked: with checksums, with freed ranges that are trimmed in the background, or both.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::channel::TrackedChannel;
use super::sums::BLOCK;
use super::sums::file::{Found, SumsFile, open_file};
use super::sums::tracker::{Tracker, Worker};
use crate::backend::{Backend, Channel, Geometry};

/// What is tracked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    /// Where checksums are kept, if they are.
    pub sums: Option<SumsPlace>,
    /// Whether freed ranges are trimmed in the background.
    pub trim: bool,
}

/// Where the checksums of a namespace are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SumsPlace {
    /// Beside a regular file: its path and `.sums`.
    Beside,
    /// Here.
    At(PathBuf),
}

impl SumsPlace {
    /// The file for a namespace at `path`.
    fn path(&self, path: &Path) -> io::Result<PathBuf> {
        match self {
            Self::At(place) => Ok(place.clone()),
            Self::Beside if std::fs::metadata(path)?.is_file() => {
                let mut beside = path.as_os_str().to_owned();
                beside.push(".sums");
                Ok(beside.into())
            }
            Self::Beside => {
                let message = "checksums of a block device need a file of their own: checksums = \"PATH\"";
                Err(io::Error::new(ErrorKind::InvalidInput, message))
            }
        }
    }
}

/// As it stands before a backend's specification: `checked`, `checked=PATH`, `trim`, or two of them with a comma.
impl fmt::Display for Tracking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sums {
            Some(SumsPlace::Beside) => write!(f, "checked")?,
            Some(SumsPlace::At(path)) => write!(f, "checked={}", path.display())?,
            None => {}
        }
        let comma = if self.sums.is_some() { "," } else { "" };
        if self.trim { write!(f, "{comma}trim") } else { Ok(()) }
    }
}

impl Tracking {
    /// Reads what [`Tracking`] writes; `None` if it is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut tracking = Self::default();
        for word in text.split(',') {
            match word.split_once('=') {
                None if word == "checked" && tracking.sums.is_none() => tracking.sums = Some(SumsPlace::Beside),
                None if word == "trim" && !tracking.trim => tracking.trim = true,
                Some(("checked", path)) if !path.is_empty() && tracking.sums.is_none() => {
                    tracking.sums = Some(SumsPlace::At(path.into()));
                }
                _ => return None,
            }
        }
        Some(tracking)
    }
}

/// A tracked backend.
pub struct TrackedBackend {
    tracker: Arc<Tracker>,
    /// Ends before the backend below it does.
    worker: Arc<Worker>,
    inner: Arc<dyn Backend>,
}

impl TrackedBackend {
    /// Tracks `inner`, whose blocks are in the file or device at `path`.
    ///
    /// # Errors
    /// If the blocks have another size than 4 KiB, or the sums file cannot be had.
    pub fn open(inner: Arc<dyn Backend>, path: &Path, tracking: &Tracking) -> io::Result<Self> {
        let geometry = inner.geometry();
        if u64::from(geometry.block_size) != BLOCK {
            let message = "checksums and trimming in the background need a block size of 4096";
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        let bytes = geometry.blocks * BLOCK;
        let sums = tracking.sums.as_ref().map(|place| open_sums(&place.path(path)?, bytes)).transpose()?;
        Self::track(inner, sums, tracking.trim)
    }

    /// Tracks `inner` with these checksums.
    ///
    /// # Errors
    /// If the system has no memory or thread left.
    pub(crate) fn track(inner: Arc<dyn Backend>, sums: Option<SumsFile>, trim: bool) -> io::Result<Self> {
        let geometry = inner.geometry();
        let trims = trim && geometry.deallocated_reads_zero;
        let (tracker, worker) = Tracker::start(&inner, geometry.blocks * BLOCK, sums, trims)?;
        Ok(Self { tracker, worker: Arc::new(worker), inner })
    }
}

/// Opens a sums file, and says in the log what follows from how it was found.
fn open_sums(path: &Path, bytes: u64) -> io::Result<SumsFile> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("the sums file {}: {error}", path.display()));
    let storage = open_file(path).map_err(explain)?;
    let (file, found) = SumsFile::open(Box::new(storage), bytes).map_err(explain)?;
    let (sums, ranges) = (path.display(), file.marked().len());
    match found {
        Found::Clean => tracing::debug!(%sums, ranges, "checksums opened; ranges to be summed again"),
        Found::New => tracing::info!(%sums, ranges, "checksums begin: every range is to be summed"),
        Found::Unclean => tracing::warn!(
            %sums,
            ranges,
            "the namespace was not closed cleanly: ranges that were being written are summed again, and not verified"
        ),
        Found::Reset(why) => {
            tracing::warn!(%sums, %why, "the checksums are of no use; every range is summed again, and not verified");
        }
    }
    Ok(file)
}

impl Backend for TrackedBackend {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.inner.allocated_bytes()
    }

    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let inner = self.inner.open_channel(depth)?;
        let promises_zeroes = self.inner.geometry().deallocated_reads_zero;
        let worker = Arc::clone(&self.worker);
        Ok(Box::new(TrackedChannel::new(inner, Arc::clone(&self.tracker), worker, depth, promises_zeroes)))
    }

    /// A tracked namespace keeps its size.
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        let now = self.inner.geometry();
        if blocks.is_none_or(|blocks| blocks == now.blocks) {
            return Ok(now);
        }
        let message = "a namespace with checksums or trim = \"background\" keeps its size while it is served: remove it, \
            change its size, and add it again; its checksums then begin anew";
        Err(io::Error::new(ErrorKind::Unsupported, message))
    }

    fn drop_cache(&self, bytes: Range<u64>) {
        self.inner.drop_cache(bytes);
    }

    fn tracker(&self) -> Option<&Arc<Tracker>> {
        Some(&self.tracker)
    }
}

#[cfg(test)]
mod crash;
#[cfg(test)]
mod tests;
