//! The folder of a run, and what is made of the measurements in it.

pub mod entry;
pub mod environment;
pub mod folder;
pub mod journal;
pub mod samples;
pub mod simulated;
pub mod summary;
pub mod values;

use std::path::{Path, PathBuf};

use pilotlight_results::values::ResultsError;

pub use folder::Folder;
pub use summary::Results;

/// A folder of results cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {why}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The numbers of all runs cannot be read or written.
    #[error(transparent)]
    Numbers(#[from] ResultsError),
    /// Somebody writes to it.
    #[error("{0}: another run goes on in this folder; wait for its end, or give another --out")]
    InUse(PathBuf),
    /// The folder holds another run.
    #[error(
        "{path} holds a run of another experiment ({title:?}), or of an earlier state of this one; give another --out"
    )]
    Other {
        /// Which folder.
        path: PathBuf,
        /// That experiment's title.
        title: String,
    },
    /// The folder holds a run on a computed machine of other values: its measurements would pass for those of this one.
    #[error("{path} holds results of another machine ({differing}); give another --out, or remove it")]
    OtherMachine {
        /// Which folder.
        path: PathBuf,
        /// What differs.
        differing: String,
    },
    /// The folder holds something else.
    #[error("{path} holds {found:?} and no run: nothing of it is to be overwritten; give another --out")]
    NotARun {
        /// Which folder.
        path: PathBuf,
        /// Something in it.
        found: String,
    },
}

impl FolderError {
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }

    /// Whether the folder is not this run's to write to. Then nothing was done.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::Other { .. } | Self::OtherMachine { .. } | Self::NotARun { .. })
    }
}
