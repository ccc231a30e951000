//! Results folders and the statistics of their measurements.

pub mod environment;
pub mod folder;
pub mod idle;
pub mod journal;
pub mod samples;
pub mod simulated;
pub mod summary;
pub mod values;

use std::path::{Path, PathBuf};

use crate::stored::values::ResultsError;

pub use folder::Folder;
pub use summary::Results;

/// A results folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// A file is damaged.
    #[error("{path}: {why}")]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The values of all runs cannot be read or written.
    #[error(transparent)]
    Numbers(#[from] ResultsError),
    /// It is locked.
    #[error("{0}: another run uses this folder; wait for its end, or specify another --out")]
    InUse(PathBuf),
    /// The folder holds another run.
    #[error(
        "{path} contains a run of another experiment ({title:?}) or of an earlier version of this one; specify another --out"
    )]
    Other {
        /// Its path.
        path: PathBuf,
        /// Title of that experiment.
        title: String,
    },
    /// The folder holds another share of the run.
    #[error("{0} contains another share of this run; specify another --out")]
    OtherShare(PathBuf),
    /// The folder holds a run on another host, or on a simulated machine with other constants.
    #[error("{path} contains results of another machine ({differing}); specify another --out, or remove the folder")]
    OtherMachine {
        /// Its path.
        path: PathBuf,
        /// The difference.
        differing: String,
    },
    /// The folder holds something else.
    #[error("{path} contains {found:?}, which is not of a run; specify another --out")]
    NotARun {
        /// Its path.
        path: PathBuf,
        /// A file in it.
        found: String,
    },
}

impl FolderError {
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }

    /// Whether the folder was refused. Then nothing was written.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::InUse(_)
                | Self::OtherShare(_)
                | Self::Other { .. }
                | Self::OtherMachine { .. }
                | Self::NotARun { .. }
        )
    }
}
