//! Power of a machine by core state, from a profile (`profiles/*.toml`).
//!
//! A profile holds published figures with their sources. Power computed from it is *modelled*, and every output says so and names the
//! profile. The simulator's part of the files (frequencies, costs) is read and checked by the lab.

use serde::Deserialize;

use crate::topology::Depth;

/// The power of a machine's cores by state.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerProfile {
    /// The name in outputs.
    pub name: String,
    /// The source of the figures.
    pub source: String,
    /// Number of logical cores that `cpu_uw` covers, all in the same state.
    pub cores: u32,
    /// Power of the whole CPU, by state.
    pub cpu_uw: StatePower,
}

/// The keys read here.
#[derive(Deserialize)]
struct File {
    name: String,
    source: String,
    cores: u32,
    power: Power,
}

#[derive(Deserialize)]
struct Power {
    cpu_uw: StatePower,
}

/// Microwatts of a CPU whose cores are all in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct StatePower {
    /// Every core polls at the highest frequency.
    pub poll: u64,
    /// Every core is in shallow sleep.
    pub shallow: u64,
    /// Every core is in deep sleep.
    pub deep: u64,
}

/// An invalid profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A syntax error.
    #[error("invalid profile: {0}")]
    Syntax(toml::de::Error),
    /// The figures are inconsistent.
    #[error("profile {0}: a deeper state must not draw more power than a shallower one, and cores must be at least 1")]
    Order(String),
}

impl From<toml::de::Error> for ProfileError {
    fn from(error: toml::de::Error) -> Self {
        Self::Syntax(error)
    }
}

impl PowerProfile {
    /// Parses a profile.
    ///
    /// # Errors
    /// On a syntax error, or if a deeper state draws more power than a shallower one.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let File { name, source, cores, power: Power { cpu_uw } } = toml::from_str(text)?;
        if cores == 0 || cpu_uw.poll < cpu_uw.shallow || cpu_uw.shallow < cpu_uw.deep {
            return Err(ProfileError::Order(name));
        }
        Ok(Self { name, source, cores, cpu_uw })
    }

    /// Power of one logical core at `depth` above deep sleep, in microwatts: an equal share of all cores together. A wait in the kernel has
    /// the power of shallow sleep for whatever reason it began: how deep the kernel lets the core sleep is not known, so this is an upper
    /// bound.
    #[must_use]
    pub fn core_uw(&self, depth: Depth) -> u64 {
        let StatePower { poll, shallow, deep } = self.cpu_uw;
        let all = match depth {
            Depth::Poll => poll,
            Depth::MonitorWait | Depth::SoftwareWait | Depth::ServerSleep => shallow,
            Depth::Offline => deep,
        };
        (all - deep) / u64::from(self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SANDMAN: &str = include_str!("../../../profiles/sandman-epyc-9454p.toml");

    #[test]
    fn the_sandman_profile_is_parsed() {
        let profile = PowerProfile::parse(SANDMAN).unwrap();
        // Table 2: 48 polling cores draw 244 W, in C-1 134 W, in C-N 52 W.
        assert_eq!(profile.core_uw(Depth::Poll), (244_000_000 - 52_000_000) / 48);
        assert_eq!(profile.core_uw(Depth::MonitorWait), (134_000_000 - 52_000_000) / 48);
        assert_eq!(profile.core_uw(Depth::Offline), 0);
    }

    /// Policies that wait in the same system call have the same power at the same times.
    #[test]
    fn a_wait_in_the_kernel_has_one_price() {
        let profile = PowerProfile::parse(SANDMAN).unwrap();
        assert_eq!(profile.core_uw(Depth::ServerSleep), profile.core_uw(Depth::SoftwareWait));
    }

    #[test]
    fn inconsistent_profiles_are_refused() {
        let swapped = SANDMAN.replace("244_000_000", "44_000_000");
        assert!(matches!(PowerProfile::parse(&swapped), Err(ProfileError::Order(_))));
        assert!(matches!(PowerProfile::parse("name = 3"), Err(ProfileError::Syntax(_))));
    }
}
