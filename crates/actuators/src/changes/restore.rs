//! Putting back: the way from what a journal says to the machine as it was.
//!
//! Latest change first. Each value is looked at before it is set: what is already as it was is left alone, what is gone is
//! gone, and what is neither as it was nor as it was set has been changed by other hands: that is told and left, unless it is
//! forced. After a restart of the machine nothing is left to put back, as all of it is volatile.

use std::fmt;
use std::path::Path;

use pilotlight_drive::Roots;
use serde::Serialize;

use super::error::Error;
use super::journal::{Entry, Journal};
use super::kernel::{Kernel, Linux};
use super::place::Place;

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Back {
    /// What was changed.
    pub place: String,
    /// What it was before.
    pub before: String,
    /// What it was when it was to be put back; nothing if that could not be read.
    pub found: Option<String>,
    /// What was done.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What was done with one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "why")]
pub enum Outcome {
    /// It is as it was.
    Restored,
    /// It was already as before.
    Unchanged,
    /// It is no longer there.
    Gone,
    /// The machine has been restarted since.
    Restarted,
    /// It would be put back (`--dry-run`).
    Would,
    /// Someone else has changed it meanwhile; it is as they left it.
    Foreign,
    /// The kernel or the drive refused.
    Failed(String),
}

impl Outcome {
    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Foreign | Self::Failed(_) | Self::Would)
    }
}

impl fmt::Display for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, before, found, outcome } = self;
        let found = found.as_deref().unwrap_or("unknown");
        match outcome {
            Outcome::Restored => write!(f, "{place}: {found} -> {before}"),
            Outcome::Would => write!(f, "{place}: {found} -> {before} (not done)"),
            Outcome::Unchanged => write!(f, "{place}: already {before}"),
            Outcome::Gone => write!(f, "{place}: no longer there"),
            Outcome::Restarted => write!(f, "{place}: the machine has been restarted since; nothing to do"),
            Outcome::Foreign => {
                write!(f, "{place}: {found}, which someone else has set meanwhile; it was {before} before")
            }
            Outcome::Failed(why) => write!(f, "{place}: still {found}, not {before}: {why}"),
        }
    }
}

/// How to put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Also what someone else has changed meanwhile.
    pub force: bool,
    /// Only say what would be done: nothing is written, not even to the journal.
    pub dry_run: bool,
}

/// Whether the journal goes once this has been done, or would be in a dry run: it does when nothing in it is left.
#[must_use]
pub fn removes(all: &[Back]) -> bool {
    all.iter().all(|back| back.outcome.is_settled() || back.outcome == Outcome::Would)
}

/// Puts back what a journal says, unless the process that wrote it still lives; removes the journal when all is back.
///
/// # Errors
/// The journal cannot be read or is another's; or [`Error::NotBack`], with what became of each change.
pub fn restore(journal: &Path, roots: &Roots, options: Options) -> Result<Vec<Back>, Error> {
    restore_with(journal, roots, options, &mut Linux)
}

/// [`restore`] on another kernel.
///
/// # Errors
/// As of [`restore`].
pub fn restore_with(path: &Path, roots: &Roots, options: Options, kernel: &mut dyn Kernel) -> Result<Vec<Back>, Error> {
    let (mut journal, contents) = Journal::open(path)?;
    if let Some(process) = contents.process.as_ref().filter(|process| process.lives(&roots.proc)) {
        return Err(Error::Lives { path: path.to_owned(), pid: Some(process.pid) });
    }
    let restarted = contents.process.is_some_and(|process| !process.is_of_this_boot(&roots.proc));
    let outcome = if restarted { Some(Outcome::Restarted) } else { None };
    let all = put_all_back(&contents.entries, |entry| {
        let back = match &outcome {
            Some(outcome) => told(entry, None, outcome.clone()),
            None => put_back(entry, roots, options, kernel),
        };
        if !options.dry_run && back.outcome.is_settled() {
            // What cannot be noted is looked at once more another time, and found to be as it was.
            let _ = journal.back(entry.id);
        }
        back
    });
    if options.dry_run {
        return Ok(all);
    }
    settle(&journal, all)
}

/// Removes the journal if all is back.
pub(super) fn settle(journal: &Journal, all: Vec<Back>) -> Result<Vec<Back>, Error> {
    if !all.iter().all(|back| back.outcome.is_settled()) {
        return Err(Error::NotBack(all));
    }
    journal.remove()?;
    Ok(all)
}

/// Puts entries back, the latest first, affinity after all others; says what became of them, the latest first. What fails is tried once
/// more after the others: of two bounds that must not cross, the one that came too early finds room then.
pub(super) fn put_all_back(entries: &[Entry], mut put_back: impl FnMut(&Entry) -> Back) -> Vec<Back> {
    let mut all: Vec<Option<Back>> = vec![None; entries.len()];
    for affinity in [false, true] {
        let is_one = |entry: &&Entry| matches!(entry.place, Place::Affinity { .. }) == affinity;
        let mut these: Vec<(&Entry, &mut Option<Back>)> =
            entries.iter().rev().zip(&mut all).filter(|(entry, _)| is_one(entry)).collect();
        these.iter_mut().for_each(|(entry, back)| **back = Some(put_back(entry)));
        let outcome = |back: &Option<Back>| back.as_ref().map(|back| back.outcome.clone());
        if these.iter().any(|(_, back)| outcome(back) == Some(Outcome::Restored)) {
            let failed = these.iter_mut().filter(|(_, back)| matches!(outcome(back), Some(Outcome::Failed(_))));
            failed.for_each(|(entry, back)| **back = Some(put_back(entry)));
        }
    }
    all.into_iter().flatten().collect()
}

/// Puts one thing back.
pub(super) fn put_back(entry: &Entry, roots: &Roots, options: Options, kernel: &mut dyn Kernel) -> Back {
    let Entry { place, before, done, .. } = entry;
    if !place.is_within(roots) {
        return told(entry, None, Outcome::Failed(Error::Outside(place.to_string()).to_string()));
    }
    if place.is_gone(kernel) {
        return told(entry, None, Outcome::Gone);
    }
    let found = match place.read(kernel) {
        Ok(found) => found,
        Err(error) => return told(entry, None, Outcome::Failed(format!("cannot read it: {error}"))),
    };
    let foreign = !place.drifts() && done.as_ref().is_some_and(|done| !place.same(&found, done));
    let outcome = match (place.same(&found, before), foreign && !options.force, options.dry_run) {
        (true, ..) => Outcome::Unchanged,
        (_, true, _) => Outcome::Foreign,
        (.., true) => Outcome::Would,
        _ => set(entry, kernel).map_or_else(Outcome::Failed, |()| Outcome::Restored),
    };
    told(entry, Some(found), outcome)
}

fn set(entry: &Entry, kernel: &mut dyn Kernel) -> Result<(), String> {
    let Entry { place, before, .. } = entry;
    place.set(kernel, before).map_err(|error| error.to_string())?;
    let now = place.read(kernel).map_err(|error| format!("cannot read it: {error}"))?;
    if place.obeys(&now, before) { Ok(()) } else { Err("the kernel took the value and did nothing".into()) }
}

fn told(entry: &Entry, found: Option<String>, outcome: Outcome) -> Back {
    let Entry { place, before, .. } = entry;
    let found = found.map(|found| place.shown(&found));
    Back { place: place.to_string(), before: place.shown(before), found, outcome }
}
