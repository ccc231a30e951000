//! `pilotlight restore`: restores settings of the machine that a killed run has changed.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use pilotlight_actuators::Roots;
use pilotlight_actuators::changes::{Error, Options, RestoreReport, find, folder, folder_below, removes, restore};
use serde::Serialize;

use crate::console;
use crate::exit::Exit;

/// The long help.
pub const ABOUT: &str = "\
Restore the settings that a killed run has changed on the machine.

Before a run changes a scheduler, a frequency, a power limit or a drive's power state, it records the old value in a journal. It restores \
the value when it ends, also on a signal or an error. After `kill -9` or a crash, this command restores it.";

const EXAMPLES: &str = "\
Examples:
  PROGRAM restore                       all settings that killed runs have changed
  PROGRAM restore --dry-run             only print what would be restored
  PROGRAM restore --force               also settings changed by others, and kept power limits
  PROGRAM restore /run/pilotlight/changes/4711-98765.jsonl

Journals are in /run/pilotlight/changes for root, in $XDG_RUNTIME_DIR/pilotlight/changes for others. Journals of
running processes are skipped. A setting that another process has changed since is reported and not restored,
unless --force is given; so are power limits of a server with `keep_limits`, which the next server restores. To keep
the present settings, remove the journal. Links and other files are refused.

Exit codes:
  0  everything but kept power limits is restored, or there was nothing to restore
  1  a setting could not be restored; its journal is kept
  2  the command line was refused";

/// Examples and exit codes, for the help text of `program`.
#[must_use]
pub fn examples(program: &str) -> String {
    EXAMPLES.replace("PROGRAM", program)
}

/// Where journals of root are.
const ROOTS_FOLDER: &str = "/run/pilotlight/changes";

/// Options of `pilotlight restore`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_help = "Run with --help for examples and exit codes.")]
pub struct RestoreArgs {
    /// One journal [default: all journals]
    journal: Option<PathBuf>,

    /// Also restore settings that another process has changed since, and power limits that `keep_limits` keeps
    #[arg(long)]
    force: bool,

    /// Only print what would be restored, and whether the journal would be removed
    #[arg(long)]
    dry_run: bool,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,

    /// For tests: the folder below which /sys, /proc, /dev and journals are
    #[arg(long, hide = true, value_name = "FOLDER")]
    roots: Option<PathBuf>,
}

/// The result for one journal.
#[derive(Debug, Serialize)]
struct Report {
    journal: PathBuf,
    /// Its process still runs: nothing was done.
    running: bool,
    changes: Vec<RestoreReport>,
    /// Dry run.
    dry_run: bool,
    /// The journal is removed; in a dry run: it would be.
    removed: bool,
    /// Why not all settings are restored.
    error: Option<String>,
}

/// Restores settings. `program` is the name in messages.
///
/// # Errors
/// The folder of journals cannot be read, or standard output cannot be written.
pub fn run(args: &RestoreArgs, program: &str) -> anyhow::Result<Exit> {
    let options = Options { force: args.force, leaves_limits: !args.force, dry_run: args.dry_run };
    let roots = args.roots.as_ref().map_or_else(Roots::default, Roots::below);
    let folder = args.roots.as_ref().map_or_else(folder, folder_below);
    let journals = match &args.journal {
        Some(journal) => vec![journal.clone()],
        None => find(&folder).context("cannot find journals")?,
    };
    let reports: Vec<Report> = journals.iter().map(|journal| one(journal, &roots, options, program)).collect();
    if args.json {
        console::println(serde_json::to_string(&reports)?)?;
    } else {
        let unseen = of_root(&folder, Path::new(ROOTS_FOLDER), program);
        let unseen = unseen.filter(|_| args.journal.is_none() && args.roots.is_none());
        console::print(text(&reports, &folder) + &unseen.map_or(String::new(), |note| note + "\n"))?;
    }
    let named = args.journal.is_some();
    let undone = |report: &Report| report.error.is_some() && (named || !report.running);
    Ok(if reports.iter().any(undone) { Exit::Failed } else { Exit::Clean })
}

fn one(journal: &Path, roots: &Roots, options: Options, program: &str) -> Report {
    let (running, changes, error) = match restore(journal, roots, options) {
        Ok(changes) => (false, changes, None),
        Err(error @ Error::Lives { .. }) => (true, Vec::new(), Some(error.to_string())),
        Err(Error::NotBack(changes)) => (false, changes, Some(remains(journal, program))),
        Err(error) => (false, Vec::new(), Some(error.to_string())),
    };
    let removed = error.is_none() && removes(&changes);
    Report { journal: journal.to_owned(), running, changes, dry_run: options.dry_run, removed, error }
}

/// A hint for users other than root: journals of root are in another directory.
fn of_root(own: &Path, of_root: &Path, program: &str) -> Option<String> {
    let nothing = || find(of_root).is_ok_and(|journals| journals.is_empty());
    if own == of_root || nothing() {
        return None;
    }
    Some(format!("journals of root, if any, are in {}: `sudo {program} restore`", of_root.display()))
}

fn remains(journal: &Path, program: &str) -> String {
    let journal = journal.display();
    format!(
        "not all settings are restored; {journal} is kept: `{program} restore --force` also restores settings changed by another process"
    )
}

fn text(reports: &[Report], folder: &Path) -> String {
    if reports.is_empty() {
        return format!("nothing to restore: no journal in {}\n", folder.display());
    }
    let mut text = String::new();
    for report in reports {
        let Report { journal, changes, error, .. } = report;
        let nothing = changes.is_empty() && error.is_none();
        text += &format!("{}{}\n", journal.display(), if nothing { ": nothing had been changed" } else { "" });
        changes.iter().for_each(|back| text += &format!("  {back}\n"));
        text += &error.as_ref().map_or_else(|| file(report), |error| format!("  {error}\n"));
    }
    text
}

/// The result for a journal that could be read.
fn file(report: &Report) -> String {
    let fate = match (report.dry_run, report.removed) {
        (true, true) => "this journal would then be removed",
        (true, false) => "this journal would stay",
        (false, true) => "this journal is removed",
        (false, false) => "this journal stays",
    };
    format!("  {fate}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_journal_is_reported() {
        let report = one(Path::new("/no/such.jsonl"), &Roots::default(), Options::default(), "p");
        assert!(!report.running && report.changes.is_empty());
        assert!(report.error.as_deref().is_some_and(|error| error.contains("/no/such.jsonl")), "{report:?}");
        assert!(text(&[], Path::new("/run")).starts_with("nothing to restore"));
    }

    #[test]
    fn other_users_get_a_hint_about_journals_of_root() {
        let folder = tempfile::tempdir().unwrap();
        let (own, roots) = (folder.path().join("own"), folder.path().join("roots"));
        assert_eq!(of_root(&own, &roots, "p"), None, "there is no such folder");
        std::fs::create_dir(&roots).unwrap();
        assert_eq!(of_root(&own, &roots, "p"), None, "there is nothing in it");
        std::fs::write(roots.join("1.jsonl"), "").unwrap();
        assert!(of_root(&own, &roots, "p").is_some_and(|note| note.contains("sudo p restore")));
        assert_eq!(of_root(&roots, &roots, "p"), None, "root sees them");
        // no permission, as for a journal of root
        assert!(of_root(&own, &roots.join("1.jsonl"), "p").is_some());
    }
}
