//! The lowest caps of namespaces and hosts: 10 MiB/s a drive (PASS, section 5.1).
//!
//! The namespaces of a drive share its floor equally. If the drive is unknown, a namespace gets its share of the floors of all drives in the
//! profile, divided by the number of namespaces. A host gets the sum of all namespaces, as a plant does not report which of them it can reach; if no
//! drive is known, that of one.

use pilotlight_plant::{Capabilities, Scope};

use super::ssd_model::SsdModel;

/// Lowest caps of these namespaces and hosts, in bytes a second.
pub(super) fn floors(ssd: &SsdModel, all: &[Scope], capabilities: &Capabilities) -> Vec<f64> {
    let namespaces = all.iter().filter(|scope| matches!(scope, Scope::Namespace(_))).count().max(1);
    let of_drive = ssd.floor_bytes_per_s as f64;
    let share = of_drive * f64::from(ssd.drives) / namespaces as f64;
    let drive = |scope: Scope| match scope {
        Scope::Namespace(namespace) => capabilities.drive_of(namespace),
        _ => None,
    };
    let used: Vec<_> = all.iter().filter_map(|&scope| drive(scope)).collect();
    let sharers = |drive| used.iter().filter(|other| **other == drive).count();
    let part = |&scope: &Scope| drive(scope).map_or(share, |drive| of_drive / sharers(drive) as f64);
    let of_all: f64 = all.iter().filter(|scope| matches!(scope, Scope::Namespace(_))).map(part).sum();
    let of_host = if used.is_empty() { share } else { of_all };
    all.iter().map(|scope| if matches!(scope, Scope::Host(_)) { of_host } else { part(scope) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::profile::Profile;

    const MIB: f64 = 1_048_576.0;

    /// In MiB/s, for three namespaces and a host, with three drives in the profile.
    fn floors_of(drives: &[(u32, u16)]) -> Vec<f64> {
        let ssd = SsdModel { drives: 3, ..Profile::named("pass-xeon-gold-6430").unwrap().ssd };
        let all = [Scope::Namespace(0), Scope::Namespace(1), Scope::Namespace(7), Scope::Host(0)];
        let plant = Capabilities { drives: drives.to_vec(), ..Capabilities::default() };
        floors(&ssd, &all, &plant).iter().map(|bytes_per_s| bytes_per_s / MIB).collect()
    }

    #[test]
    fn namespaces_on_one_drive_share_its_floor() {
        assert_eq!(floors_of(&[(0, 2), (1, 2), (7, 0)]), [5.0, 5.0, 10.0, 20.0]);
        assert_eq!(floors_of(&[(0, 2), (1, 2), (7, 2)]), [10.0 / 3.0, 10.0 / 3.0, 10.0 / 3.0, 10.0]);
    }

    #[test]
    fn one_drive_for_each_namespace_equals_unknown_drives() {
        let (known, unknown) = (floors_of(&[(0, 0), (1, 1), (7, 2)]), floors_of(&[]));
        assert_eq!(known[..3], unknown[..3]);
        assert_eq!((known[3], unknown[3]), (30.0, 10.0), "a host reaches all drives, if there are any");
    }

    #[test]
    fn a_namespace_with_an_unknown_drive_has_an_equal_share() {
        assert_eq!(floors_of(&[(0, 2), (1, 2)]), [5.0, 5.0, 10.0, 20.0]);
        assert_eq!(floors_of(&[(8, 2)]), [10.0; 4], "a drive of another namespace");
    }
}
