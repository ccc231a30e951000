//! Results of restoring changes.

use std::fmt;

use serde::Serialize;

/// Result of restoring one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// The setting.
    pub setting: String,
    /// Its value before the change.
    pub before: String,
    /// Its value before restoring; `None` if it could not be read.
    pub found: Option<String>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Outcome of restoring one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "why")]
pub enum Outcome {
    /// The setting was restored.
    Restored,
    /// It already had its old value.
    Unchanged,
    /// It no longer exists.
    Gone,
    /// The machine was restarted since.
    Restarted,
    /// It would be restored (`--dry-run`).
    DryRun,
    /// It is a power limit that stays until the next server starts.
    Left,
    /// Another process has changed it meanwhile; it was not restored.
    ChangedElsewhere,
    /// The kernel or the drive refused.
    Failed(String),
}

impl Outcome {
    /// Whether nothing remains to be done.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::ChangedElsewhere | Self::Failed(_) | Self::DryRun | Self::Left)
    }
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, before, found, outcome } = self;
        let found = found.as_deref().unwrap_or("unknown");
        match outcome {
            Outcome::Restored => write!(f, "{setting}: {found} -> {before}"),
            Outcome::DryRun => write!(f, "{setting}: {found} -> {before} (not done)"),
            Outcome::Unchanged => write!(f, "{setting}: already {before}"),
            Outcome::Gone => write!(f, "{setting}: no longer exists"),
            Outcome::Restarted => write!(f, "{setting}: the machine was restarted since; nothing to do"),
            Outcome::Left => {
                write!(
                    f,
                    "{setting}: stays {found} until a server starts (keep_limits), or with --force; it was {before}"
                )
            }
            Outcome::ChangedElsewhere => {
                write!(f, "{setting}: {found}, set by another process meanwhile; it was {before} before")
            }
            Outcome::Failed(why) => write!(f, "{setting}: still {found}, not {before}: {why}"),
        }
    }
}

/// Whether the journal is removed afterwards, or would be without a dry run: all changes are settled.
#[must_use]
pub fn removes(all: &[RestoreReport]) -> bool {
    all.iter().all(|back| back.outcome.is_settled() || back.outcome == Outcome::DryRun)
}
