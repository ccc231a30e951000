//! Stale results of both kinds of simulated machines.

use std::path::Path;

use pilotlight_lab::run::computed::host as on_host;
use pilotlight_lab::simulated::cells::Cells;
use pilotlight_lab::simulated::host;
use pilotlight_lab::simulated::stale::{self, NotCurrent};
use pilotlight_lab::stored::values::{Fingerprints, Provenance, Results, ResultsError};

/// Current cells of the experiment of results; `there` are the cells of the results.
///
/// # Errors
/// If it cannot be run any more.
pub(crate) fn current_cells(about: &Provenance, there: &Fingerprints, home: &Path) -> Result<Cells, NotCurrent> {
    if is_of_host(about, home) {
        return on_host::current(about, home).map_err(NotCurrent::Host);
    }
    stale::current_cells(about, there, home)
}

/// Results of either kind of machine.
pub(crate) fn read(path: &Path, home: &Path) -> Result<Results, ResultsError> {
    let results = Results::read_whole(path)?;
    let is_whole = results.about.is_measured() || is_of_host(&results.about, home);
    Ok(if is_whole { results } else { results.finished() })
}

/// The command that runs only stale results again.
pub(crate) fn remedy(about: &Provenance, there: &Fingerprints, path: &Path, home: &Path) -> String {
    let folder = path.parent().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).display();
    if about.file.is_empty() {
        return "run its experiment again".to_owned();
    }
    let file = stale::file_of(about, home);
    let (file, profile) = (file.strip_prefix(home).unwrap_or(&file).display(), &about.profile);
    if is_of_host(about, home) {
        let own = path.parent().unwrap_or(Path::new(".")).display();
        let set: String = about.overrides.set.iter().map(|(key, value)| format!(" --set '{key}={value}'")).collect();
        return format!(
            "remove {own} and run `pilotlab run {file}{set} --simulated profiles/{profile}.toml --out {own}`"
        );
    }
    let (choice, leaves_out) = stale::choice_of(there.keys().map(|cell| cell.variant.as_str()));
    let mut flags = String::new();
    let flag = |yes: bool, flag: String| if yes { flag } else { String::new() };
    flags += &flag(about.overrides.smoke, " --smoke".into());
    flags += &flag(choice.family, " --family".into());
    flags += &choice.perturb.map_or_else(String::new, |percent| format!(" --perturb {percent}"));
    flags += &flag(choice.draws > 0, format!(" --lhs {}", choice.draws));
    flags += &flag(leaves_out, " --leave-out".into());
    about.overrides.set.iter().for_each(|(key, value)| flags += &format!(" --set '{key}={value}'"));
    format!("run `pilotlab run {file}{flags} --out {folder}`")
}

/// Whether results are of a host with one drive.
pub(crate) fn is_of_host(about: &Provenance, home: &Path) -> bool {
    host::is_one(&home.join("profiles"), &about.profile)
}
