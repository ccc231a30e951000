//! Properties of the machine that checks use, gathered once.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::thread::sched_getaffinity;

use super::units::parse_cores;

/// Facts about the machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// CPUs that this process may run on, ascending.
    pub(crate) cores: Vec<u32>,
    /// Number of its CPUs that are online.
    pub(crate) online: usize,
    /// Logical cores that share a physical core with others: each list is one physical core.
    pub(crate) siblings: Vec<Vec<u32>>,
    /// Bytes of memory that this process may use; `None`: not known.
    pub(crate) memory: Option<u64>,
    /// Identifies the machine, the same after every restart.
    pub(crate) id: String,
    /// Default path of the control socket; `None`: no socket.
    pub(crate) socket: Option<PathBuf>,
    /// Default path of the state file; `None`: goals are not kept.
    pub(crate) state_file: Option<PathBuf>,
    /// Default folder of reservations; `None`: they are not kept over a restart.
    pub(crate) reservations: Option<PathBuf>,
    /// Bytes in a sector of the device at a path, or under a file at it.
    pub(crate) sector_size: fn(&Path) -> Option<u32>,
}

impl Machine {
    /// This machine.
    pub(crate) fn this() -> Self {
        let (cores, state) = (allowed_cores(), std::env::var_os("STATE_DIRECTORY"));
        Self {
            siblings: siblings(Path::new("/sys"), &cores),
            online: online(Path::new("/sys")).unwrap_or(cores.len()),
            cores,
            memory: usable_memory(Path::new("/")),
            id: machine_id(),
            socket: crate::admin::default_path(),
            state_file: in_state_directory(state.as_deref(), "goals.json"),
            reservations: in_state_directory(state.as_deref(), "reservations"),
            sector_size: crate::privileges::files::sector_size,
        }
    }
}

/// In the first directory of the variable that systemd sets for a service with `StateDirectory=` (systemd.exec(5)).
fn in_state_directory(variable: Option<&std::ffi::OsStr>, name: &str) -> Option<PathBuf> {
    let first = std::env::split_paths(variable?).next().filter(|path| path.is_absolute())?;
    Some(first.join(name))
}

fn allowed_cores() -> Vec<u32> {
    match sched_getaffinity(None) {
        Ok(set) => {
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).map(|core| core as u32).collect()
        }
        Err(_) => vec![0],
    }
}

fn online(sys: &Path) -> Option<usize> {
    let list = fs::read_to_string(sys.join("devices/system/cpu/online")).ok()?;
    parse_cores(list.trim()).ok().map(|cores| cores.len())
}

/// Groups of `cores` that share a physical core, from `sys`. Older kernels use another file name.
fn siblings(sys: &Path, cores: &[u32]) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for core in cores {
        let topology = sys.join(format!("devices/system/cpu/cpu{core}/topology"));
        let list = ["core_cpus_list", "thread_siblings_list"].iter().find_map(|name| {
            let text = fs::read_to_string(topology.join(name)).ok()?;
            parse_cores(text.trim()).ok()
        });
        if let Some(group) = list.filter(|group| group.len() > 1 && !groups.contains(group)) {
            groups.push(group);
        }
    }
    groups
}

/// The machine's memory, or the limit of a control group where that is lower. `None` where neither can be read.
fn usable_memory(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    memory_total(&meminfo).into_iter().chain(memory_limits(root, &groups)).min()
}

/// Limits of version 1 from here on are none: the highest is `i64::MAX`, rounded down to a page.
const UNLIMITED: u64 = 1 << 62;

/// Limits of the control groups of /proc/self/cgroup and of those above them, in version 1 and 2. In a container the group may be mounted
/// as the uppermost one.
fn memory_limits(root: &Path, groups: &str) -> Vec<u64> {
    let parts = |line: &'_ str| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?.to_owned(), fields.next()?.trim_start_matches('/').to_owned()))
    };
    let uppermost = [String::new(), "memory".to_owned()].map(|controllers| (controllers, String::new()));
    let mut limits = Vec::new();
    for (controllers, group) in groups.lines().filter_map(parts).chain(uppermost) {
        let (base, file) = match &*controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|one| one == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        for above in Path::new(&group).ancestors() {
            let text = fs::read_to_string(root.join(base).join(above).join(file)).unwrap_or_default();
            limits.extend(text.trim().parse::<u64>().ok().filter(|limit| *limit < UNLIMITED));
        }
    }
    limits
}

/// `MemTotal` of /proc/meminfo in bytes.
fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// machine-id(5), or where there is none (in a container) the host name.
fn machine_id() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = id.trim();
    if id.len() == 32 {
        return id.to_owned();
    }
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_total_is_read_in_bytes() {
        assert_eq!(memory_total("MemTotal:       16314012 kB\nMemFree: 1 kB\n"), Some(16_314_012 * 1024));
        assert_eq!(memory_total("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_memory_of_a_container_is_its_limit() {
        const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 16777216 kB\n");
        const NO_LIMIT: &str = "9223372036854771712\n";
        let (v1, v2) = ("sys/fs/cgroup/memory", "sys/fs/cgroup");
        let limit = |base: &str, group: &str, text: &'static str| {
            let file = if base == v1 { "memory.limit_in_bytes" } else { "memory.max" };
            (format!("{base}/{group}{file}"), text)
        };
        let groups = |text: &'static str| ("proc/self/cgroup".to_owned(), text);
        let meminfo = || (MEMINFO.0.to_owned(), MEMINFO.1);
        for (files, expected) in [
            (vec![], None),
            (vec![limit(v1, "", NO_LIMIT)], None),
            (vec![meminfo()], Some(16 << 30)),
            (vec![meminfo(), limit(v2, "", "209715200\n")], Some(200 << 20)),
            (vec![meminfo(), limit(v1, "", "209715200\n")], Some(200 << 20)),
            (vec![limit(v1, "", "209715200\n")], Some(200 << 20)),
            (vec![meminfo(), limit(v1, "", NO_LIMIT), limit(v2, "", "max\n")], Some(16 << 30)),
            (vec![meminfo(), groups("0::/a.slice/b\n"), limit(v2, "a.slice/", "4096\n")], Some(4096)),
            (vec![meminfo(), groups("0::/a/b\n"), limit(v2, "a/b/", "8192\n"), limit(v2, "a/", "max\n")], Some(8192)),
            (vec![meminfo(), groups("4:cpu,memory:/a\n2:pids:/\n"), limit(v1, "a/", "4096\n")], Some(4096)),
            (vec![meminfo(), groups("4:memory:/docker/1\n"), limit(v1, "", "4096\n")], Some(4096)),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (file, text) in &files {
                let path = root.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            assert_eq!(usable_memory(root.path()), expected, "{files:?}");
        }
    }

    #[test]
    fn siblings_are_what_the_kernel_says() {
        let sys = tempfile::tempdir().unwrap();
        let write = |core: u32, name: &str, text: &str| {
            let topology = sys.path().join(format!("devices/system/cpu/cpu{core}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join(name), text).unwrap();
        };
        write(0, "core_cpus_list", "0,4\n");
        write(4, "core_cpus_list", "0,4\n");
        write(1, "thread_siblings_list", "1-2\n");
        write(3, "core_cpus_list", "3\n");
        assert_eq!(siblings(sys.path(), &[0, 1, 3, 4, 9]), [vec![0, 4], vec![1, 2]]);
    }

    #[test]
    fn this_machine_has_cores_memory_and_a_name() {
        let machine = Machine::this();
        assert!(!machine.cores.is_empty() && machine.memory > Some(1 << 20) && !machine.id.is_empty(), "{machine:?}");
    }
}
