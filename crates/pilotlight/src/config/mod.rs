//! From what the user wrote, on the command line or in a file, to a checked [`ServerConfig`].
//!
//! flags or file -> `keys::Draft` (values with their places) -> checked configuration, or all problems at once.

mod args;
mod caps;
mod edit;
mod file;
mod flags;
mod keys;
mod machine;
mod moment;
mod named;
pub(crate) mod nqn;
mod of_flags;
mod operation;
mod power;
mod problem;
mod schedule;
mod schema;
mod section;
mod storage;
mod tolerance;
mod units;
mod validate;

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use pilotlight_nvmf_target::config::{NamespaceConfig, ServerConfig};

pub(crate) use args::ServeArgs;
pub(crate) use caps::{Cap, Priority, format_cap, name_of, parse_cap, parse_minimum, parse_priority};
pub(crate) use edit::{Edit, addresses};
pub(crate) use machine::Machine;
pub(crate) use moment::format_moment;
pub(crate) use named::{Named, named_files};
pub(crate) use of_flags::of_flags;
pub(crate) use operation::{AdminSocket, Operation, Page, PageAddress, Reactors, SleepAfter, TokenFile};
pub(crate) use power::{
    BudgetRequest, SensorChoice, format_budget, format_idle, parse_budget_request, parse_energy_shares, parse_power,
};
use problem::{Located, Origin, Severity, Source};
pub(crate) use problem::{Problem, place_in};
pub(crate) use schedule::Schedule;
use storage::cause;
pub(crate) use storage::{file_size, is_same_medium};
pub(crate) use tolerance::{LatencyBound, NamespaceTolerance, format_tolerance, parse_tolerance};
pub(crate) use units::{format_cores, format_duration, parse_duration};
pub(crate) use validate::network::{parse_listener, parse_state};

use crate::privileges::Account;
use crate::privileges::files::{self, open_text};
use crate::{console, log};

/// A namespace by the NQN of its subsystem and its NSID.
pub(crate) type NamespaceName = (String, u32);

/// A valid configuration, and warnings about it.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The configuration.
    pub(crate) config: ServerConfig,
    /// How the program runs it.
    pub(crate) operation: Operation,
    /// Namespaces that may become smaller while the server runs.
    pub(crate) may_shrink: Vec<NamespaceName>,
    warnings: Vec<Problem>,
    source: Option<Source>,
}

impl Loaded {
    /// The text of the file that it was read from.
    pub(crate) fn text(&self) -> Option<&str> {
        self.source.as_ref().map(|source| source.text.as_str())
    }

    /// The warnings as text; empty if there are none.
    #[cfg(test)]
    pub(crate) fn warnings(&self, colour: bool) -> String {
        self.render(&self.warnings, colour)
    }

    /// Prints the warnings to standard error.
    pub(crate) fn print_warnings(&self) {
        print_problems(&self.warnings, self.source.as_ref());
    }

    /// Problems that were found with it, as text for a terminal.
    pub(crate) fn render(&self, problems: &[Problem], colour: bool) -> String {
        problem::render_all(problems, self.source.as_ref(), colour)
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub(crate) struct ConfigError {
    problems: Vec<Problem>,
    source: Option<Source>,
}

impl ConfigError {
    /// The errors as text.
    pub(crate) fn render(&self, colour: bool) -> String {
        problem::render_all(&self.problems, self.source.as_ref(), colour)
    }

    /// Says what is wrong, on standard error.
    pub(crate) fn print(&self) {
        print_problems(&self.problems, self.source.as_ref());
    }
}

/// Says problems as text that quotes the file, or as lines of a log that a program reads.
fn print_problems(problems: &[Problem], source: Option<&Source>) {
    if log::is_for_people() {
        console::eprint(problem::render_all(problems, source, log::colour()));
    } else {
        problem::log_all(problems, source);
    }
}

/// Reads and checks the configuration of the flags, or of the file that they name.
pub(crate) fn load(args: &ServeArgs, machine: &Machine) -> Result<Loaded, ConfigError> {
    match &args.config {
        Some(path) => load_file(args, path, machine),
        None => {
            let (draft, problems) = flags::read(args);
            check(&draft, problems, machine, Path::new(""), None)
        }
    }
}

fn load_file(args: &ServeArgs, path: &Path, machine: &Machine) -> Result<Loaded, ConfigError> {
    let name = path.display().to_string();
    let conflicts = flags::conflicts(args, &name);
    if !conflicts.is_empty() {
        return Err(ConfigError { problems: conflicts, source: None });
    }
    let text = text_of(path).map_err(|why| {
        let problem = Problem::error(&Origin::Flag("--config"), format!("{name}: {why}"));
        let help = "without --config the server needs no file at all; docs/configuration.md has one to start from";
        ConfigError { problems: vec![problem.help(help)], source: None }
    })?;
    load_text(args, path, text, machine)
}

/// Checks a text as the contents of this file.
pub(crate) fn load_text(args: &ServeArgs, path: &Path, text: String, machine: &Machine) -> Result<Loaded, ConfigError> {
    let (mut draft, problems) = file::read(&text);
    draft.roots.clone_from(&args.roots);
    draft.page_tick_ms = args.page_tick;
    let base = directory_of(path);
    check(&draft, problems, machine, &base, Some(Source { name: path.display().to_string(), text }))
}

/// The text of a regular file. Reading a pipe could block, and SIGHUP reads the file again.
pub(crate) fn text_of(path: &Path) -> anyhow::Result<String> {
    let message = |error: std::io::Error| anyhow!(cause(&error));
    let file = open_text(path).map_err(message)?;
    let meta = file.metadata().map_err(message)?;
    if meta.is_dir() {
        bail!("is a directory; name the file in it");
    }
    if !meta.is_file() {
        bail!(
            "is not a regular file, but is read again at SIGHUP: write a pipe's output, such as <(...), to a file first"
        );
    }
    std::io::read_to_string(file).map_err(message)
}

/// Where relative paths in the file start: the file's own directory, so that it means the same from everywhere.
fn directory_of(path: &Path) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Checks a draft. Of what could be read, only values are checked that do not depend on one that could not, so that an unknown `nqm` is not
/// followed by a missing `nqn`; and none if it is not known whose files the server may open.
fn check(
    draft: &keys::Draft,
    unreadable: Vec<Problem>,
    machine: &Machine,
    base: &Path,
    source: Option<Source>,
) -> Result<Loaded, ConfigError> {
    if unreadable.iter().any(Problem::hides_user) {
        return Err(ConfigError { problems: unreadable, source });
    }
    let _limit = draft.security.user.as_ref().map(|user| {
        let group = draft.security.group.as_ref().map(|group| group.value.as_str());
        files::as_user(Account::find(&user.value, group).ok())
    });
    let validate::Checked { config, operation, may_shrink, problems } = validate::validate(draft, machine, base);
    if !unreadable.is_empty() {
        let follow =
            |problem: &Problem| !problem.is_error() || unreadable.iter().any(|unread| problem.may_follow(unread));
        let own: Vec<Problem> = problems.into_iter().filter(|problem| !follow(problem)).collect();
        return Err(ConfigError { problems: [unreadable, own].concat(), source });
    }
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(ConfigError { problems, source });
    }
    Ok(Loaded { config, operation, may_shrink, warnings: problems, source })
}

/// A namespace for a running server, as it was requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNamespace<'a> {
    pub(crate) nsid: i64,
    pub(crate) backend: &'a str,
    /// In bytes; `None`: the default of the backend.
    pub(crate) block_size: Option<i64>,
    pub(crate) uuid: Option<&'a str>,
}

/// Checks a namespace to add to the `others` of a running server, by the rules of a configuration. Returns warnings too.
///
/// # Errors
/// The first problem; its flag is the field's name.
pub(crate) fn check_namespace<'a>(
    new: NewNamespace<'_>,
    others: impl Iterator<Item = &'a NamespaceConfig>,
    machine: &Machine,
) -> Result<(NamespaceConfig, Vec<String>), Problem> {
    let located = |field, value: &str| Located::new(value.to_owned(), Origin::Flag(field));
    let draft = keys::Namespace {
        at: Origin::Default,
        nsid: Some(Located::new(new.nsid, Origin::Flag("nsid"))),
        backend: Some(located("backend", new.backend)),
        block_size: new.block_size.map(|size| Located::new(size, Origin::Flag("block_size"))),
        uuid: new.uuid.map(|uuid| located("uuid", uuid)),
        ..keys::Namespace::default()
    };
    let (namespace, problems) = validate::validate_namespace(&draft, others, machine);
    if let Some(problem) = problems.iter().find(|problem| problem.is_error()) {
        return Err(problem.clone());
    }
    let notes = problems.into_iter().map(|problem| problem.what).collect();
    let none = || Problem::error(&Origin::Flag("backend"), "there is no storage");
    namespace.map(|namespace| (namespace, notes)).ok_or_else(none)
}

/// A note if the namespaces in memory of a running server cannot all be filled.
pub(crate) fn note_overcommitment(config: &ServerConfig) -> Option<String> {
    let Problem { what, help, .. } = validate::overcommitment(config, &Origin::Default)?;
    Some(format!("{what}: {}", help.join("; ")))
}

#[cfg(test)]
pub(crate) mod tests;
