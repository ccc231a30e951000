//! CPU quota of the control groups of this process.

use pilotlight_drive::Cgroups;

use super::tree::Tree;

/// The lowest quota that applies to this process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quota {
    /// CPUs.
    pub(super) cpus: f64,
    /// Period in microseconds.
    pub(super) period_us: u64,
    /// The file.
    pub(super) file: String,
}

/// The control groups of this process.
pub(super) fn groups(tree: &Tree) -> Cgroups {
    let text = |file: &str| tree.text(&format!("/proc/self/{file}")).unwrap_or_default();
    Cgroups::parse(&text("mountinfo"), &text("cgroup"))
}

/// The lowest quota of all groups, if any has one.
pub(super) fn quota(groups: &Cgroups, tree: &Tree) -> Option<Quota> {
    let unified = groups.unified.iter().filter_map(|dir| quota_v2(tree, dir));
    let quotas = unified.chain(groups.cpu_v1.iter().filter_map(|dir| quota_v1(tree, dir)));
    quotas.min_by(|one, other| one.cpus.total_cmp(&other.cpus))
}

/// `cpu.max`: `max 100000`, or `50000 100000` (microseconds).
fn quota_v2(tree: &Tree, dir: &str) -> Option<Quota> {
    let file = format!("{dir}/cpu.max");
    let text = tree.text(&file)?;
    let (quota, period) = text.split_once(' ')?;
    quota_of(quota.parse().ok()?, period.parse().ok()?, file)
}

/// `cpu.cfs_quota_us`: -1 is none.
fn quota_v1(tree: &Tree, dir: &str) -> Option<Quota> {
    let file = format!("{dir}/cpu.cfs_quota_us");
    quota_of(tree.number(&file)?, tree.number(&format!("{dir}/cpu.cfs_period_us"))?, file)
}

fn quota_of(quota_us: u64, period_us: u64, file: String) -> Option<Quota> {
    (period_us > 0).then(|| Quota { cpus: quota_us as f64 / period_us as f64, period_us, file })
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture::Fixture;
    use super::*;

    const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn a_quota_holds_from_any_group_above() {
        let fixture = Fixture::default()
            .file("/proc/self/mountinfo", V2)
            .file("/proc/self/cgroup", "0::/system.slice/pilotlight.service")
            .file("/sys/fs/cgroup/system.slice/cpu.max", "150000 100000")
            .file("/sys/fs/cgroup/cpu.max", "400000 100000")
            .file("/sys/fs/cgroup/system.slice/pilotlight.service/cpu.max", "max 100000");
        let tree = fixture.tree();
        let quota = quota(&groups(&tree), &tree).unwrap();
        assert_eq!((quota.cpus, quota.period_us), (1.5, 100_000));
        assert_eq!(quota.file, "/sys/fs/cgroup/system.slice/cpu.max");
    }

    #[test]
    fn v1_keeps_the_controller_in_a_hierarchy_of_its_own() {
        let fixture = Fixture::default()
            .file("/proc/self/mountinfo", "31 24 0:27 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu")
            .file("/proc/self/cgroup", "4:cpuset:/\n3:cpuacct,cpu:/docker/abc/sub\n0::/")
            .file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
            .file("/sys/fs/cgroup/cpu/sub/cpu.cfs_quota_us", "50000")
            .file("/sys/fs/cgroup/cpu/sub/cpu.cfs_period_us", "100000");
        let tree = fixture.tree();
        assert_eq!(quota(&groups(&tree), &tree).unwrap().cpus, 0.5);
    }
}
