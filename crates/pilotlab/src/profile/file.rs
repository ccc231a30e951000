//! The profile of policy `pass` (`pilotlight_policy::pass::profile`). Each command writes one part and keeps the others.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// A profile, possibly incomplete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ProfileFile {
    /// Its name.
    pub(super) name: String,
    /// Source of its values.
    #[serde(default)]
    pub(super) source: String,
    #[serde(default)]
    pub(super) others: Others,
    pub(super) ssd: Option<Ssd>,
    pub(super) cpu: Option<Cpu>,
}

/// The part of the server that is neither CPU nor drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Others {
    /// Maximum power, in microwatts.
    #[serde(default)]
    pub(super) most_uw: u64,
}

/// The drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ssd {
    /// Notes on the source and limits of its values.
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// Number of drives.
    pub(super) drives: u32,
    /// Idle power of a drive.
    pub(super) idle_uw: u64,
    /// Additional power of reads at `read_bytes_per_s` and writes at `written_bytes_per_s`.
    pub(super) read_uw: u64,
    pub(super) read_bytes_per_s: u64,
    pub(super) written_uw: u64,
    pub(super) written_bytes_per_s: u64,
    /// Minimum bandwidth cap of a drive.
    pub(super) floor_bytes_per_s: u64,
}

/// The CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cpu {
    /// As [`Ssd::notes`].
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// Configurations.
    pub(super) rows: Vec<Row>,
}

/// A configuration of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) power_uw: u64,
    pub(super) cores: u16,
    /// CPU time of all polling cores including the main core, in millionths of one core.
    pub(super) quota_ppm: u64,
    pub(super) limit_uw: u64,
    /// In microseconds.
    pub(super) p99_interval: f64,
}

impl ProfileFile {
    /// Reads a profile, or creates a new one of this name.
    pub(super) fn read(path: &Path, name: &str) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { name: name.to_owned(), ..Self::default() });
            }
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        toml::from_str(&text)
            .with_context(|| format!("{} is not a profile of `pilotlab profile`; choose another --out", path.display()))
    }

    /// Writes it.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let shown = || format!("cannot write {}", path.display());
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        std::fs::write(&new, self.text()).with_context(shown)?;
        std::fs::rename(&new, path).with_context(shown)
    }

    /// Missing parts that `pass` requires.
    pub(super) fn missing(&self) -> Option<&'static str> {
        match (&self.cpu, &self.ssd) {
            (None, _) => Some("pilotlab profile cpu"),
            (_, None) => Some("pilotlab profile ssd"),
            _ => None,
        }
    }

    /// Its text.
    pub(super) fn text(&self) -> String {
        let string = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let list = |notes: &[String]| {
            let notes: String = notes.iter().map(|note| format!("  {},\n", string(note))).collect();
            if notes.is_empty() { "[]".to_owned() } else { format!("[\n{notes}]") }
        };
        let mut text = format!(
            "# Power and performance of a machine, as measured by `pilotlab profile` (docs/measure.md).\nname = {}\nsource = {}\n",
            string(&self.name),
            string(&self.source)
        );
        let _ = write!(text, "\n[others]\nmost_uw = {}\n", self.others.most_uw);
        if let Some(ssd) = &self.ssd {
            let _ = write!(
                text,
                "\n[ssd]\nnotes = {}\ndrives = {}\nidle_uw = {}\nread_uw = {}\nread_bytes_per_s = {}\nwritten_uw = {}\nwritten_bytes_per_s = {}\n\
                 floor_bytes_per_s = {}\n",
                list(&ssd.notes),
                ssd.drives,
                ssd.idle_uw,
                ssd.read_uw,
                ssd.read_bytes_per_s,
                ssd.written_uw,
                ssd.written_bytes_per_s,
                ssd.floor_bytes_per_s
            );
        }
        if let Some(cpu) = &self.cpu {
            let _ = write!(
                text,
                "\n# quota_ppm: CPU time of all cores together, the main core among them; p99_interval in microseconds\n[cpu]\nnotes = {}\nrows = [\n",
                list(&cpu.notes)
            );
            for row in &cpu.rows {
                let _ = writeln!(
                    text,
                    "  {{ power_uw = {}, cores = {}, quota_ppm = {}, limit_uw = {}, p99_interval = {:?} }},",
                    row.power_uw, row.cores, row.quota_ppm, row.limit_uw, row.p99_interval
                );
            }
            text += "]\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_policy::pass::profile::Profile;

    use super::*;

    fn ssd() -> Ssd {
        let notes = vec!["by the \"data sheet\"".to_owned()];
        let (read_uw, written_uw) = (7_000_000, 10_000_000);
        Ssd {
            notes,
            drives: 2,
            idle_uw: 5_000_000,
            read_uw,
            read_bytes_per_s: 7 << 30,
            written_uw,
            written_bytes_per_s: 3 << 30,
            floor_bytes_per_s: 10 << 20,
        }
    }

    fn cpu() -> Cpu {
        let row =
            |power_uw, cores, quota_ppm, p99_interval| Row { power_uw, cores, quota_ppm, limit_uw: 0, p99_interval };
        Cpu { notes: Vec::new(), rows: vec![row(40_000_000, 1, 1_000_000, 1.25), row(50_000_000, 2, 2_000_000, 0.5)] }
    }

    #[test]
    fn parts_of_other_commands_are_kept_and_the_policy_loads_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        let mut first = ProfileFile::read(&path, "own").unwrap();
        first.cpu = Some(cpu());
        assert_eq!(first.missing(), Some("pilotlab profile ssd"));
        first.write(&path).unwrap();
        let mut second = ProfileFile::read(&path, "another").unwrap();
        assert_eq!(second, first);
        second.ssd = Some(ssd());
        second.write(&path).unwrap();
        assert_eq!((second.name.as_str(), second.missing()), ("own", None));
        let profile = Profile::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!((profile.name.as_str(), profile.cpu.top().cores, profile.ssd.drives), ("own", 2, 2));
        assert_eq!(profile.cpu.bottom().power_uw, 40_000_000);
    }

    #[test]
    fn other_files_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        std::fs::write(&path, "[server]\nlisten = 1\n").unwrap();
        let error = format!("{:#}", ProfileFile::read(&path, "own").unwrap_err());
        assert!(error.contains("--out"), "{error}");
    }
}
