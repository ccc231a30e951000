//! A simulated kernel over a tree of files: schedulers in brackets, rounded frequencies, files that ignore writes, cgroups, a drive. All
//! state is in the tree. It can take a snapshot of tree and journal before and after each change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilotlight_actuators::Roots;
use pilotlight_actuators::changes::Kernel;
use pilotlight_drive::{Drive, IDENTIFY_BYTES};
use tempfile::TempDir;

/// Every file of a tree, and every folder as `None`.
pub(crate) type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// A snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) journal: Option<Vec<u8>>,
    pub(crate) tree: Tree,
}

/// A simulated machine.
pub(crate) struct Machine {
    pub(crate) folder: TempDir,
}

pub(crate) const FREQUENCIES: [u64; 4] = [800_000, 1_200_000, 2_400_000, 3_600_000];

impl Machine {
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let machine = Self { folder: folder.unwrap() };
        for (path, text) in [
            ("sys/block/vda/queue/scheduler", "[none] mq-deadline kyber bfq \n"),
            ("sys/block/vda/queue/nr_requests", "256\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/ignored", "1\n"),
            ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/enabled", "0\n"),
            ("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "65000000\n"),
            ("sys/class/powercap/intel-rapl:0/constraint_1_power_limit_uw", "80000000\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n"),
            ("sys/fs/cgroup/cgroup.subtree_control", "memory\n"),
            ("sys/fs/cgroup/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/cgroup.threads", "41\n42\n43\n"),
            ("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/self/cgroup", "0::/\n"),
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/sys/kernel/random/boot_id", "a-boot\n"),
            ("dev/nvme0", "0 1"),
        ] {
            machine.write(path, text);
        }
        for cpu in 0..2 {
            let cpufreq = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            for (name, text) in [
                ("scaling_governor", "powersave\n"),
                ("scaling_min_freq", "800000\n"),
                ("scaling_max_freq", "2400000\n"),
                ("scaling_available_frequencies", "3600000 2400000 1200000 800000 \n"),
                ("cpuinfo_min_freq", "800000\n"),
                ("cpuinfo_max_freq", "3600000\n"),
                ("cpuinfo_transition_latency", "20000\n"),
            ] {
                machine.write(&format!("{cpufreq}/{name}"), text);
            }
        }
        machine
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::below(self.folder.path())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Its journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.path("run/1.jsonl")
    }

    pub(crate) fn kernel(&self) -> Box<Fake> {
        at(self.folder.path())
    }

    pub(crate) fn tree(&self) -> Tree {
        tree(self.folder.path())
    }

    /// Restores a snapshot.
    pub(crate) fn set(&self, picture: &Picture) {
        let now = self.tree();
        for path in now.keys().rev().filter(|path| !picture.tree.contains_key(*path)) {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
        for (path, content) in picture.tree.iter().filter(|(path, content)| now.get(*path) != Some(content)) {
            match content {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => fs::create_dir_all(path).unwrap(),
            }
        }
        let _ = fs::remove_file(self.journal());
        if let Some(bytes) = &picture.journal {
            fs::write(self.journal(), bytes).unwrap();
        }
    }
}

/// The kernel of the machine in this folder.
pub(crate) fn at(root: &Path) -> Box<Fake> {
    Box::new(Fake {
        root: root.to_owned(),
        pictures: None,
        answers_after: Duration::ZERO,
        removed_with_status: Vec::new(),
    })
}

fn tree(root: &Path) -> Tree {
    let mut all = Tree::new();
    for name in ["sys", "proc", "dev"] {
        collect(&root.join(name), &mut all);
    }
    all
}

fn collect(folder: &Path, all: &mut Tree) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            all.insert(path.clone(), None);
            collect(&path, all);
        } else if !path.is_symlink() && path.extension().is_none_or(|extension| extension != "draft") {
            all.insert(path.clone(), Some(fs::read(&path).unwrap()));
        }
    }
}

/// The simulated kernel.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) root: PathBuf,
    pub(crate) pictures: Option<Arc<Mutex<Vec<Picture>>>>,
    /// Delay of reads, so that other runs interleave.
    pub(crate) answers_after: Duration,
    /// Folders removed when the status of a thread is read.
    pub(crate) removed_with_status: Vec<PathBuf>,
}

impl Fake {
    /// Takes snapshots from now on.
    pub(crate) fn watched(mut self) -> (Box<Self>, Arc<Mutex<Vec<Picture>>>) {
        let pictures: Arc<Mutex<Vec<Picture>>> = Arc::default();
        self.pictures = Some(pictures.clone());
        (Box::new(self), pictures)
    }

    pub(crate) fn picture(&self) {
        if let Some(pictures) = &self.pictures {
            let journal = fs::read(self.root.join("run/1.jsonl")).ok();
            pictures.lock().unwrap().push(Picture { journal, tree: tree(&self.root) });
        }
    }

    fn changing<T>(&self, change: impl FnOnce() -> T) -> T {
        self.picture();
        let result = change();
        self.picture();
        result
    }
}

/// Writes atomically, as the kernel does.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}

/// Moves a thread to the cgroup with this list of threads, from the group above it or one below it.
fn move_thread(list: &Path, thread: &str) -> io::Result<()> {
    let name = list.file_name().unwrap();
    let (folder, change) = (list.parent().unwrap(), |list: &Path, thread: &str, enters: bool| -> io::Result<()> {
        let Ok(text) = fs::read_to_string(list) else { return Ok(()) };
        let mut threads: Vec<&str> = text.split_whitespace().filter(|other| *other != thread).collect();
        threads.extend(enters.then_some(thread));
        threads.sort_unstable();
        replace(list, &threads.iter().map(|thread| format!("{thread}\n")).collect::<String>())
    });
    for entry in fs::read_dir(folder)? {
        change(&entry?.path().join(name), thread, false)?;
    }
    change(&folder.parent().unwrap().join(name), thread, false)?;
    change(list, thread, true)
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(22)
}

/// Content of a file after a write of `text`.
fn written(name: &str, old: &str, text: &str) -> io::Result<String> {
    let word = text.trim();
    match name {
        "ignored" | "memory.ignored" => Ok(old.to_owned()),
        "scheduler" | "enabled" if old.contains('[') => {
            let words: Vec<&str> = old.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
            if !words.contains(&word) {
                return Err(invalid());
            }
            let shown = words.iter().map(|other| if *other == word { format!("[{other}]") } else { (*other).into() });
            let end = if name == "scheduler" { " \n" } else { "\n" };
            Ok(shown.collect::<Vec<_>>().join(" ") + end)
        }
        "scaling_min_freq" | "scaling_max_freq" => {
            let wanted: u64 = word.parse().map_err(|_| invalid())?;
            let nearest = FREQUENCIES.iter().min_by_key(|khz| khz.abs_diff(wanted)).unwrap();
            Ok(format!("{nearest}\n"))
        }
        "constraint_0_power_limit_uw" | "constraint_1_power_limit_uw" => {
            Ok(format!("{}\n", word.parse::<u64>().map_err(|_| invalid())? / 125_000 * 125_000))
        }
        "cgroup.subtree_control" => {
            let (sign, name) = word.split_at(1);
            let mut words: Vec<&str> = old.split_whitespace().filter(|other| *other != name).collect();
            words.extend((sign == "+").then_some(name));
            Ok(words.join(" ") + "\n")
        }
        _ => Ok(if text.ends_with('\n') { text.into() } else { format!("{text}\n") }),
    }
}

/// CPUs in a file's list.
fn cpus(path: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    pilotlight_input::cpu_list::parse(text.trim()).unwrap_or_default().into_iter().collect()
}

/// A list as the kernel writes it, such as `0-2,5`.
fn listed(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |&(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// The CPU whose switch this is.
fn switched(path: &Path) -> Option<u32> {
    let folder = path.parent()?.file_name()?.to_str()?;
    folder.strip_prefix("cpu")?.parse().ok().filter(|_| path.ends_with("online"))
}

/// Files of this name below a folder.
fn named(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut all = BTreeMap::new();
    if folder.is_dir() {
        collect(folder, &mut all);
    }
    all.into_keys().filter(|path| path.file_name().is_some_and(|file| file == name)).collect()
}

/// The `status` of a thread that may run on these CPUs.
pub(crate) fn status(cpus: &str) -> String {
    format!("Name:\ta\nVmSize:\t1 kB\nCpus_allowed_list:\t{cpus}\n")
}

impl Fake {
    /// Takes a CPU off- or online, with the effects on cpusets of version 1 and threads.
    fn switch(&self, cpu: u32, on: bool) -> io::Result<()> {
        let folder = self.root.join("sys/devices/system/cpu");
        let mut online = cpus(&folder.join("online"));
        if on {
            online.insert(cpu)
        } else {
            online.remove(&cpu)
        };
        replace(&folder.join(format!("cpu{cpu}/online")), if on { "1\n" } else { "0\n" })?;
        replace(&folder.join("online"), &(listed(&online) + "\n"))?;
        let top = self.root.join("sys/fs/cgroup/cpuset/cpuset.cpus");
        for list in named(&self.root.join("sys/fs/cgroup/cpuset"), "cpuset.cpus") {
            let left = if list == top { online.clone() } else { &cpus(&list) & &online };
            replace(&list, &(listed(&left) + "\n"))?;
        }
        for thread in named(&self.root.join("proc"), "status") {
            if self.allowed(&thread).is_disjoint(&online) {
                replace(&thread, &status(&listed(&online)))?;
            }
        }
        Ok(())
    }

    fn allowed(&self, thread: &Path) -> BTreeSet<u32> {
        let text = fs::read_to_string(thread).unwrap_or_default();
        let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
        pilotlight_input::cpu_list::parse(list.trim()).unwrap_or_default().into_iter().collect()
    }

    /// Sets the CPUs of a cpuset and its threads, as kernels before 6.2 do.
    fn set_cpuset(&self, list: &Path, text: &str) -> io::Result<()> {
        let above = list.parent().unwrap().parent().unwrap().join("cpuset.cpus");
        replace(list, text)?;
        if !cpus(list).is_subset(&cpus(&above)) {
            return Err(invalid());
        }
        for task in fs::read_to_string(list.with_file_name("tasks"))?.split_whitespace() {
            let thread = self.root.join(format!("proc/{task}/task/{task}/status"));
            replace(&thread, &status(&listed(&cpus(list))))?;
        }
        Ok(())
    }
}

/// Whether the lower bound of frequencies would lie above the upper one, which kernels before 5.3 refuse.
fn crosses(path: &Path, name: &str, new: &str) -> io::Result<bool> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| invalid());
    let other = |name: &str| number(&fs::read_to_string(path.with_file_name(name))?);
    match name {
        "scaling_min_freq" => Ok(number(new)? > other("scaling_max_freq")?),
        "scaling_max_freq" => Ok(number(new)? < other("scaling_min_freq")?),
        _ => Ok(false),
    }
}

impl Kernel for Fake {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        std::thread::sleep(self.answers_after);
        if path.ends_with("status") {
            self.removed_with_status.drain(..).for_each(|folder| fs::remove_dir_all(folder).unwrap());
        }
        fs::read_to_string(path)
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap();
        let old = fs::read_to_string(path)?;
        if path.with_file_name(format!("{name}.locked")).exists() {
            return Err(io::Error::from_raw_os_error(13)); // opened as others are
        }
        let new = written(name, &old, text)?;
        if crosses(path, name, &new)? {
            return Err(invalid());
        }
        let drive = self.root.join("dev/nvme0");
        self.changing(|| {
            if matches!(name, "cgroup.threads" | "tasks") {
                return move_thread(path, text.trim());
            }
            if name == "cpuset.cpus" && path.starts_with(self.root.join("sys/fs/cgroup/cpuset")) {
                return self.set_cpuset(path, &new);
            }
            if let Some(cpu) = switched(path) {
                return self.switch(cpu, new.trim() == "1");
            }
            replace(path, &new)?;
            // This kernel controls the transitions of `nvme0`.
            if path.ends_with("nvme0/power/pm_qos_latency_tolerance_us") {
                let state = fs::read_to_string(&drive)?;
                let (state, _) = state.split_once(' ').unwrap();
                replace(&drive, &format!("{state} {}", u32::from(text.trim() != "0")))?;
            }
            Ok(())
        })
    }

    fn has(&mut self, path: &Path) -> bool {
        path.exists()
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        self.changing(|| {
            fs::create_dir(path)?;
            let files = "cgroup.procs cgroup.threads cgroup.type memory.max memory.ignored cpu.max cpuset.cpus io.max io.weight \
                         io.latency tasks cpu.cfs_period_us cpu.cfs_quota_us";
            files.split_whitespace().try_for_each(|name| fs::write(path.join(name), ""))
        })
    }

    fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        let is_used = |list| fs::read_to_string(path.join(list)).is_ok_and(|text| !text.trim().is_empty());
        if ["cgroup.threads", "tasks"].into_iter().any(is_used) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.changing(|| fs::remove_dir_all(path))
    }

    fn set_affinity(&mut self, thread: u32, list: &BTreeSet<u32>) -> io::Result<()> {
        let online = cpus(&self.root.join("sys/devices/system/cpu/online"));
        let setting = self.root.join(format!("proc/{thread}/task/{thread}/status"));
        if list.is_disjoint(&online) {
            return Err(invalid());
        }
        self.changing(|| replace(&setting, &status(&listed(&(list & &online)))))
    }

    fn drive(&mut self, path: &Path) -> io::Result<Box<dyn Drive>> {
        fs::metadata(path)?;
        Ok(Box::new(FakeDrive { path: path.to_owned(), kernel: self.clone() }))
    }
}

/// Five power states, two of them non-operational. Its file has the state and whether transitions are enabled.
struct FakeDrive {
    path: PathBuf,
    kernel: Fake,
}

impl FakeDrive {
    fn state(&self) -> (u32, u32) {
        let text = fs::read_to_string(&self.path).unwrap();
        let (state, on) = text.split_once(' ').unwrap();
        (state.parse().unwrap(), on.parse().unwrap())
    }
}

impl Drive for FakeDrive {
    fn identify(&mut self) -> io::Result<Box<[u8; IDENTIFY_BYTES]>> {
        let mut data = Box::new([0; IDENTIFY_BYTES]);
        data[263] = 4;
        data[265] = 1;
        for (state, entry_us, exit_us) in [(3, 210_u32, 1_200_u32), (4, 2_000, 8_000)] {
            let descriptor = &mut data[2048 + 32 * state..][..32];
            descriptor[3] = 2;
            descriptor[4..8].copy_from_slice(&entry_us.to_le_bytes());
            descriptor[8..12].copy_from_slice(&exit_us.to_le_bytes());
        }
        Ok(data)
    }

    fn log_page(&mut self, _: u8, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn feature(&mut self, id: u8, data: &mut [u8]) -> io::Result<u32> {
        match id {
            2 => Ok(self.state().0),
            0x0c => {
                data.fill(0x5a);
                Ok(self.state().1)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn set_feature(&mut self, id: u8, value: u32, data: &[u8]) -> io::Result<()> {
        let (state, on) = self.state();
        let new = match id {
            2 if value & 0x1f < 5 => (value, on),
            0x0c if data == [0x5a; 256] => (state, value),
            _ => return Err(invalid()),
        };
        self.kernel.changing(|| replace(&self.path, &format!("{} {}", new.0, new.1)))
    }
}
