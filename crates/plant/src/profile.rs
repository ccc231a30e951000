//! What a machine burns in which state, as a file says it (`profiles/*.toml`).
//!
//! A profile holds what is taken as given, each figure with its source. Watts that follow from one are *modelled*, and every
//! output that shows them says so and names the profile. The files hold more than is read here: the simulator's part
//! (frequencies, costs, sources) is the lab's to read and to check.

use serde::Deserialize;

use crate::topology::Depth;

/// The power of a machine's cores by state.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerProfile {
    /// The name that outputs give.
    pub name: String,
    /// Where the figures are from.
    pub source: String,
    /// Logical cores that the figures of `cpu_uw` are about, all in the same state.
    pub cores: u32,
    /// Power of the whole CPU, by state.
    pub cpu_uw: StatePower,
}

/// What is read of a file.
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
    /// Every core is in a shallow sleep.
    pub shallow: u64,
    /// Every core is in a deep sleep.
    pub deep: u64,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// It is not written as a profile is.
    #[error("the profile cannot be read: {0}")]
    Syntax(toml::de::Error),
    /// Its figures contradict each other.
    #[error("profile {0}: a sleep must not burn more than a shallower one, and there must be a core")]
    Order(String),
}

impl From<toml::de::Error> for ProfileError {
    fn from(error: toml::de::Error) -> Self {
        Self::Syntax(error)
    }
}

impl PowerProfile {
    /// Reads a profile.
    ///
    /// # Errors
    /// If it is not written as a profile is, or a deeper state burns more than a shallower one.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let File { name, source, cores, power: Power { cpu_uw } } = toml::from_str(text)?;
        if cores == 0 || cpu_uw.poll < cpu_uw.shallow || cpu_uw.shallow < cpu_uw.deep {
            return Err(ProfileError::Order(name));
        }
        Ok(Self { name, source, cores, cpu_uw })
    }

    /// What one logical core adds by being at `depth` rather than deep asleep, in microwatts: an equal share of what all
    /// add together. The states between those that were measured are not known better than that.
    #[must_use]
    pub fn core_uw(&self, depth: Depth) -> u64 {
        let StatePower { poll, shallow, deep } = self.cpu_uw;
        let all = match depth {
            Depth::Poll => poll,
            Depth::MonitorWait | Depth::SoftwareWait => shallow,
            Depth::ServerSleep | Depth::Offline => deep,
        };
        (all - deep) / u64::from(self.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SANDMAN: &str = include_str!("../../../profiles/sandman-epyc-9454p.toml");

    #[test]
    fn the_paper_s_machine_is_read() {
        let profile = PowerProfile::parse(SANDMAN).unwrap();
        // Table 2: 48 polling cores burn 244 W, in C-1 134 W, in C-N 52 W.
        assert_eq!(profile.core_uw(Depth::Poll), (244_000_000 - 52_000_000) / 48);
        assert_eq!(profile.core_uw(Depth::MonitorWait), (134_000_000 - 52_000_000) / 48);
        assert_eq!(profile.core_uw(Depth::ServerSleep), 0);
    }

    #[test]
    fn contradictions_are_refused() {
        let swapped = SANDMAN.replace("244_000_000", "44_000_000");
        assert!(matches!(PowerProfile::parse(&swapped), Err(ProfileError::Order(_))));
        assert!(matches!(PowerProfile::parse("name = 3"), Err(ProfileError::Syntax(_))));
    }
}
