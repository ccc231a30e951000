//! Backends as an operator writes them: `mem:1GiB`, `file:/srv/disk.img`, `null:1GiB`.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::file::{FileBackend, FileError, FileOptions};
use super::{Backend, MemoryBackend, MemoryBudget, NullBackend};

/// What holds a namespace's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendSpec {
    /// Memory of so many bytes.
    Memory(u64),
    /// A file or block device.
    File(PathBuf),
    /// Nothing, of so many bytes.
    Null(u64),
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, bytes) = match self {
            Self::Memory(bytes) => ("mem", *bytes),
            Self::File(path) => return write!(f, "file:{}", path.display()),
            Self::Null(bytes) => ("null", *bytes),
        };
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.iter().find(|(_, unit)| bytes.is_multiple_of(*unit)) {
            Some((name, unit)) => write!(f, "{kind}:{}{name}", bytes / unit),
            None => write!(f, "{kind}:{bytes}"),
        }
    }
}

/// A backend specification that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no backend; write mem:SIZE, file:PATH or null:SIZE, as in mem:1GiB")]
pub struct SpecError(String);

/// A backend that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused memory or a thread.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FromStr for BackendSpec {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = || SpecError(text.into());
        let (kind, size) = text.split_once(':').ok_or_else(wrong)?;
        if kind == "file" && !size.is_empty() {
            return Ok(Self::File(size.into()));
        }
        let at = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
        let unit = match &size[at..] {
            "" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1u64 << 30,
            _ => return Err(wrong()),
        };
        let bytes = size[..at].parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)?;
        match kind {
            "mem" => Ok(Self::Memory(bytes)),
            "null" => Ok(Self::Null(bytes)),
            _ => Err(wrong()),
        }
    }
}

/// Opens a backend.
///
/// # Errors
/// If the system refuses.
pub fn open(spec: &BackendSpec, block_size: u32, budget: &Arc<MemoryBudget>) -> Result<Arc<dyn Backend>, OpenError> {
    Ok(match spec {
        BackendSpec::Memory(bytes) => {
            Arc::new(MemoryBackend::new(block_size, bytes / u64::from(block_size), Arc::clone(budget))?)
        }
        BackendSpec::File(path) => {
            Arc::new(FileBackend::open(&FileOptions { path: path.clone(), block_size, size: None })?)
        }
        BackendSpec::Null(bytes) => Arc::new(NullBackend::new(block_size, bytes / u64::from(block_size))?),
    })
}
