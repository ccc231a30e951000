//! Machines that do their own I/O, from their two files: what is printed (`profiles/NAME.toml`) and what is free
//! (`profiles/calibration/NAME.toml`), merged as those of servers are ([`crate::machine`]).

use std::path::{Path, PathBuf};

use pilotlight_sim::local::Local;

use crate::calibration::{Calibration, CalibrationError};
use crate::machine::{MachineError, MachineFiles};
use pilotlight_input::file as read;

/// The folder of free constants, beside the profiles.
pub const CALIBRATIONS: &str = "calibration";

/// Both files, read, and the machine that they make up.
#[derive(Clone, Debug)]
pub struct LocalFiles {
    /// What both files say.
    pub files: MachineFiles,
    /// The machine.
    pub machine: Local,
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The files do not make up a machine.
    #[error("{path}: {error}")]
    Machine {
        /// The profile.
        path: PathBuf,
        /// Why.
        error: MachineError,
    },
    /// A calibration cannot be used.
    #[error("{path}: {error}")]
    Calibration {
        /// Which.
        path: PathBuf,
        /// Why.
        error: CalibrationError,
    },
}

/// Whether a profile is that of such a machine.
#[must_use]
pub fn is_one(profiles: &Path, name: &str) -> bool {
    profiles.join(CALIBRATIONS).join(format!("{name}.toml")).is_file()
}

fn text(path: &Path) -> Result<String, LocalError> {
    std::fs::read_to_string(path).map_err(|error| LocalError::File { path: path.to_owned(), error })
}

/// The machine of a profile; its free constants are in the file of the same name in the folder `calibration` beside it.
///
/// # Errors
/// If a file cannot be read, or they do not make up a machine.
pub fn load(profile: &Path) -> Result<LocalFiles, LocalError> {
    let folder = profile.parent().unwrap_or(Path::new("")).join(CALIBRATIONS);
    let free = folder.join(profile.file_name().unwrap_or_default());
    parse(&text(profile)?, &text(&free)?).map_err(|error| LocalError::Machine { path: profile.to_owned(), error })
}

/// The same of texts.
///
/// # Errors
/// If they do not make up a machine.
pub fn parse(profile: &str, calibration: &str) -> Result<LocalFiles, MachineError> {
    let files = MachineFiles::read(profile, calibration)?;
    let machine = read::table(files.merged(&[])?, "profile and calibration together")?;
    Ok(LocalFiles { files, machine })
}

/// The free constants of every such machine, by name; none where there is no folder.
///
/// # Errors
/// If one cannot be read.
pub fn calibrations(profiles: &Path) -> Result<Vec<(String, Calibration)>, LocalError> {
    let folder = profiles.join(CALIBRATIONS);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let calibration = Calibration::parse(&text(&path)?);
        Ok((name, calibration.map_err(|error| LocalError::Calibration { path, error })?))
    };
    paths.into_iter().map(read).collect()
}
