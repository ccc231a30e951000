//! Backend specifications: syntax, and opening.
//!
//! | specification | backend |
//! |---|---|
//! | `mem:1GiB` | memory, sparse, lost when the server ends |
//! | `mem:1GiB,hugepages` | memory, allocated when it is opened, in huge pages |
//! | `file:PATH` | an existing file or block device |
//! | `file:PATH?size=10GiB` | a file; a missing one is created, an existing one must have this size |
//! | `file:PATH?read-only` | an existing file or block device that hosts cannot change, and that is not opened for writing |
//! | `null:1GiB` | no storage: writes are discarded, reads are zeroes |
//! | `checked:file:PATH`, `checked=SUMS:file:PATH` | a file or block device with checksums, in `PATH.sums` or `SUMS` |
//! | `trim:file:PATH`, `checked,trim:file:PATH` | a file or block device with background trimming of freed ranges |
//! | `delay:50us-2ms:SPEC`, `delay:2ms,seed=7:SPEC` | another backend, delayed and reordered, for tests |

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use pilotlight_input::quantity::{self, TIMES};

use super::file::FileError;
use super::{
    Backend, DelayBackend, Delays, DirectOpener, FileBackend, FileOpener, FileOptions, MemoryBackend, MemoryBudget,
    NullBackend, SizeError, format_size, parse_size,
};
use crate::background::tracked::{SumsPlace, TrackedBackend, Tracking};

/// The end of the specification of a file or device that is opened for reading alone.
const READ_ONLY: &str = "?read-only";

/// A backend specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendSpec {
    /// Sparse memory: bytes.
    Memory(u64),
    /// Memory allocated when it is opened, in huge pages: bytes.
    HugePages(u64),
    /// No storage: bytes.
    Null(u64),
    /// A file or block device.
    File {
        /// Its path.
        path: PathBuf,
        /// Size in bytes: a missing file is created, an existing one must have this size.
        size: Option<u64>,
    },
    /// An existing file or block device, for reading alone: its path.
    ReadOnlyFile(PathBuf),
    /// A file or block device with checksums or background trimming.
    Tracked {
        /// The tracked properties.
        tracking: Tracking,
        /// The file or device.
        inner: Box<BackendSpec>,
    },
    /// Another backend with delays.
    Delay {
        /// The delays.
        delays: Delays,
        /// The other backend.
        inner: Box<BackendSpec>,
    },
}

/// Error of a backend specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Unknown kind.
    #[error("'{0}' is not a backend: use mem:SIZE, file:PATH or null:SIZE, as in mem:1GiB")]
    Kind(String),
    /// Tracking of a backend other than a file or device.
    #[error("'{0}': checksums and background trimming need a file or block device that is written")]
    Tracked(String),
    /// The size.
    #[error("in '{spec}': {source}")]
    Size {
        /// The whole specification.
        spec: String,
        /// The error of the size.
        r#source: SizeError,
    },
    /// The path is missing.
    #[error("'{0}' has no path: use file:PATH, as in file:/srv/disk.img")]
    NoPath(String),
    /// A size of a file that is not written.
    #[error("'{0}': a file or device that is not written keeps its size: omit ?size=")]
    ReadOnlySize(String),
    /// The delay.
    #[error(
        "'{0}' is not a delay: use delay:LONGEST:SPEC or delay:SHORTEST-LONGEST,seed=N:SPEC, as in delay:50us-2ms:mem:1GiB (units: ns, us, ms, s)"
    )]
    Delay(String),
}

/// Why a backend cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or device.
    #[error(transparent)]
    File(#[from] FileError),
    /// Anything else.
    #[error("{spec}: {source}")]
    System {
        /// The specification.
        spec: String,
        /// The system's error.
        r#source: io::Error,
    },
}

impl BackendSpec {
    /// Its file or device, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } | Self::ReadOnlyFile(path) => Some(path),
            Self::Delay { inner, .. } | Self::Tracked { inner, .. } => inner.path(),
            Self::Memory(_) | Self::HugePages(_) | Self::Null(_) => None,
        }
    }

    /// All files that it opens: its file or device, and that of its checksums.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::File { path, .. } | Self::ReadOnlyFile(path) => vec![path.clone()],
            Self::Delay { inner, .. } => inner.files(),
            Self::Tracked { tracking, inner } => {
                let path = inner.path().unwrap_or(Path::new(""));
                let sums = tracking.sums.as_ref().map(|place| place.beside(path));
                inner.files().into_iter().chain(sums).collect()
            }
            Self::Memory(_) | Self::HugePages(_) | Self::Null(_) => Vec::new(),
        }
    }

    /// Whether its file or device is not opened for writing.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::ReadOnlyFile(_) => true,
            Self::Delay { inner, .. } | Self::Tracked { inner, .. } => inner.is_read_only(),
            Self::File { .. } | Self::Memory(_) | Self::HugePages(_) | Self::Null(_) => false,
        }
    }

    /// The size in bytes, if specified.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Memory(size) | Self::HugePages(size) | Self::Null(size) => Some(*size),
            Self::File { size, .. } => *size,
            Self::ReadOnlyFile(_) => None,
            Self::Delay { inner, .. } | Self::Tracked { inner, .. } => inner.size(),
        }
    }

    /// Replaces the size in bytes, if specified.
    pub fn set_size(&mut self, bytes: u64) {
        match self {
            Self::Memory(size) | Self::HugePages(size) | Self::Null(size) => *size = bytes,
            Self::File { size, .. } => *size = size.map(|_| bytes),
            Self::ReadOnlyFile(_) => {}
            Self::Delay { inner, .. } | Self::Tracked { inner, .. } => inner.set_size(bytes),
        }
    }

    /// Whether it is equal to `other` except for the size.
    pub fn is_same_storage(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { path: a, .. }, Self::File { path: b, .. }) => a == b,
            (Self::Delay { delays: a, inner: x }, Self::Delay { delays: b, inner: y }) => {
                a == b && x.is_same_storage(y)
            }
            (Self::Tracked { tracking: a, inner: x }, Self::Tracked { tracking: b, inner: y }) => {
                a == b && x.is_same_storage(y)
            }
            (a, b) => {
                let mut resized = a.clone();
                b.size().into_iter().for_each(|bytes| resized.set_size(bytes));
                resized == *b
            }
        }
    }

    /// Maximum memory in bytes.
    pub fn memory(&self) -> u64 {
        match self {
            Self::Memory(size) | Self::HugePages(size) => *size,
            Self::Delay { inner, .. } => inner.memory(),
            Self::Null(_) | Self::File { .. } | Self::ReadOnlyFile(_) | Self::Tracked { .. } => 0,
        }
    }

    /// Memory in bytes when it is opened.
    pub fn preallocated_memory(&self) -> u64 {
        match self {
            Self::HugePages(size) => *size,
            Self::Delay { inner, .. } => inner.preallocated_memory(),
            Self::Memory(_) | Self::Null(_) | Self::File { .. } | Self::ReadOnlyFile(_) | Self::Tracked { .. } => 0,
        }
    }

    /// The same backend with sparse memory.
    #[must_use]
    pub fn without_preallocation(self) -> Self {
        match self {
            Self::HugePages(size) => Self::Memory(size),
            Self::Delay { delays, inner } => Self::Delay { delays, inner: Box::new(inner.without_preallocation()) },
            other => other,
        }
    }

    /// The same backend with relative paths resolved against `base`.
    #[must_use]
    pub fn relative_to(self, base: &Path) -> Self {
        match self {
            Self::File { path, size } => Self::File { path: base.join(path), size },
            Self::ReadOnlyFile(path) => Self::ReadOnlyFile(base.join(path)),
            Self::Delay { delays, inner } => Self::Delay { delays, inner: Box::new(inner.relative_to(base)) },
            Self::Tracked { mut tracking, inner } => {
                if let Some(SumsPlace::At(path)) = &mut tracking.sums {
                    *path = base.join(&path);
                }
                Self::Tracked { tracking, inner: Box::new(inner.relative_to(base)) }
            }
            other => other,
        }
    }
}

impl FromStr for BackendSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let size_of = |size: &str| parse_size(size).map_err(|source| SpecError::Size { spec: text.to_owned(), source });
        match text.split_once(':') {
            Some(("mem", rest)) => match rest.strip_suffix(",hugepages") {
                Some(size) => Ok(Self::HugePages(size_of(size)?)),
                None => Ok(Self::Memory(size_of(rest)?)),
            },
            Some(("null", size)) => Ok(Self::Null(size_of(size)?)),
            Some(("file", rest)) => {
                let is_read_only = rest.ends_with(READ_ONLY);
                let rest = rest.strip_suffix(READ_ONLY).unwrap_or(rest);
                let (path, size) = match rest.rsplit_once("?size=") {
                    Some((path, size)) => (path, Some(size_of(size)?)),
                    None => (rest, None),
                };
                match size {
                    _ if path.is_empty() => Err(SpecError::NoPath(text.to_owned())),
                    Some(_) if is_read_only => Err(SpecError::ReadOnlySize(text.to_owned())),
                    None if is_read_only => Ok(Self::ReadOnlyFile(path.into())),
                    _ => Ok(Self::File { path: path.into(), size }),
                }
            }
            Some(("delay", rest)) => {
                let wrong = || SpecError::Delay(text.to_owned());
                let (delays, inner) = rest.split_once(':').ok_or_else(wrong)?;
                let delays = parse_delays(delays).ok_or_else(wrong)?;
                Ok(Self::Delay { delays, inner: Box::new(inner.parse()?) })
            }
            Some((words, inner)) => {
                let tracking = Tracking::parse(words).ok_or_else(|| SpecError::Kind(text.to_owned()))?;
                match inner.parse()? {
                    inner @ Self::File { .. } => Ok(Self::Tracked { tracking, inner: Box::new(inner) }),
                    _ => Err(SpecError::Tracked(text.to_owned())),
                }
            }
            None => Err(SpecError::Kind(text.to_owned())),
        }
    }
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(size) => write!(f, "mem:{}", format_size(*size)),
            Self::HugePages(size) => write!(f, "mem:{},hugepages", format_size(*size)),
            Self::Null(size) => write!(f, "null:{}", format_size(*size)),
            Self::ReadOnlyFile(path) => write!(f, "file:{}{READ_ONLY}", path.display()),
            Self::File { path, size: None } => write!(f, "file:{}", path.display()),
            Self::File { path, size: Some(size) } => write!(f, "file:{}?size={}", path.display(), format_size(*size)),
            Self::Tracked { tracking, inner } => write!(f, "{tracking}:{inner}"),
            Self::Delay { delays: Delays { shortest_ns, longest_ns, seed }, inner } => {
                write!(f, "delay:{shortest_ns}ns-{longest_ns}ns,seed={seed}:{inner}")
            }
        }
    }
}

/// `LONGEST` or `SHORTEST-LONGEST`, with an optional `,seed=N`.
fn parse_delays(text: &str) -> Option<Delays> {
    let (times, seed) = match text.split_once(",seed=") {
        Some((times, seed)) => (times, seed.parse().ok()?),
        None => (text, 0),
    };
    let (shortest, longest) = times.split_once('-').unwrap_or(("0ns", times));
    let (shortest_ns, longest_ns) = (quantity::parse(shortest, TIMES).ok()?, quantity::parse(longest, TIMES).ok()?);
    (shortest_ns <= longest_ns).then_some(Delays { shortest_ns, longest_ns, seed })
}

/// Opens a backend with blocks of `block_size` bytes, as many as fit into its size; memory is charged to `budget`. A file
/// backend starts threads with the caller's CPU affinity. May block: not for reactors.
///
/// # Errors
/// The reason, with a remedy.
pub fn open(spec: &BackendSpec, block_size: u32, budget: &Arc<MemoryBudget>) -> Result<Arc<dyn Backend>, OpenError> {
    open_by(spec, block_size, budget, &DirectOpener)
}

/// [`open`] with an opener of files and devices.
///
/// # Errors
/// As [`open`].
pub fn open_by(
    spec: &BackendSpec,
    block_size: u32,
    budget: &Arc<MemoryBudget>,
    opener: &dyn FileOpener,
) -> Result<Arc<dyn Backend>, OpenError> {
    let system = |source| OpenError::System { spec: spec.to_string(), source };
    Ok(match spec {
        BackendSpec::Memory(size) => {
            let blocks = whole_blocks(*size, block_size);
            Arc::new(MemoryBackend::new(block_size, blocks, Arc::clone(budget)).map_err(system)?)
        }
        BackendSpec::HugePages(size) => {
            let blocks = whole_blocks(*size, block_size);
            Arc::new(MemoryBackend::preallocated(block_size, blocks, Arc::clone(budget)).map_err(system)?)
        }
        BackendSpec::Null(size) => {
            let blocks = whole_blocks(*size, block_size);
            Arc::new(NullBackend::new(block_size, blocks).map_err(system)?)
        }
        BackendSpec::File { path, size } => {
            let options = FileOptions { path: path.clone(), block_size, size: *size, is_read_only: false };
            Arc::new(FileBackend::open_by(&options, opener, Arc::clone(budget))?)
        }
        BackendSpec::ReadOnlyFile(path) => {
            let options = FileOptions { path: path.clone(), block_size, size: None, is_read_only: true };
            Arc::new(FileBackend::open_by(&options, opener, Arc::clone(budget))?)
        }
        BackendSpec::Tracked { tracking, inner } => {
            let below = open_by(inner, block_size, budget, opener)?;
            let path = inner.path().unwrap_or(Path::new(""));
            Arc::new(TrackedBackend::open(below, path, tracking, opener).map_err(system)?)
        }
        BackendSpec::Delay { delays, inner } => {
            Arc::new(DelayBackend::new(open_by(inner, block_size, budget, opener)?, *delays))
        }
    })
}

/// The number of whole blocks; the backend refuses invalid block sizes.
fn whole_blocks(size: u64, block_size: u32) -> u64 {
    size / u64::from(block_size.max(1))
}

#[cfg(test)]
mod tests;
