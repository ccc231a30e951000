//! Atomic replacement of files: a reader finds either the old or the new contents, also after `kill -9` or a crash.
//!
//! A draft is written to the same directory, synchronised, and renamed to the file; then the directory is synchronised. A draft left by a killed
//! process is overwritten by the next one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Mode of a new file, less the umask.
const MODE: u32 = 0o644;

/// Replaces the contents of a file, or creates it. Symbolic links are followed; mode and owner of the file are kept.
///
/// # Errors
/// If it cannot be written; the file is then unchanged.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let path = &match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let draft = draft(path);
    let written = write(&draft, path, contents).and_then(|()| fs::rename(&draft, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&draft); // fails if it was not created
        return Err(with_remedy(error, folder(path)));
    }
    File::open(folder(path))?.sync_all()
}

/// Path of the draft.
fn draft(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn write(draft: &Path, path: &Path, contents: &[u8]) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let before = fs::metadata(path).ok();
    let mode = if before.is_some() { 0o600 } else { MODE };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    if let Some(before) = before {
        let owner = give(&file, (before.uid(), before.gid()));
        let mode = before.permissions().mode();
        // with another owner, the old mode would grant rights meant for the old owner and group
        file.set_permissions(fs::Permissions::from_mode(if owner.is_ok() { mode } else { mode & 0o700 }))?;
    }
    file.write_all(contents)?;
    file.sync_all()
}

/// Sets the owner and group of a file if they differ: the system call filter of a service may refuse chown.
fn give(file: &File, to: (u32, u32)) -> io::Result<()> {
    let meta = file.metadata()?;
    if (meta.uid(), meta.gid()) == to {
        return Ok(());
    }
    fchown(file, Some(to.0), Some(to.1))
}

/// An error, with a remedy if the directory is the cause.
fn with_remedy(error: io::Error, folder: &Path) -> io::Error {
    let folder = folder.display();
    let what = match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("{error}: a new file is made in {folder}, so the server's user needs the right to write there")
        }
        ErrorKind::ReadOnlyFilesystem => {
            format!(
                "{error}: a new file is made in {folder}; of a systemd service, ReadWritePaths={folder} allows that"
            )
        }
        _ => return error,
    };
    io::Error::new(error.kind(), what)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_also_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("a.toml"), dir.path().join("link"));
        replace(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        fs::write(draft(&path), "left by a killed process").unwrap();
        replace(&link, b"two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert!(link.is_symlink() && fs::read_dir(dir.path()).unwrap().count() == 2, "and nothing is left beside it");
    }

    #[test]
    fn a_failed_write_is_an_error_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(replace(&dir.path().join("none/a"), b"x").is_err());
        fs::create_dir(dir.path().join("folder")).unwrap();
        assert!(replace(&dir.path().join("folder"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_a_remedy() {
        let message = |kind: ErrorKind| with_remedy(kind.into(), Path::new("/etc/pilotlight")).to_string();
        assert!(message(ErrorKind::PermissionDenied).contains("/etc/pilotlight, so the server's user needs"));
        assert!(message(ErrorKind::ReadOnlyFilesystem).contains("ReadWritePaths=/etc/pilotlight"));
        assert!(!message(ErrorKind::StorageFull).contains("/etc"));
    }
}
