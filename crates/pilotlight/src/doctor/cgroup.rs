//! The control groups of this process: where their files are, and how much CPU time they grant.

use super::tree::Tree;

/// Directories of this process's control groups, as absolute paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    /// cgroup v2, its own group first, then those above it up to the mount.
    pub(super) unified: Vec<String>,
    /// The `cpu` controller of cgroup v1, likewise.
    pub(super) cpu_v1: Vec<String>,
}

/// The lowest quota that holds for this process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quota {
    /// CPUs.
    pub(super) cpus: f64,
    /// Period in microseconds.
    pub(super) period_us: u64,
    /// The file that says so.
    pub(super) file: String,
}

impl Groups {
    pub(super) fn read(tree: &Tree) -> Self {
        let mounts = tree.text("/proc/self/mountinfo").unwrap_or_default();
        let groups = tree.text("/proc/self/cgroup").unwrap_or_default();
        let find = |wanted: fn(&Mount<'_>) -> bool, group: Option<&str>| {
            let mount = mounts.lines().filter_map(Mount::parse).find(wanted)?;
            Some(mount.directories(group?))
        };
        let unified = groups.lines().find_map(|line| line.strip_prefix("0::"));
        Self {
            unified: find(|mount| mount.kind == "cgroup2", unified).unwrap_or_default(),
            cpu_v1: find(|mount| mount.has_cpu(), group_v1(&groups)).unwrap_or_default(),
        }
    }

    /// The lowest quota of all groups, if any has one.
    pub(super) fn quota(&self, tree: &Tree) -> Option<Quota> {
        let unified = self.unified.iter().filter_map(|dir| quota_v2(tree, dir));
        let quotas = unified.chain(self.cpu_v1.iter().filter_map(|dir| quota_v1(tree, dir)));
        quotas.min_by(|one, other| one.cpus.total_cmp(&other.cpus))
    }
}

/// A line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut system = system.split(' ');
        Some(Self { root: mount.next()?, point: mount.next()?, kind: system.next()?, options: system.nth(1)? })
    }

    fn has_cpu(&self) -> bool {
        self.kind == "cgroup" && self.options.split(',').any(|option| option == "cpu")
    }

    /// The group's directory and those above it. A group outside the mount (a container's view) is taken for its root.
    fn directories(&self, group: &str) -> Vec<String> {
        let below = group.strip_prefix(self.root.trim_end_matches('/')).filter(|below| below.starts_with('/'));
        let below = below.filter(|below| !below.contains("..")).unwrap_or("");
        let mut dirs = vec![self.point.to_owned()];
        for name in below.split('/').filter(|name| !name.is_empty()) {
            dirs.insert(0, format!("{}/{name}", dirs[0]));
        }
        dirs
    }
}

/// This process's group in the hierarchy of v1 that has the `cpu` controller.
fn group_v1(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next()?.split(',').any(|controller| controller == "cpu").then(|| fields.next())?
    })
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
        let groups = Groups::read(&tree);
        assert_eq!(groups.unified[0], "/sys/fs/cgroup/system.slice/pilotlight.service");
        let quota = groups.quota(&tree).unwrap();
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
        let groups = Groups::read(&tree);
        assert_eq!(groups.cpu_v1, ["/sys/fs/cgroup/cpu/sub", "/sys/fs/cgroup/cpu"]);
        assert_eq!(groups.quota(&tree).unwrap().cpus, 0.5);
    }

    #[test]
    fn a_group_outside_the_mount_is_its_root() {
        let fixture = Fixture::default().file("/proc/self/mountinfo", V2).file("/proc/self/cgroup", "0::/../other");
        let groups = Groups::read(&fixture.tree());
        assert_eq!(groups.unified, ["/sys/fs/cgroup"]);
        assert_eq!(groups.quota(&fixture.tree()), None);
    }
}
