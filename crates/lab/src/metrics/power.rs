//! Selects the power domains that make up SSD, CPU and system.
//!
//! *Problem.* Sensors overlap: a package contains its cores, two sensors read the same package, a model exists beside a measurement. Sums must
//! not count twice. *Algorithm.* Of the domains of a group select each that overlaps with no selected one, in this order: measured before
//! modelled, outer before inner, order of the experiment. *Properties.* Selected domains do not overlap; others overlap with a selected one;
//! a model never replaces a measurement.

use pilotlight_sensors::energy::{self, Share};
use pilotlight_sensors::{Origin, Part};
use serde::{Deserialize, Serialize};

use super::NoValue;
use crate::record::{DomainEnergy, Sensed};

/// Groups of domains (thesis, section 4.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Drives.
    Ssd,
    /// Packages and their memory.
    Cpu,
    /// Everything.
    System,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ssd, Self::Cpu, Self::System];

    /// Name in keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ssd => "ssd",
            Self::Cpu => "cpu",
            Self::System => "system",
        }
    }

    /// Nesting level of a part in this group; `None` for other parts.
    fn rank(self, part: &Part) -> Option<u8> {
        match (self, part) {
            (Self::Ssd, Part::Drive(_)) | (Self::System, Part::System) | (Self::Cpu, Part::Cpu) => Some(0),
            (Self::Cpu, Part::Package(_) | Part::Dram(_)) => Some(1),
            (Self::Cpu, Part::Die(..)) => Some(2),
            (Self::Cpu, Part::Core(_) | Part::Uncore(_)) => Some(3),
            _ => None,
        }
    }
}

/// The selected domains of each group, as `SENSOR/DOMAIN`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerDomains {
    /// SSD.
    pub ssd: Vec<String>,
    /// CPU.
    pub cpu: Vec<String>,
    /// System.
    pub system: Vec<String>,
}

impl PowerDomains {
    /// Selects from these domains. `drive` is the drive of the target: if its power is known, other drives are ignored.
    #[must_use]
    pub fn from_domains(domains: &[DomainEnergy], drive: Option<&str>) -> Self {
        let names = |group| choose(group, domains, drive).into_iter().map(|at| domains[at].name.clone()).collect();
        Self { ssd: names(Group::Ssd), cpu: names(Group::Cpu), system: names(Group::System) }
    }

    /// Names of a group.
    #[must_use]
    pub fn names(&self, group: Group) -> &[String] {
        match group {
            Group::Ssd => &self.ssd,
            Group::Cpu => &self.cpu,
            Group::System => &self.system,
        }
    }
}

fn choose(group: Group, domains: &[DomainEnergy], drive: Option<&str>) -> Vec<usize> {
    let on_drive = |part: &Part| drive.is_some_and(|drive| matches!(part, Part::Drive(name) if name == drive));
    let narrowed = domains.iter().any(|domain| on_drive(&domain.part));
    let fits = |domain: &DomainEnergy| group != Group::Ssd || !narrowed || on_drive(&domain.part);
    let mut candidates: Vec<(bool, u8, usize)> = (domains.iter().enumerate())
        .filter(|(_, domain)| fits(domain))
        .filter_map(|(at, domain)| Some((domain.origin != Origin::Measured, group.rank(&domain.part)?, at)))
        .collect();
    candidates.sort_unstable();
    let mut kept: Vec<usize> = Vec::new();
    for (.., at) in candidates {
        if kept.iter().all(|other| !domains[*other].part.overlaps(&domains[at].part)) {
            kept.push(at);
        }
    }
    kept.sort_unstable();
    kept
}

/// Energy of a group over a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEnergy {
    /// In microjoules.
    pub uj: i64,
    /// The profiles of modelled parts; empty if all is measured.
    pub profiles: Vec<String>,
}

impl GroupEnergy {
    /// The sum of two disjoint groups.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut profiles = [self.profiles.as_slice(), other.profiles.as_slice()].concat();
        profiles.sort();
        profiles.dedup();
        Self { uj: self.uj + other.uj, profiles }
    }
}

/// The sum of the selected domains of a group.
///
/// # Errors
/// If no domain is selected or a sensor failed.
pub fn join(sensed: &Sensed, power_domains: &PowerDomains, group: Group) -> Result<GroupEnergy, NoValue> {
    let names = power_domains.names(group);
    if names.is_empty() {
        return Err(NoValue::NoSensor(group.name()));
    }
    let (mut shares, mut profiles) = (Vec::new(), Vec::new());
    for name in names {
        let domain = sensed.energies.iter().find(|domain| domain.name == *name);
        let domain = domain.ok_or_else(|| NoValue::NotRead(name.clone()))?;
        let uj = domain.uj.clone().map_err(|why| NoValue::Recorded(format!("{name}: {why}")))?;
        shares.push(Share { name: name.clone(), part: domain.part.clone(), uj });
        if let Origin::Modelled { profile } = &domain.origin {
            profiles.push(profile.clone());
        }
    }
    profiles.sort();
    profiles.dedup();
    Ok(GroupEnergy { uj: energy::sum(&shares)?, profiles })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn domain(name: &str, part: Part) -> DomainEnergy {
        DomainEnergy { name: name.into(), part, origin: Origin::Measured, uj: Ok(1_000_000) }
    }

    fn modelled(name: &str, part: Part) -> DomainEnergy {
        DomainEnergy { origin: Origin::Modelled { profile: "generic".into() }, ..domain(name, part) }
    }

    #[test]
    fn an_intel_server_with_two_packages_and_memory() {
        let domains = [
            domain("rapl/psys", Part::Platform),
            domain("rapl/package-0", Part::Package(0)),
            domain("rapl/package-0/core", Part::Core(0)),
            domain("rapl/dram-0", Part::Dram(0)),
            domain("rapl/package-1", Part::Package(1)),
            domain("perf/package-1", Part::Package(1)),
            domain("ipmi/system", Part::System),
            modelled("modelled/cpu", Part::Cpu),
        ];
        let power_domains = PowerDomains::from_domains(&domains, None);
        assert_eq!(power_domains.cpu, ["rapl/package-0", "rapl/dram-0", "rapl/package-1"]);
        assert_eq!(power_domains.system, ["ipmi/system"]);
        assert_eq!(power_domains.ssd, [""; 0]);
        let sensed = Sensed { energies: domains.to_vec(), ..Sensed::default() };
        assert_eq!(join(&sensed, &power_domains, Group::Cpu), Ok(GroupEnergy { uj: 3_000_000, profiles: vec![] }));
        assert_eq!(join(&sensed, &power_domains, Group::Ssd), Err(NoValue::NoSensor("ssd")));
    }

    #[test]
    fn cores_replace_a_missing_package_and_a_model_is_the_last_choice() {
        let domains = [domain("rapl/core", Part::Core(0)), domain("rapl/uncore", Part::Uncore(0))];
        assert_eq!(PowerDomains::from_domains(&domains, None).cpu, ["rapl/core", "rapl/uncore"]);
        let only = [modelled("modelled/cpu", Part::Cpu)];
        let power_domains = PowerDomains::from_domains(&only, None);
        let sensed = Sensed { energies: only.to_vec(), ..Sensed::default() };
        assert_eq!(join(&sensed, &power_domains, Group::Cpu).unwrap().profiles, ["generic"]);
    }

    #[test]
    fn only_the_drive_of_the_target_counts() {
        let domains = [domain("a", Part::Drive("nvme0".into())), domain("b", Part::Drive("nvme1".into()))];
        assert_eq!(PowerDomains::from_domains(&domains, Some("nvme1")).ssd, ["b"]);
        assert_eq!(PowerDomains::from_domains(&domains, Some("sda")).ssd, ["a", "b"], "its power is unknown");
        assert_eq!(PowerDomains::from_domains(&domains, None).ssd, ["a", "b"]);
    }

    #[test]
    fn a_failed_sensor_gives_no_sum() {
        let failed = DomainEnergy { uj: Err("no samples".into()), ..domain("ipmi/system", Part::System) };
        let sensed = Sensed { energies: vec![failed.clone()], ..Sensed::default() };
        let power_domains = PowerDomains::from_domains(&[failed], None);
        assert_eq!(
            join(&sensed, &power_domains, Group::System),
            Err(NoValue::Recorded("ipmi/system: no samples".into()))
        );
    }

    fn any_part() -> impl Strategy<Value = Part> {
        prop_oneof![
            Just(Part::System),
            Just(Part::Platform),
            Just(Part::Cpu),
            (0..3_u32).prop_map(Part::Package),
            (0..3_u32, 0..2_u32).prop_map(|(package, die)| Part::Die(package, die)),
            (0..3_u32).prop_map(Part::Core),
            (0..3_u32).prop_map(Part::Dram),
            (0..3_u32).prop_map(|n| Part::Drive(format!("nvme{n}"))),
            Just(Part::Unknown("x".into())),
        ]
    }

    proptest! {
        #[test]
        fn selected_domains_are_disjoint_and_complete(parts in prop::collection::vec((any_part(), any::<bool>()), 0..12)) {
            let named = |(at, (part, measured)): (usize, &(Part, bool))| {
                let name = at.to_string();
                if *measured { domain(&name, part.clone()) } else { modelled(&name, part.clone()) }
            };
            let domains: Vec<DomainEnergy> = parts.iter().enumerate().map(named).collect();
            for group in Group::ALL {
                let kept = choose(group, &domains, None);
                for (at, first) in kept.iter().enumerate() {
                    for second in &kept[at + 1..] {
                        prop_assert!(!domains[*first].part.overlaps(&domains[*second].part));
                    }
                }
                for (at, domain) in domains.iter().enumerate().filter(|(_, domain)| group.rank(&domain.part).is_some()) {
                    let covered = |other: &usize| domains[*other].part.overlaps(&domain.part);
                    prop_assert!(kept.contains(&at) || kept.iter().any(covered));
                }
            }
        }
    }
}
