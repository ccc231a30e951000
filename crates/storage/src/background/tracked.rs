//! A backend with checksums, background trimming, or both.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::channel::TrackedChannel;
use super::sums::BLOCK;
use super::sums::file::{OpenState, SumsFile, open_file_by};
use super::sums::tracker::{Tracker, Worker};
use crate::{Access, Backend, Channel, FileOpener, Geometry};

/// Tracked properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    /// The place of the checksums, if any.
    pub sums: Option<SumsPlace>,
    /// Whether freed ranges are trimmed in the background.
    pub trim: bool,
}

/// Place of the checksums of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SumsPlace {
    /// Beside a regular file: its path with `.sums` appended.
    Beside,
    /// At this path.
    At(PathBuf),
}

impl SumsPlace {
    /// The file for a namespace in a regular file at `path`.
    pub(crate) fn beside(&self, path: &Path) -> PathBuf {
        match self {
            Self::At(place) => place.clone(),
            Self::Beside => {
                let mut beside = path.as_os_str().to_owned();
                beside.push(".sums");
                beside.into()
            }
        }
    }

    /// The file for a namespace at `path`.
    fn path(&self, path: &Path, opener: &dyn FileOpener) -> io::Result<PathBuf> {
        match self {
            Self::At(place) => Ok(place.clone()),
            Self::Beside if opener.file_type(path)?.is_file() => Ok(self.beside(path)),
            Self::Beside => {
                let message = "the checksums of a block device need a file: checksums = \"PATH\"";
                Err(io::Error::new(ErrorKind::InvalidInput, message))
            }
        }
    }
}

/// The prefix of a backend's specification: `checked`, `checked=PATH`, `trim`, or two of them with a comma.
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
    /// Parses the `Display` form of [`Tracking`].
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
    /// Dropped before the inner backend.
    worker: Arc<Worker>,
    inner: Arc<dyn Backend>,
}

impl TrackedBackend {
    /// Tracks `inner`, whose blocks are in the file or device at `path`.
    ///
    /// # Errors
    /// If the block size is not 4 KiB, or the sums file cannot be opened.
    pub fn open(
        inner: Arc<dyn Backend>,
        path: &Path,
        tracking: &Tracking,
        opener: &dyn FileOpener,
    ) -> io::Result<Self> {
        let geometry = inner.geometry();
        if u64::from(geometry.block_size) != BLOCK {
            let message = "checksums and background trimming need a block size of 4096";
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        let bytes = geometry.blocks * BLOCK;
        let sums = tracking.sums.as_ref();
        let sums = sums.map(|place| open_sums(&place.path(path, opener)?, bytes, opener)).transpose()?;
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

/// Opens a sums file and logs its state.
fn open_sums(path: &Path, bytes: u64, opener: &dyn FileOpener) -> io::Result<SumsFile> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("the sums file {}: {error}", path.display()));
    let storage = open_file_by(path, opener).map_err(explain)?;
    let (file, found) = SumsFile::open(Box::new(storage), bytes).map_err(explain)?;
    let (sums, ranges) = (path.display(), file.marked().len());
    match found {
        OpenState::Clean => tracing::debug!(%sums, ranges, "checksums opened; ranges to be summed again"),
        OpenState::New => tracing::info!(%sums, ranges, "new checksums: every range will be summed"),
        OpenState::Unclean => tracing::warn!(
            %sums,
            ranges,
            "the namespace was not closed cleanly: ranges with recent writes are summed again without verification"
        ),
        OpenState::Reset(why) => {
            tracing::warn!(%sums, %why, "unusable checksums: every range is summed again without verification");
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

    fn access(&self) -> Option<Access> {
        self.inner.access()
    }

    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let inner = self.inner.open_channel(depth)?;
        let reads_zeroes = self.inner.geometry().deallocated_reads_zero;
        let worker = Arc::clone(&self.worker);
        Ok(Box::new(TrackedChannel::new(inner, Arc::clone(&self.tracker), worker, depth, reads_zeroes)))
    }

    /// A tracked namespace keeps its size.
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        let now = self.inner.geometry();
        if blocks.is_none_or(|blocks| blocks == now.blocks) {
            return Ok(now);
        }
        let message = "a namespace with checksums or trim = \"background\" cannot be resized: remove it, \
            resize its file, and add it again; its checksums are then created again";
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
