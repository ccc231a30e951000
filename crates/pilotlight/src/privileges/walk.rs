//! Opens a file with root's rights only where nobody but root can change which file that is.
//!
//! **Problem.** The helper opens paths of the configuration for a server that may be compromised and runs as another user. If that user can
//! write to a folder on the way, it can put a symbolic link to `/etc/shadow` there.
//!
//! **Algorithm.** The path is followed name by name, symbolic links included. Each folder must belong to root and be writable by root only.
//! A folder that others can write to is accepted if it is sticky, as `/tmp`, for entries that belong to root: others cannot rename
//! or remove these; files there must have no second name, as a hard link could be another user's. A client of a control socket walks to it
//! likewise, and accepts its own folders and those of the server's user too ([`owner`]).
//!
//! **Properties.** The open file is the one that the checks saw: nobody else can replace it in between. Access control lists are covered,
//! because their mask is the group part of the mode.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, fsync, openat, readlinkat};
use rustix::io::Errno;

/// Symbolic links on the way (the kernel's limit, path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// Why a file was not opened.
#[derive(Debug)]
pub(crate) enum WalkError {
    /// Others than root can change which file it is.
    Untrusted,
    /// The system refused.
    System(Errno),
}

impl From<Errno> for WalkError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

/// A folder on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folder {
    /// Only root can write to it.
    Closed,
    /// Others can add entries, but not change root's.
    Sticky,
}

/// Users who may change where a path leads, besides root.
struct Trusted<'a> {
    /// Owners of folders.
    folders: &'a [u32],
    /// Owners of entries of sticky folders, where any user can add some.
    entries: &'a [u32],
}

/// The end of a path.
struct Found {
    folder: OwnedFd,
    name: OsString,
    /// `None`: there is no such entry.
    stat: Option<Stat>,
}

/// Opens the regular file or block device at `path` with these flags, or, if they contain `CREATE`, creates a file.
///
/// # Errors
/// [`WalkError`]; `INVAL` for another type of file.
pub(super) fn open(path: &Path, flags: OFlags) -> Result<File, WalkError> {
    let Found { folder, name, stat } = find(path, &Trusted { folders: &[], entries: &[] })?;
    let Some(stat) = stat else {
        return if flags.contains(OFlags::CREATE) { create(&folder, &name, flags) } else { Err(Errno::NOENT.into()) };
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice if flags.contains(OFlags::CREATE) => Err(Errno::EXIST.into()),
        FileType::RegularFile | FileType::BlockDevice => {
            let open = |flags| openat(&folder, &name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
            match open(flags) {
                Err(Errno::ROFS) if is_device => Ok(open(flags - OFlags::RDWR)?.into()), // a device that cannot be written
                result => Ok(result?.into()),
            }
        }
        _ => Err(Errno::INVAL.into()),
    }
}

/// The owner of the entry at `path`, if nobody but root, `own` and `other` can put another one there. In a sticky folder an entry of
/// `other` is not accepted: it could have come first.
///
/// # Errors
/// [`WalkError`].
pub(crate) fn owner(path: &Path, own: u32, other: u32) -> Result<u32, WalkError> {
    let found = find(path, &Trusted { folders: &[own, other], entries: &[own] })?;
    found.stat.map(|stat| stat.st_uid).ok_or(WalkError::System(Errno::NOENT))
}

fn find(path: &Path, trusted: &Trusted<'_>) -> Result<Found, WalkError> {
    let absolute = std::path::absolute(path).map_err(|_| Errno::NOENT)?;
    let mut left = names(&absolute);
    let mut folder = root()?;
    let mut links = 0;
    while let Some(name) = left.pop() {
        let kind = check_folder(&fstat(&folder)?, trusted.folders)?;
        let found = openat(&folder, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let found = match found {
            Err(Errno::NOENT) if left.is_empty() => return Ok(Found { folder, name, stat: None }),
            found => found?,
        };
        let stat = fstat(&found)?;
        check_entry(kind, &stat, trusted.entries)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes());
                let target = Path::new(&target);
                if target.is_absolute() {
                    folder = root()?;
                }
                left.extend(names(target));
            }
            FileType::Directory => folder = found,
            _ if left.is_empty() => return Ok(Found { folder, name, stat: Some(stat) }),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Err(Errno::ISDIR.into())
}

/// Whether only root can change a file's contents.
pub(super) fn is_roots(stat: &Stat) -> bool {
    stat.st_uid == 0 && stat.st_mode & 0o022 == 0
}

/// The names on the way, the last first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

fn root() -> Result<OwnedFd, Errno> {
    openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn check_folder(stat: &Stat, owners: &[u32]) -> Result<Folder, WalkError> {
    const STICKY: u32 = 0o1000;
    match stat.st_mode & 0o022 == 0 {
        _ if !is_of(stat, owners) => Err(WalkError::Untrusted),
        true => Ok(Folder::Closed),
        false if stat.st_mode & STICKY != 0 => Ok(Folder::Sticky),
        false => Err(WalkError::Untrusted),
    }
}

fn check_entry(folder: Folder, stat: &Stat, owners: &[u32]) -> Result<(), WalkError> {
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let is_safe = is_of(stat, owners) && (is_folder || stat.st_nlink == 1);
    if folder == Folder::Closed || is_safe { Ok(()) } else { Err(WalkError::Untrusted) }
}

/// Whether root or one of these users is the owner.
fn is_of(stat: &Stat, owners: &[u32]) -> bool {
    stat.st_uid == 0 || owners.contains(&stat.st_uid)
}

/// Creates a file for its owner only, durably.
fn create(folder: impl AsFd, name: &OsString, flags: OFlags) -> Result<File, WalkError> {
    let flags = flags | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    fsync(openat(&folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)?;
    Ok(file.into())
}

/// The error of the system, for messages.
impl From<WalkError> for io::Error {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::Untrusted => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "others than root can change a folder on the way to it, or put another file in its place",
            ),
            WalkError::System(errno) => errno.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    const READ: OFlags = OFlags::RDONLY;

    fn text(path: &Path) -> Result<String, WalkError> {
        let mut text = String::new();
        open(path, READ)?.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    fn is_untrusted(path: &Path) -> bool {
        matches!(open(path, READ), Err(WalkError::Untrusted))
    }

    /// A folder of root, below the sticky `/tmp`; `None` for another user.
    fn folder() -> Option<tempfile::TempDir> {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("skipped: only root's folders are trusted, and this is not root");
        }
        is_root.then(|| tempfile::tempdir().unwrap())
    }

    #[test]
    fn files_are_opened_where_only_root_can_change_them() {
        let Some(dir) = folder() else { return };
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "text").unwrap();
        symlink("../".to_owned() + dir.path().file_name().unwrap().to_str().unwrap() + "/file", &link).unwrap();
        assert_eq!((text(&file).unwrap(), text(&link).unwrap()), ("text".to_owned(), "text".to_owned()));
        assert!(matches!(text(&dir.path().join("none")), Err(WalkError::System(Errno::NOENT))));
        assert!(matches!(text(dir.path()), Err(WalkError::System(Errno::ISDIR))));
        assert!(matches!(text(Path::new("/dev/null")), Err(WalkError::System(Errno::INVAL))));
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(matches!(text(&dir.path().join("loop")), Err(WalkError::System(Errno::LOOP))));
        let new = dir.path().join("new");
        open(&new, OFlags::RDWR | OFlags::CREATE).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_folder_that_others_can_change_is_not_trusted() {
        let Some(dir) = folder() else { return };
        let (inner, file) = (dir.path().join("inner"), dir.path().join("inner/file"));
        fs::create_dir(&inner).unwrap();
        symlink("/etc/hostname", &file).unwrap();
        let set = |owner: u32, mode: u32| {
            chown(&inner, Some(owner), None).unwrap();
            fs::set_permissions(&inner, Permissions::from_mode(mode)).unwrap();
        };
        for (owner, mode) in [(65_534, 0o755), (0, 0o775), (0, 0o757)] {
            set(owner, mode);
            assert!(is_untrusted(&file), "{owner} {mode:o}");
            let new = open(&inner.join("new"), OFlags::RDWR | OFlags::CREATE);
            assert!(matches!(new, Err(WalkError::Untrusted)), "{owner} {mode:o}");
        }
        let outside = dir.path().join("link");
        symlink(&file, &outside).unwrap();
        assert!(is_untrusted(&outside), "also behind a link");
    }

    #[test]
    fn a_folder_of_another_user_is_trusted_only_as_a_socket_s_and_where_that_user_could_not_come_first() {
        const OWN: u32 = 65_533;
        const OTHER: u32 = 65_534;
        let Some(dir) = folder() else { return };
        let (inner, socket) = (dir.path().join("inner"), dir.path().join("inner/socket"));
        fs::create_dir(&inner).unwrap();
        fs::write(&socket, "").unwrap();
        chown(&socket, Some(OTHER), None).unwrap();
        let set = |owner: u32, mode: u32| {
            chown(&inner, Some(owner), None).unwrap();
            fs::set_permissions(&inner, Permissions::from_mode(mode)).unwrap();
        };
        let is_found = || owner(&socket, OWN, OTHER).is_ok_and(|found| found == OTHER);
        for (owner, mode, expected) in [
            (0, 0o755, true),
            (OWN, 0o755, true),
            (OTHER, 0o755, true),
            (65_532, 0o755, false),
            (OTHER, 0o775, false),
            (0, 0o1777, false),
        ] {
            set(owner, mode);
            assert_eq!(is_found(), expected, "{owner} {mode:o}");
        }
        set(OTHER, 0o755);
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        assert!(!is_found(), "any user could have made it in the sticky folder");
        chown(&inner, Some(OWN), None).unwrap();
        assert!(is_found(), "its own folder in the sticky folder");
    }

    #[test]
    fn a_sticky_folder_is_trusted_for_entries_of_root() {
        let Some(dir) = folder() else { return };
        let (folder, file) = (dir.path().join("sticky"), dir.path().join("sticky/file"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
        fs::write(&file, "text").unwrap();
        assert_eq!(text(&file).unwrap(), "text");
        fs::hard_link(&file, folder.join("second")).unwrap();
        assert!(is_untrusted(&file), "a second name");
        fs::remove_file(folder.join("second")).unwrap();
        chown(&file, Some(65_534), None).unwrap();
        assert!(is_untrusted(&file), "of another user");
        let link = folder.join("link");
        symlink("/etc/hostname", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
        assert!(is_untrusted(&link), "another user's link");
    }
}
