//! Output files: whatever a command writes for its user is written here.
//!
//! **Problem.** The user's path may name a file that must not be half replaced, and it may name something that must not be replaced
//! at all: a device, a FIFO, a link.
//!
//! **Rules.** A regular file comes under its name when it is complete and on the medium, in one step; until then it has no name at
//! all (`O_TMPFILE`), so that nothing is left behind by an error, a panic or a signal. Where the file system has no such files it has
//! a name of its own in the same folder, which goes with an error and a panic. The file replaced lends its mode; one that may not be
//! written is not replaced. A link to a file is followed, and the file replaced. A FIFO and a character device are opened and written
//! as they are, and so is what the process already has open (`/dev/stdout`, `/dev/fd/N`). Everything else is refused.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, OFlags};
use rustix::io::Errno;
use tempfile::{Builder, NamedTempFile};

/// Mode of a new file, less the umask.
const MODE: u32 = 0o666;
/// Links that are followed: as many as Linux follows.
const LINKS: usize = 40;
/// The descriptors that a process has open, as files.
const DESCRIPTORS: &str = "/proc/self/fd";

/// An output file that is being written. What is dropped before [`Output::finish`] leaves no file behind.
#[derive(Debug)]
pub struct Output(Kind);

#[derive(Debug)]
enum Kind {
    /// Written as it is.
    Through(File),
    /// A regular file without a name.
    Unnamed { file: File, path: PathBuf },
    /// A regular file under a name of its own.
    Named { file: NamedTempFile, path: PathBuf },
}

/// Where bytes go.
enum Place {
    Through(File),
    Regular { path: PathBuf, before: Option<Permissions> },
}

impl Output {
    /// Begins an output file.
    ///
    /// # Errors
    /// It is nothing that can be written, or the system refuses.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (path, before) = match place(path)? {
            Place::Through(file) => return Ok(Self(Kind::Through(file))),
            Place::Regular { path, before } => (path, before),
        };
        let kind = match unnamed(folder(&path)) {
            Ok(file) => Kind::Unnamed { file, path },
            Err(error) if has_no_unnamed(&error) => {
                let file = builder().permissions(Permissions::from_mode(MODE)).tempfile_in(folder(&path))?;
                Kind::Named { file, path }
            }
            Err(error) => return Err(error),
        };
        let output = Self(kind);
        if let Some(before) = before {
            output.file().set_permissions(before)?;
        }
        Ok(output)
    }

    /// Ends it: from now on it has its name.
    ///
    /// # Errors
    /// It cannot be written to the medium, or not be named; then it is as if nothing had been written.
    pub fn finish(self) -> io::Result<()> {
        if !matches!(self.0, Kind::Through(_)) {
            self.file().sync_all()?;
        }
        match self.0 {
            Kind::Through(_) => Ok(()),
            Kind::Named { file, path } => Ok(file.persist(path).map(drop)?),
            Kind::Unnamed { file, path } => {
                // A link takes no existing name: it gets one of its own, and then the wanted one.
                let open = Path::new(DESCRIPTORS).join(file.as_raw_fd().to_string());
                let link = |name: &Path| Ok(rustix::fs::linkat(CWD, &open, CWD, name, AtFlags::SYMLINK_FOLLOW)?);
                Ok(builder().make_in(folder(&path), link)?.persist(path)?)
            }
        }
    }

    fn file(&self) -> &File {
        match &self.0 {
            Kind::Through(file) | Kind::Unnamed { file, .. } => file,
            Kind::Named { file, .. } => file.as_file(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// Writes a whole output file.
///
/// # Errors
/// As of [`Output::create`] and [`Output::finish`]; and where bytes cannot be written.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut output = Output::create(path)?;
    output.write_all(bytes.as_ref())?;
    output.finish()
}

fn place(path: &Path) -> io::Result<Place> {
    if let Some(descriptor) = descriptor(path) {
        return through(path, &descriptor).map(Place::Through);
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            Ok(Place::Regular { path: path.to_owned(), before: None })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(refused("it is a link to nothing: remove it, or name the file itself"))
        }
        found => there(path, &found?),
    }
}

/// What is there.
fn there(path: &Path, found: &Metadata) -> io::Result<Place> {
    let kind = found.file_type();
    if kind.is_fifo() || kind.is_char_device() {
        return OpenOptions::new().write(true).open(path).map(Place::Through);
    }
    if kind.is_dir() {
        return Err(refused("it is a folder: name a file in it"));
    }
    if !kind.is_file() {
        return Err(refused("it is no regular file, FIFO or character device: name another file"));
    }
    rustix::fs::access(path, Access::WRITE_OK)?;
    Ok(Place::Regular { path: path.canonicalize()?, before: Some(found.permissions()) })
}

/// The number of the open file that a path names, such as 1 for `/dev/stdout`.
fn descriptor(path: &Path) -> Option<String> {
    let own = fs::canonicalize(DESCRIPTORS).ok()?;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let folder = fs::canonicalize(folder(&path)).ok()?;
        if folder == own {
            return Some(path.file_name()?.to_string_lossy().into_owned());
        }
        path = folder.join(fs::read_link(&path).ok()?);
    }
    None
}

/// What is open already, with its position where that is one of the standard streams.
fn through(path: &Path, descriptor: &str) -> io::Result<File> {
    match descriptor {
        "1" => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        "2" => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => OpenOptions::new().append(true).open(path),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn unnamed(folder: &Path) -> io::Result<File> {
    if !Path::new(DESCRIPTORS).is_dir() {
        return Err(Errno::OPNOTSUPP.into()); // it could not be named
    }
    OpenOptions::new().write(true).mode(MODE).custom_flags(OFlags::TMPFILE.bits() as i32).open(folder)
}

/// Whether this says that the file system has no files without names; an old kernel takes it for opening a folder (open(2)).
fn has_no_unnamed(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL].contains(&errno))
}

/// Names of what is not complete: `.pilotlight-XXXXXX.part`.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".pilotlight-").suffix(".part");
    builder
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};

    use super::*;

    /// What is in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A regular file, written in one way or the other.
    fn output(path: &Path, named: bool) -> Output {
        if !named {
            return Output::create(path).unwrap();
        }
        let file = builder().tempfile_in(folder(path)).unwrap();
        Output(Kind::Named { file, path: path.to_owned() })
    }

    #[test]
    fn a_file_comes_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a");
        for named in [false, true] {
            fs::write(&path, "before").unwrap();
            let mut half = output(&path, named);
            half.write_all(b"half").unwrap();
            drop(half);
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(home.path())), ("before", vec!["a".into()]));
            let mut whole = output(&path, named);
            whole.write_all(b"whole").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "before");
            whole.finish().unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(home.path())), ("whole", vec!["a".into()]));
        }
    }

    #[test]
    fn a_new_file_has_the_mode_that_others_have_and_a_replaced_one_keeps_its_own() {
        let home = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(home.path().join(name)).unwrap().mode() & 0o777;
        fs::write(home.path().join("plain"), "").unwrap();
        write(&home.path().join("new"), "").unwrap();
        assert_eq!(mode("new"), mode("plain"));
        let path = home.path().join("plain");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        write(&path, "more").unwrap();
        assert_eq!(mode("plain"), 0o640);
    }

    #[test]
    fn a_link_is_followed_and_stays_a_link() {
        let home = tempfile::tempdir().unwrap();
        let [file, link, chain, lost] = ["file", "link", "chain", "lost"].map(|name| home.path().join(name));
        fs::write(&file, "before").unwrap();
        symlink("file", &link).unwrap();
        symlink(&link, &chain).unwrap();
        symlink("nothing", &lost).unwrap();
        write(&chain, "after").unwrap();
        assert!(link.is_symlink() && chain.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert!(write(&lost, "x").unwrap_err().to_string().contains("link to nothing"));
        assert!(lost.is_symlink());
    }

    #[test]
    fn a_fifo_and_a_device_are_written_and_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let fifo = home.path().join("fifo");
        rustix::fs::mkfifoat(CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read_to_string(fifo).unwrap()
        });
        write(&fifo, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
        write(Path::new("/dev/null"), "away").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(write(Path::new("/dev/full"), "x").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(home.path()), ["fifo"]);
    }

    #[test]
    fn what_the_process_has_open_is_written_as_it_is() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", writer.as_raw_fd());
        write(Path::new(&path), "through").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(descriptor(Path::new("/dev/stdout")).as_deref(), Some("1"));
        assert_eq!(descriptor(Path::new("/dev/null")), None);
        let home = tempfile::tempdir().unwrap();
        let file = File::create(home.path().join("a")).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let inode = file.metadata().unwrap().ino();
        write(Path::new(&path), "in place").unwrap();
        assert_eq!(fs::metadata(home.path().join("a")).unwrap().ino(), inode);
        assert_eq!(fs::read_to_string(home.path().join("a")).unwrap(), "in place");
    }

    #[test]
    fn everything_else_is_refused_and_left() {
        let home = tempfile::tempdir().unwrap();
        assert!(write(home.path(), "x").unwrap_err().to_string().contains("folder"));
        let socket = home.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(write(&socket, "x").unwrap_err().to_string().contains("no regular file"));
        assert_eq!(write(&home.path().join("no/such"), "x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(names(home.path()), ["socket"]);
    }
}
