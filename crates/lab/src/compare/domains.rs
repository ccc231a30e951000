//! Checks that a metric of power or efficiency covers the same parts of the machine on both sides.

use std::collections::BTreeSet;

use pilotlight_sensors::Part;

use crate::stored::metric;

use crate::metrics::power::Group;
use crate::result_set::ResultSet;

/// The parts of both sides if they differ: `of packages and memory in A and of packages in B`.
pub(super) fn differ(a: &ResultSet, b: &ResultSet, metric: &str) -> Option<String> {
    groups(metric).iter().find_map(|group| {
        let known = !a.parts.is_empty() && !b.parts.is_empty();
        let (first, second) = (parts(a, *group, known), parts(b, *group, known));
        (first != second && !first.is_empty() && !second.is_empty())
            .then(|| format!("of {} in A and of {} in B", list(&first), list(&second)))
    })
}

/// The groups of domains in a metric of power; none for other metrics.
fn groups(metric: &str) -> &'static [Group] {
    match metric::scope(metric) {
        Some("ssd_cpu") => &[Group::Ssd, Group::Cpu],
        Some("ssd") => &[Group::Ssd],
        Some("cpu") => &[Group::Cpu],
        Some("system") => &[Group::System],
        _ => &[],
    }
}

/// The kinds of parts in the sum of a group; names of domains if the parts are unknown.
fn parts(result_set: &ResultSet, group: Group, known: bool) -> BTreeSet<String> {
    let part = |name: &String| result_set.parts.get(name).filter(|_| known);
    let kind = |name: &String| part(name).map_or_else(|| name.clone(), |part| kind(part).to_owned());
    result_set.results.power_domains.names(group).iter().map(kind).collect()
}

/// The kind of a part without its number.
fn kind(part: &Part) -> &str {
    match part {
        Part::System => "the whole system",
        Part::Platform => "the platform",
        Part::Cpu | Part::Package(_) => "packages",
        Part::Die(..) => "dies",
        Part::Core(_) => "cores",
        Part::Uncore(_) => "uncore",
        Part::Dram(_) => "memory",
        Part::Drive(_) => "drives",
        Part::Other(name) | Part::Unknown(name) => name,
        Part::None => "no part",
    }
}

fn list(parts: &BTreeSet<String>) -> String {
    parts.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::power::PowerDomains;

    fn result_set(cpu: &[(&str, Part)]) -> ResultSet {
        let mut result_set = ResultSet::default();
        result_set.results.power_domains =
            PowerDomains { cpu: cpu.iter().map(|(name, _)| (*name).to_owned()).collect(), ..PowerDomains::default() };
        result_set.parts = cpu.iter().map(|(name, part)| ((*name).to_owned(), part.clone())).collect();
        result_set
    }

    #[test]
    fn packages_with_memory_differ_from_packages() {
        let both = result_set(&[("rapl/package-0", Part::Package(0)), ("rapl/dram-0", Part::Dram(0))]);
        let one = result_set(&[("perf/package-0", Part::Package(0))]);
        let two = result_set(&[("rapl/package-0", Part::Package(0)), ("rapl/package-1", Part::Package(1))]);
        let why = "of memory and packages in A and of packages in B";
        for metric in [
            "cpu_power_w",
            "io_per_j_cpu",
            "io_per_j_ssd_cpu",
            "io_edp_p99_js_cpu_above_idle",
            "cpu_energy_above_idle_j",
        ] {
            assert_eq!(differ(&both, &one, metric).as_deref(), Some(why), "{metric}");
        }
        for metric in ["iops", "cpu_busy_cores", "cpu_us_per_operation", "io_per_j_system", "ssd_power_w"] {
            assert_eq!(differ(&both, &one, metric), None, "{metric}");
        }
        assert_eq!(differ(&one, &two, "cpu_power_w"), None, "one and two packages");
        let unknown = ResultSet { parts: std::collections::BTreeMap::new(), ..both.clone() };
        assert!(differ(&unknown, &two, "cpu_power_w").is_some_and(|why| why.contains("rapl/dram-0")), "by their names");
    }
}
