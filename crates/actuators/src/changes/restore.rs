//! Restores the changes of a journal.
//!
//! Changes are restored in reverse order. Each value is checked first: an old value is kept, a missing setting is skipped, and a value
//! that is neither the old one nor the one set was changed by another process; it is reported and kept, unless forced. After a restart
//! of the machine nothing remains to be restored, as all settings are volatile.

use std::path::Path;

use pilotlight_drive::Roots;

use super::error::Error;
use super::journal::{Entry, Journal};
use super::kernel::{Kernel, Linux};
use super::report::{Outcome, RestoreReport};
use super::setting::Setting;

/// Options of restoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Also overwrite values that another process has set meanwhile.
    pub force: bool,
    /// Leave power limits that are to stay when their process is killed ([`Changes::keep_limits`](super::Changes::keep_limits)), and their
    /// journal.
    pub leaves_limits: bool,
    /// Only report; nothing is written, not even to the journal.
    pub dry_run: bool,
}

/// Restores the changes of a journal whose process has ended, and removes the journal.
///
/// # Errors
/// The journal cannot be read or belongs to another user or a running process; or [`Error::NotBack`] with a report of each change.
pub fn restore(journal: &Path, roots: &Roots, options: Options) -> Result<Vec<RestoreReport>, Error> {
    restore_with(journal, roots, options, &mut Linux)
}

/// [`restore`] on another kernel.
///
/// # Errors
/// As of [`restore`].
pub fn restore_with(
    path: &Path,
    roots: &Roots,
    options: Options,
    kernel: &mut dyn Kernel,
) -> Result<Vec<RestoreReport>, Error> {
    let (mut journal, contents) = Journal::open(path)?;
    if let Some(process) = contents.process.as_ref().filter(|process| process.lives(&roots.proc)) {
        return Err(Error::Lives { path: path.to_owned(), pid: Some(process.pid) });
    }
    let restarted = contents.process.is_some_and(|process| !process.is_of_this_boot(&roots.proc));
    let outcome = if restarted { Some(Outcome::Restarted) } else { None };
    let all = restore_in_order(&contents.entries, |entry| {
        let back = match &outcome {
            Some(outcome) => report(entry, None, outcome.clone()),
            None => restore_entry(entry, roots, options, kernel),
        };
        if !options.dry_run && back.outcome.is_settled() {
            // If this fails, the next restore finds the setting unchanged.
            let _ = journal.back(entry.id);
        }
        back
    });
    if options.dry_run {
        return Ok(all);
    }
    settle(&journal, all)
}

/// Removes the journal if all changes are settled; with limits that were left it stays.
pub(super) fn settle(journal: &Journal, all: Vec<RestoreReport>) -> Result<Vec<RestoreReport>, Error> {
    if all.iter().all(|back| back.outcome.is_settled()) {
        journal.remove()?;
    } else if !all.iter().all(|back| back.outcome.is_settled() || back.outcome == Outcome::Left) {
        return Err(Error::NotBack(all));
    }
    Ok(all)
}

/// Restores entries, the latest first, affinity last; returns their reports in the same order. A failed entry is retried after the others,
/// as for two bounds that must not cross.
pub(super) fn restore_in_order(
    entries: &[Entry],
    mut restore_one: impl FnMut(&Entry) -> RestoreReport,
) -> Vec<RestoreReport> {
    let mut all: Vec<Option<RestoreReport>> = vec![None; entries.len()];
    for affinity in [false, true] {
        let is_one = |entry: &&Entry| matches!(entry.setting, Setting::Affinity { .. }) == affinity;
        let mut these: Vec<(&Entry, &mut Option<RestoreReport>)> =
            entries.iter().rev().zip(&mut all).filter(|(entry, _)| is_one(entry)).collect();
        these.iter_mut().for_each(|(entry, back)| **back = Some(restore_one(entry)));
        let outcome = |back: &Option<RestoreReport>| back.as_ref().map(|back| back.outcome.clone());
        if these.iter().any(|(_, back)| outcome(back) == Some(Outcome::Restored)) {
            let failed = these.iter_mut().filter(|(_, back)| matches!(outcome(back), Some(Outcome::Failed(_))));
            failed.for_each(|(entry, back)| **back = Some(restore_one(entry)));
        }
    }
    all.into_iter().flatten().collect()
}

/// Restores one entry.
pub(super) fn restore_entry(entry: &Entry, roots: &Roots, options: Options, kernel: &mut dyn Kernel) -> RestoreReport {
    let Entry { setting, before, done, .. } = entry;
    if !setting.is_within(roots) {
        return report(entry, None, Outcome::Failed(Error::Outside(setting.to_string()).to_string()));
    }
    if setting.is_gone(kernel) {
        return report(entry, None, Outcome::Gone);
    }
    let found = match setting.read(kernel) {
        Ok(found) => found,
        Err(error) => return report(entry, None, Outcome::Failed(format!("cannot read it: {error}"))),
    };
    let foreign = !setting.drifts() && done.as_ref().is_some_and(|done| !setting.same(&found, done));
    let outcome = match (setting.same(&found, before), foreign && !options.force, options.dry_run) {
        (true, ..) => Outcome::Unchanged,
        (_, true, _) => Outcome::ChangedElsewhere,
        _ if entry.outlasts && options.leaves_limits => Outcome::Left,
        (.., true) => Outcome::DryRun,
        _ => set(entry, kernel),
    };
    report(entry, Some(found), outcome)
}

fn set(Entry { setting, before, .. }: &Entry, kernel: &mut dyn Kernel) -> Outcome {
    if let Err(error) = setting.set(kernel, before) {
        return Outcome::Failed(error.to_string());
    }
    match setting.read(kernel) {
        Ok(now) if setting.satisfies(&now, before) => Outcome::Restored,
        Ok(_) => Outcome::Failed("the kernel ignored the value".into()),
        Err(error) => Outcome::Failed(format!("cannot read it: {error}")),
    }
}

fn report(entry: &Entry, found: Option<String>, outcome: Outcome) -> RestoreReport {
    let Entry { setting, before, .. } = entry;
    let found = found.map(|found| setting.shown(&found));
    RestoreReport { setting: setting.to_string(), before: setting.shown(before), found, outcome }
}
