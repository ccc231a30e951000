//! Where the kernel's files are: `/sys`, `/proc` and `/dev`, or folders that stand in for them in tests.

use std::path::{Component, Path, PathBuf};

/// The folders below which sensors read and actuators write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

impl Roots {
    /// The three folders `sys`, `proc` and `dev` below `folder`, as in a recorded tree.
    #[must_use]
    pub fn below(folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        Self { sys: folder.join("sys"), proc: folder.join("proc"), dev: folder.join("dev") }
    }

    /// Whether a file is one of the kernel's settings: below `/sys`, or in the parts of `/proc` that hold settings of the whole
    /// machine (`/proc/sys`, `/proc/irq`), by a path without `..`.
    #[must_use]
    pub fn hold(&self, path: &Path) -> bool {
        let settings = [self.sys.clone(), self.proc.join("sys"), self.proc.join("irq")];
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        plain && settings.iter().any(|root| path.starts_with(root) && path != root)
    }

    /// Whether a path is a device's.
    #[must_use]
    pub fn hold_device(&self, path: &Path) -> bool {
        path.parent() == Some(self.dev.as_path()) && path.file_name().is_some()
    }

    /// The place of a path as a person writes it: `/sys/...` is below the root that stands for it.
    #[must_use]
    pub fn place(&self, written: &Path) -> PathBuf {
        for (prefix, root) in [("/sys", &self.sys), ("/proc", &self.proc), ("/dev", &self.dev)] {
            if let Ok(rest) = written.strip_prefix(prefix) {
                return root.join(rest);
            }
        }
        written.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_the_machine_are_held() {
        let roots = Roots::default();
        for path in ["/sys/block/loop0/queue/scheduler", "/proc/sys/vm/swappiness", "/proc/irq/9/smp_affinity_list"] {
            assert!(roots.hold(Path::new(path)), "{path}");
        }
        for path in
            ["/sys", "/etc/passwd", "/sys/../etc/passwd", "/proc/1/mem", "/proc/sysrq-trigger", "sys/block", "/sysx/a"]
        {
            assert!(!roots.hold(Path::new(path)), "{path}");
        }
        assert!(roots.hold_device(Path::new("/dev/nvme0")));
        assert!(!roots.hold_device(Path::new("/dev/../etc/x")) && !roots.hold_device(Path::new("/tmp/nvme0")));
    }

    #[test]
    fn a_tree_stands_in_for_the_machine() {
        let roots = Roots::below("/tmp/tree");
        assert_eq!(roots.place(Path::new("/sys/kernel/x")), Path::new("/tmp/tree/sys/kernel/x"));
        assert_eq!(roots.place(Path::new("/dev/nvme0")), Path::new("/tmp/tree/dev/nvme0"));
        assert!(roots.hold(Path::new("/tmp/tree/sys/kernel/x")) && !roots.hold(Path::new("/sys/kernel/x")));
    }
}
