//! Simulated machines from two files: printed values (`profiles/NAME.toml`) and free constants (`profiles/calibration/NAME.toml`).
//!
//! Both are merged by dotted key. Duplicate, missing and unknown keys are errors; only [`defaults`] are filled in. The profile's `[sources]` must
//! have every value.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use pilotlight_sim::machine::{ByState, Machine};
use pilotlight_sim::ssd::SsdModelError;

use crate::simulated::calibration::{Calibration, CalibrationError};
use pilotlight_input::dotted;
use pilotlight_input::file::{self as read, ReadError};

/// Descriptive keys of a profile, which are not part of the machine.
pub const ABOUT: [&str; 5] = ["source", "cores", "sources", "fact", "calibration"];

/// Optional constants with their defaults: faults, and how kernel and CPU enforce limits and select frequencies
/// ([`pilotlight_sim::machine::Limits`], [`pilotlight_sim::machine::Governor`]).
fn defaults() -> [(&'static str, Value); 12] {
    [
        ("director.fails_ppm", 0.into()),
        ("director.leaves_at_once", false.into()),
        ("limits.quota_period_ns", 100_000_000.into()),
        ("limits.quota_slice_ns", 5_000_000.into()),
        ("limits.quota_of_main", false.into()),
        ("limits.power_period_ns", 1_000_000.into()),
        ("governor", "performance".into()),
        ("kernel.drive_queues", 0.into()),
        ("kernel.network_queues", 0.into()),
        ("kernel.ipi_ns", 0.into()),
        ("kernel.md", false.into()),
        ("kernel.md_page_ns", 0.into()),
    ]
}

/// Both files.
#[derive(Clone, Debug)]
pub struct MachineFiles {
    /// The profile's name.
    pub name: String,
    /// Sources of the profile's values, by dotted key.
    pub sources: BTreeMap<String, String>,
    /// Printed values that are not used.
    pub facts: Vec<Fact>,
    /// The free constants.
    pub calibration: Calibration,
    profile: Table,
    /// Hash of both files, 12 hexadecimal digits.
    pub hash: String,
}

/// A printed value that the simulator does not use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Its meaning.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Its unit.
    pub unit: String,
    /// Its source.
    pub source: String,
}

/// The descriptive part of a profile.
#[derive(Deserialize)]
struct Description {
    name: String,
    #[serde(default)]
    sources: BTreeMap<String, String>,
    #[serde(default)]
    fact: Vec<Fact>,
}

/// A machine is invalid.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file is invalid.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The calibration is invalid.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A value of a host exceeds its limit.
    #[error("{key} is {value}, and must be 1 to {most}")]
    Figure {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
        /// Its limit.
        most: u64,
    },
    /// A value of the drive exceeds its limit.
    #[error(transparent)]
    Drive(#[from] SsdModelError),
    /// A duplicate key.
    #[error("{0} is given by the profile and by the calibration: remove one")]
    Twice(String),
    /// A value without a source, or a source without a value.
    #[error("profile {profile}: [sources] and figures do not match at {key}: each figure needs its source")]
    Source {
        /// The profile.
        profile: String,
        /// The key.
        key: String,
    },
    /// An unknown key.
    #[error(transparent)]
    Key(#[from] dotted::DottedError),
    /// A profile of a server without a file of free constants.
    #[error(
        "the profile has no key calibration: it names the file of free constants, such as profiles/calibration/NAME.toml"
    )]
    NoCalibration,
    /// A deeper state of cores draws more than a lighter one.
    #[error(
        "machine.power.{0}: deep <= shallow <= slow <= poll does not hold: a deeper state draws no more than a lighter one"
    )]
    States(&'static str),
    /// A change of a key in neither file.
    #[error("machine.{0}: neither profile nor calibration has this key")]
    Unknown(String),
}

/// The first 12 hexadecimal digits of the SHA-256 of texts.
#[must_use]
pub fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The file of a server's free constants, relative to the folder of `profiles/`.
///
/// # Errors
/// If the profile is not TOML or names none.
pub fn calibration_of(profile: &str) -> Result<String, MachineError> {
    let table = read::parse("profile", profile)?;
    table.get("calibration").and_then(Value::as_str).map(str::to_owned).ok_or(MachineError::NoCalibration)
}

impl MachineFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// If one is invalid, or a value of the profile has no source.
    pub fn parse(profile: &str, calibration: &str) -> Result<Self, MachineError> {
        let files = Self::read(profile, calibration)?;
        files.machine(&[])?;
        Ok(files)
    }

    /// Reads both files of any kind of machine.
    ///
    /// # Errors
    /// As [`Self::parse`], without checks of the machine.
    pub fn read(profile: &str, calibration: &str) -> Result<Self, MachineError> {
        let hash = hash([profile, calibration]);
        let mut table = read::parse("profile", profile)?;
        let about: Description = read::table(table.clone(), "profile")?;
        ABOUT.iter().for_each(|key| drop(table.remove(*key)));
        let calibration = Calibration::parse(calibration)?;
        let files =
            Self { name: about.name, sources: about.sources, facts: about.fact, calibration, profile: table, hash };
        files.check_sources()?;
        Ok(files)
    }

    fn check_sources(&self) -> Result<(), MachineError> {
        let figures: Vec<String> = dotted::leaves(&self.profile).into_iter().map(|(key, _)| key).collect();
        let is_about = |key: &str| key == "name" || ABOUT.contains(&key);
        let unsourced = figures.iter().find(|key| !is_about(key) && !self.sources.contains_key(*key));
        let unfigured = self.sources.keys().find(|key| !is_about(key) && !figures.contains(key));
        match unsourced.or(unfigured) {
            Some(key) => Err(MachineError::Source { profile: self.name.clone(), key: key.clone() }),
            None => Ok(()),
        }
    }

    /// The machine with these overrides.
    ///
    /// # Errors
    /// If a key is duplicate or missing, a value has another type, an override is unknown, or a deeper state draws more than a lighter one.
    pub fn machine(&self, changes: &[(String, Value)]) -> Result<Machine, MachineError> {
        let machine: Machine = read::table(self.merged(changes)?, "profile and calibration together")?;
        let power = &machine.power;
        let rises = |of: ByState| of.deep <= of.shallow && of.shallow <= of.slow && of.slow <= of.poll;
        let components = [("cpu_uw", power.cpu_uw), ("others_uw", power.others_uw)];
        match components.into_iter().find(|(_, by_state)| !rises(*by_state)) {
            Some((component, _)) => Err(MachineError::States(component)),
            None => Ok(machine),
        }
    }

    /// Both files as one table, with these overrides.
    ///
    /// # Errors
    /// As [`Self::machine`], without checks of types.
    pub fn merged(&self, changes: &[(String, Value)]) -> Result<Table, MachineError> {
        let mut merged = self.profile.clone();
        for constant in &self.calibration.constants {
            if dotted::get(&merged, &constant.key).is_some() {
                return Err(MachineError::Twice(constant.key.clone()));
            }
            dotted::set(&mut merged, &constant.key, constant.value.clone())?;
        }
        // A host with one drive has no director.
        let is_server = merged.contains_key("director");
        for (key, value) in defaults().into_iter().filter(|_| is_server) {
            if dotted::get(&merged, key).is_none() {
                dotted::set(&mut merged, key, value)?;
            }
        }
        for (key, value) in changes {
            if dotted::get(&merged, key).is_none() {
                return Err(MachineError::Unknown(key.clone()));
            }
            dotted::set(&mut merged, key, value.clone())?;
        }
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_sim::machine::{Governor, Limits};

    use super::*;

    const PROFILE: &str = include_str!("../../../../profiles/sandman-epyc-9454p.toml");
    const CALIBRATION: &str = include_str!("../../../../profiles/calibration/sandman-epyc-9454p.toml");

    fn message(profile: &str, calibration: &str) -> String {
        MachineFiles::parse(profile, calibration).unwrap_err().to_string()
    }

    #[test]
    fn the_papers_machine_is_assembled() {
        let files = MachineFiles::parse(PROFILE, CALIBRATION).unwrap();
        let machine = files.machine(&[]).unwrap();
        assert_eq!(machine.name, "sandman-epyc-9454p");
        assert_eq!((machine.sleep.monitor_wake_ns, machine.poll.batch), (3_000, 32));
        let poll = machine.power.cpu_uw.poll + machine.power.others_uw.poll + machine.power.drives_idle_uw;
        assert_eq!(poll, 716_000_000, "Table 2: the components make up the system");
        let decide = machine.director.decide_ns + 48 * machine.director.decide_thread_ns;
        assert_eq!(decide, 1_990, "Table 3: 1.99 us with 48 threads");
        assert_eq!(files.hash.len(), 12);
    }

    #[test]
    fn overrides_are_applied_and_must_have_a_known_key() {
        let files = MachineFiles::parse(PROFILE, CALIBRATION).unwrap();
        let change = |key: &str, value: Value| files.machine(&[(key.to_owned(), value)]);
        assert_eq!(change("poll.loop_ns", 7.into()).unwrap().poll.loop_ns, 7);
        assert_eq!(files.machine(&[]).unwrap().limits, Limits::default());
        assert_eq!(change("limits.quota_period_ns", 9.into()).unwrap().limits.quota_period_ns, 9);
        assert_eq!(files.machine(&[]).unwrap().governor, Governor::Performance);
        assert_eq!(change("governor", "schedutil".into()).unwrap().governor, Governor::Schedutil);
        assert!(change("governor", "ondemand".into()).unwrap_err().to_string().contains("ondemand"));
        let faults = |machine: Machine| machine.director.fails_ppm;
        assert_eq!(faults(files.machine(&[]).unwrap()), 0, "none by default");
        assert_eq!(faults(change("director.fails_ppm", 1_000.into()).unwrap()), 1_000);
        assert!(change("poll.loops_ns", 7.into()).unwrap_err().to_string().contains("poll.loops_ns"));
        let wrong = change("poll.loop_ns", "seven".into()).unwrap_err().to_string();
        assert!(wrong.contains("poll.loop_ns"), "{wrong}");
    }

    #[test]
    fn missing_and_duplicate_keys_are_named() {
        let twice = CALIBRATION.replace("speed.step_khz", "speed.max_khz");
        assert!(message(PROFILE, &twice).contains("speed.max_khz is given by the profile and by the calibration"));
        let renamed = CALIBRATION.replace("key = \"poll.batch\"", "key = \"poll.batsch\"");
        let unknown = message(PROFILE, &renamed);
        assert!(unknown.contains("poll") && unknown.contains("batsch"), "{unknown}");
        let at = CALIBRATION.find("[[constant]]\nkey = \"poll.batch\"").unwrap();
        let end = at + CALIBRATION[at + 1..].find("[[constant]]").unwrap();
        let missing = message(PROFILE, &format!("{}{}", &CALIBRATION[..at], &CALIBRATION[end + 1..]));
        assert!(missing.contains("poll") && missing.contains("batch"), "{missing}");
    }

    #[test]
    fn every_value_needs_a_source() {
        let without = PROFILE.replace("\"network.ports\" = \"section 5\"\n", "");
        assert!(message(&without, CALIBRATION).contains("network.ports"));
        let ghost = PROFILE.replace("[sources]\n", "[sources]\n\"network.lanes\" = \"s\"\n");
        assert!(message(&ghost, CALIBRATION).contains("network.lanes"));
    }

    #[test]
    fn the_hash_changes_with_either_file() {
        let first = MachineFiles::parse(PROFILE, CALIBRATION).unwrap().hash;
        let second = MachineFiles::parse(PROFILE, &CALIBRATION.replace("value = 100\n", "value = 101\n")).unwrap().hash;
        assert_ne!(first, second);
        assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
    }
}
