//! Profile of a machine for `pass`: a file of `profiles/`, as written by `pilotlab profile`.

use serde::Deserialize;

use super::cpu_model::{CpuModel, CpuRow};
use super::ssd_model::{Rate, SsdModel};

/// Profiles that come with the program, by name.
const NAMED: [(&str, &str); 1] =
    [("pass-xeon-gold-6430", include_str!("../../../../profiles/pass-xeon-gold-6430.toml"))];

/// Power and performance of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name in outputs.
    pub name: String,
    /// Maximum power of other components than CPU and drives, in microwatts.
    pub others_uw: u64,
    /// CPU configurations.
    pub cpu: CpuModel,
    /// Drives.
    pub ssd: SsdModel,
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The syntax is invalid.
    #[error("the profile cannot be read: {0}")]
    Syntax(toml::de::Error),
    /// Its figures are invalid.
    #[error("profile {0} needs at least one CPU row, and powers and bandwidths above 0")]
    Figures(String),
}

#[derive(Deserialize)]
struct File {
    name: String,
    others: Others,
    ssd: Ssd,
    cpu: Cpu,
}

#[derive(Deserialize)]
struct Others {
    most_uw: u64,
}

#[derive(Deserialize)]
struct Ssd {
    drives: u32,
    idle_uw: u64,
    read_uw: u64,
    read_bytes_per_s: u64,
    written_uw: u64,
    written_bytes_per_s: u64,
    floor_bytes_per_s: u64,
}

#[derive(Deserialize)]
struct Cpu {
    rows: Vec<CpuRow>,
}

impl Profile {
    /// Parses a profile.
    ///
    /// # Errors
    /// If its syntax or its figures are invalid.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let file: File = toml::from_str(text).map_err(ProfileError::Syntax)?;
        let File { name, others, ssd, cpu } = file;
        let slopes = [(ssd.read_uw, ssd.read_bytes_per_s), (ssd.written_uw, ssd.written_bytes_per_s)];
        let is_measured = |row: &CpuRow| row.power_uw > 0 && row.cores > 0 && row.p99_interval.is_finite();
        let Some(model) = CpuModel::new(cpu.rows.clone()) else { return Err(ProfileError::Figures(name)) };
        if slopes.iter().any(|&(uw, bytes)| uw == 0 || bytes == 0) || !cpu.rows.iter().all(is_measured) {
            return Err(ProfileError::Figures(name));
        }
        let [read_slope, written_slope] = slopes.map(|(uw, bytes)| uw as f64 / bytes as f64);
        let most = Rate { read: ssd.read_bytes_per_s as f64, written: ssd.written_bytes_per_s as f64 };
        let ssd = SsdModel {
            drives: ssd.drives,
            idle_uw: ssd.idle_uw as f64,
            read_slope,
            written_slope,
            most,
            floor_bytes_per_s: ssd.floor_bytes_per_s,
        };
        Ok(Self { name, others_uw: others.most_uw, cpu: model, ssd })
    }

    /// A profile that comes with the program.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (_, text) = NAMED.iter().find(|(known, _)| *known == name)?;
        Self::parse(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_of_pass_is_parsed() {
        let profile = Profile::named("pass-xeon-gold-6430").unwrap();
        assert_eq!((profile.others_uw, profile.ssd.drives), (160_000_000, 10));
        assert_eq!((profile.cpu.bottom().power_uw, profile.cpu.top().power_uw), (45_000_000, 210_000_000));
        assert_eq!(Profile::named("pass"), None);
    }

    #[test]
    fn a_profile_without_figures_is_refused() {
        let text = NAMED[0].1;
        let end = text.find("rows = [").unwrap();
        let message = |text: &str| Profile::parse(text).unwrap_err().to_string();
        assert!(message(&format!("{}rows = []", &text[..end])).contains("at least one CPU row"));
        assert!(message(&text.replace("read_uw = 7_000_000", "read_uw = 0")).contains("above 0"));
        assert!(message(&text.replace("drives = 10", "drives = -1")).contains("cannot be read"));
    }
}
