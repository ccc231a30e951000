//! Steps of a change.

use std::path::PathBuf;

use super::setting::Setting;

/// One step of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Set with a journal entry.
    Set(Setting, String),
    /// A limit of a cgroup created here, which is removed with it.
    Limit(PathBuf, String),
    /// Threads to move to a cgroup created here, by its list of threads.
    Threads(PathBuf, Vec<u32>),
    /// A journal entry only: the kernel changes the setting with the next step.
    Keep(Setting),
    /// Check that the setting has this value.
    Confirm(Setting, String),
}
