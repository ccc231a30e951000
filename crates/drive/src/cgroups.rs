//! Folders of this process's control groups.

/// Folders of this process's control groups, as absolute paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// cgroup v2: its own group first, then the parents up to the mount.
    pub unified: Vec<String>,
    /// The same for the `cpu` controller of cgroup v1.
    pub cpu_v1: Vec<String>,
}

impl Cgroups {
    /// Parses the files `mountinfo` and `cgroup` of a process in `/proc`.
    #[must_use]
    pub fn parse(mountinfo: &str, cgroup: &str) -> Self {
        let find = |wanted: fn(&Mount<'_>) -> bool, group: Option<&str>| {
            let mount = mountinfo.lines().filter_map(Mount::parse).find(wanted)?;
            Some(mount.directories(group?))
        };
        let unified = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
        Self {
            unified: find(|mount| mount.kind == "cgroup2", unified).unwrap_or_default(),
            cpu_v1: find(|mount| mount.has("cpu"), group_v1(cgroup)).unwrap_or_default(),
        }
    }
}

/// Mount point of the version 1 hierarchy with the controller `cpuset`.
#[must_use]
pub fn cpusets_v1(mountinfo: &str) -> Option<&str> {
    mountinfo.lines().filter_map(Mount::parse).find(|mount| mount.has("cpuset")).map(|mount| mount.point)
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

    /// Whether it is a hierarchy of version 1 with this controller.
    fn has(&self, controller: &str) -> bool {
        self.kind == "cgroup" && self.options.split(',').any(|option| option == controller)
    }

    /// The group's directory and its parents. A group outside the mount (in a container) counts as the root.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_listed_up_to_the_mount() {
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        let groups = Cgroups::parse(v2, "0::/system.slice/pilotlight.service\n");
        let slice = "/sys/fs/cgroup/system.slice";
        assert_eq!(groups.unified, [&format!("{slice}/pilotlight.service"), slice, "/sys/fs/cgroup"]);
        assert_eq!(groups.cpu_v1, [""; 0]);
        assert_eq!(Cgroups::parse(v2, "0::/../other").unified, ["/sys/fs/cgroup"], "outside the mount is its root");
        let v1 = "31 24 0:27 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu";
        let groups = Cgroups::parse(v1, "4:cpuset:/\n3:cpuacct,cpu:/docker/abc/sub\n0::/");
        assert_eq!(groups.cpu_v1, ["/sys/fs/cgroup/cpu/sub", "/sys/fs/cgroup/cpu"]);
        assert_eq!(groups.unified, [""; 0]);
    }
}
