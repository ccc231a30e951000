//! The files that a configuration names: the only ones that the helper opens.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fstat};

use super::message::Purpose;
use super::walk;
use crate::config::{Named, ServeArgs, named_files};

/// The files that a configuration names.
#[derive(Debug)]
pub(super) struct NamedFiles {
    named: Named,
    /// Which state of the configuration file that was; `None` without a file.
    version: Option<Version>,
}

/// Device, inode, size and time of the last change (seconds, nanoseconds) of a file.
type Version = (u64, u64, u64, i64, i64);

impl NamedFiles {
    /// Reads the configuration.
    ///
    /// # Errors
    /// The file cannot be read, others than root can change it, or it is not TOML.
    pub(super) fn read(args: &ServeArgs) -> io::Result<Self> {
        let Some(path) = &args.config else {
            return Ok(Self { named: named_files(args, None)?, version: None });
        };
        let file = open_configuration(path).map_err(|error| {
            let help = "only root may be able to change it and its folders (chown root, chmod go-w)";
            io::Error::new(error.kind(), format!("{}: {error}; {help}", path.display()))
        })?;
        let version = Some(version(&file)?);
        let text = io::read_to_string(file)?;
        Ok(Self { named: named_files(args, Some(&text))?, version })
    }

    /// Reads the configuration again if its file has changed. If that fails, what was named before stays.
    pub(super) fn refresh(&mut self, args: &ServeArgs) {
        let now = args.config.as_ref().and_then(|path| version(&open_configuration(path).ok()?).ok());
        if now != self.version
            && let Ok(read) = Self::read(args)
        {
            *self = read;
        }
    }

    /// Whether a file is named, for this purpose.
    pub(super) fn has(&self, path: &Path, purpose: Purpose) -> bool {
        let list: &[PathBuf] = match purpose {
            Purpose::Text => &self.named.texts,
            Purpose::Look
            | Purpose::File
            | Purpose::Device
            | Purpose::NewFile
            | Purpose::ReadOnly
            | Purpose::ReadOnlyDevice => &self.named.storage,
        };
        list.iter().any(|named| named == path)
    }
}

/// Opens a configuration file that only root can change.
fn open_configuration(path: &Path) -> io::Result<File> {
    let file = walk::open(path, OFlags::RDONLY)?;
    if !walk::is_roots(&fstat(&file)?) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others than root can change it"));
    }
    Ok(file)
}

fn version(file: &File) -> io::Result<Version> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_a_changed_file_names_is_opened() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root's files are trusted, and this is not root");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        let args = ServeArgs { config: Some(file.clone()), ..ServeArgs::default() };
        let write = |backend: &str| {
            let text = format!(
                "[security]\nsecrets_file = \"secrets\"\n[[subsystem]]\nnamespace = [{{ backend = \"{backend}\" }}]"
            );
            fs::write(&file, text).unwrap();
        };
        write("checked:file:a");
        let mut named = NamedFiles::read(&args).unwrap();
        let has = |named: &NamedFiles, name: &str, purpose| named.has(&dir.path().join(name), purpose);
        for name in ["a", "a.sums"] {
            assert!(has(&named, name, Purpose::Device) && has(&named, name, Purpose::Look), "{name}");
            assert!(!has(&named, name, Purpose::Text), "{name}");
        }
        assert!(has(&named, "secrets", Purpose::Text) && has(&named, "a.toml", Purpose::Text));
        assert!(!has(&named, "secrets", Purpose::File) && !has(&named, "b", Purpose::File));
        write("file:b-with-a-longer-name");
        named.refresh(&args);
        assert!(has(&named, "b-with-a-longer-name", Purpose::File) && !has(&named, "a", Purpose::File));
        fs::write(&file, "not TOML").unwrap();
        named.refresh(&args);
        assert!(has(&named, "b-with-a-longer-name", Purpose::File), "it stays");
        write("file:c");
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        named.refresh(&args);
        assert!(!has(&named, "c", Purpose::File), "others have written it");
        assert!(NamedFiles::read(&args).unwrap_err().to_string().contains("chmod go-w"));
    }
}
