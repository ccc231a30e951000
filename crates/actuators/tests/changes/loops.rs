//! A loop device, detached when dropped.

use std::fs;
use std::process::Command;

use tempfile::NamedTempFile;

pub(crate) struct Loop {
    path: String,
    _file: NamedTempFile,
}

impl Loop {
    /// A loop device with these schedulers; prints the reason if there is none.
    pub(crate) fn with_schedulers(wanted: &[&str]) -> Option<Self> {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        let reason = match output {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                let device = Self { path, _file: file };
                let offered = device.scheduler();
                if wanted.iter().all(|name| offered.contains(name)) {
                    return Some(device);
                }
                format!("its schedulers are {}", offered.trim())
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        println!("skipped: no loop device that serves ({reason})");
        None
    }

    pub(crate) fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }

    pub(crate) fn scheduler(&self) -> String {
        fs::read_to_string(format!("/sys/block/{}/queue/scheduler", self.name())).unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}
