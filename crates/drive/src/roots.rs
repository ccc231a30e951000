//! Paths of the kernel's files: `/sys`, `/proc` and `/dev`, or other folders in tests.

use std::path::{Component, Path, PathBuf};

/// Root folders of sensors and actuators.
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
    /// The folders `sys`, `proc` and `dev` below `folder`.
    #[must_use]
    pub fn below(folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        Self { sys: folder.join("sys"), proc: folder.join("proc"), dev: folder.join("dev") }
    }

    /// Whether a file is a setting of the kernel: below `/sys`, `/proc/sys` or `/proc/irq`, without `..`.
    #[must_use]
    pub fn hold(&self, path: &Path) -> bool {
        let settings = [self.sys.clone(), self.proc.join("sys"), self.proc.join("irq")];
        let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        plain && settings.iter().any(|root| path.starts_with(root) && path != root)
    }

    /// Whether a path is that of a device.
    #[must_use]
    pub fn hold_device(&self, path: &Path) -> bool {
        path.parent() == Some(self.dev.as_path()) && path.file_name().is_some()
    }

    /// Maps a path such as `/sys/...` below the corresponding root.
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
    fn only_settings_of_the_machine_are_allowed() {
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
    fn a_tree_replaces_the_machine() {
        let roots = Roots::below("/tmp/tree");
        assert_eq!(roots.place(Path::new("/sys/kernel/x")), Path::new("/tmp/tree/sys/kernel/x"));
        assert_eq!(roots.place(Path::new("/dev/nvme0")), Path::new("/tmp/tree/dev/nvme0"));
        assert!(roots.hold(Path::new("/tmp/tree/sys/kernel/x")) && !roots.hold(Path::new("/sys/kernel/x")));
    }
}
