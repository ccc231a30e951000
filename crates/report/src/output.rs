//! Output files of commands.
//!
//! **Problem.** The path of an output may name a file that must not be partially replaced, or something that must not be replaced at
//! all: a device, a FIFO, a link.
//!
//! **Rules.** A regular file gets its name in one step, when it is complete and synchronised to the medium. Until then it is unnamed
//! (`O_TMPFILE`), so that an error, a panic or a signal leaves no file behind; if the file system does not support that, it has a
//! temporary name in the same folder, removed on an error or panic. The mode of a replaced file is kept; a read-only file is not
//! replaced. A link to a file is followed. A FIFO, a character device and a file that the process has open (`/dev/stdout`,
//! `/dev/fd/N`) are written directly. Everything else is refused.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, OFlags};
use rustix::io::Errno;
use tempfile::{Builder, NamedTempFile};

/// Mode of a new file, before the umask is applied.
const MODE: u32 = 0o666;
/// Maximum number of links that are followed, as in Linux.
const LINKS: usize = 40;
/// The open descriptors of this process, as files.
const DESCRIPTORS: &str = "/proc/self/fd";

/// An output file during writing. If it is dropped before [`Output::finish`], no file is left behind.
#[derive(Debug)]
pub struct Output(Kind);

#[derive(Debug)]
enum Kind {
    /// Written directly.
    Through(File),
    /// A regular file without a name.
    Unnamed { file: File, path: PathBuf },
    /// A regular file with a temporary name.
    Named { file: NamedTempFile, path: PathBuf },
}

/// Destination of the bytes.
enum Place {
    Through(File),
    Regular { path: PathBuf, before: Option<Permissions> },
}

impl Output {
    /// Opens an output file.
    ///
    /// # Errors
    /// If it is of a kind that is refused, or a system call fails.
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

    /// Completes the file, which gets its name.
    ///
    /// # Errors
    /// If it cannot be synchronised or named; then nothing is changed.
    pub fn finish(self) -> io::Result<()> {
        if !matches!(self.0, Kind::Through(_)) {
            self.file().sync_all()?;
        }
        match self.0 {
            Kind::Through(_) => Ok(()),
            Kind::Named { file, path } => Ok(file.persist(path).map(drop)?),
            Kind::Unnamed { file, path } => {
                // linkat(2) does not replace a file: link under a temporary name, then rename.
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
/// As [`Output::create`] and [`Output::finish`]; or if bytes cannot be written.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut output = Output::create(path)?;
    output.write_all(bytes.as_ref())?;
    output.finish()
}

fn place(path: &Path) -> io::Result<Place> {
    if let Some(descriptor) = descriptor(path) {
        return descriptor_file(path, &descriptor).map(Place::Through);
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            Ok(Place::Regular { path: path.to_owned(), before: None })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(invalid_path("it is a link to nothing: remove it, or name the file itself"))
        }
        found => existing_place(path, &found?),
    }
}

/// The destination at an existing path.
fn existing_place(path: &Path, found: &Metadata) -> io::Result<Place> {
    let kind = found.file_type();
    if kind.is_fifo() || kind.is_char_device() {
        return OpenOptions::new().write(true).open(path).map(Place::Through);
    }
    if kind.is_dir() {
        return Err(invalid_path("it is a folder: name a file in it"));
    }
    if !kind.is_file() {
        return Err(invalid_path("it is no regular file, FIFO or character device: name another file"));
    }
    rustix::fs::access(path, Access::WRITE_OK)?;
    Ok(Place::Regular { path: path.canonicalize()?, before: Some(found.permissions()) })
}

/// The descriptor that a path names, such as 1 for `/dev/stdout`.
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

/// The open file of a descriptor; standard streams keep their position.
fn descriptor_file(path: &Path, descriptor: &str) -> io::Result<File> {
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
        return Err(Errno::OPNOTSUPP.into()); // a name needs /proc
    }
    OpenOptions::new().write(true).mode(MODE).custom_flags(OFlags::TMPFILE.bits() as i32).open(folder)
}

/// Whether the file system does not support unnamed files; old kernels report an attempt to open a folder (open(2)).
fn has_no_unnamed(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL].contains(&errno))
}

/// Temporary names: `.pilotlight-XXXXXX.part`.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".pilotlight-").suffix(".part");
    builder
}

fn invalid_path(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};

    use super::*;

    /// The names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A regular file, with a temporary name or unnamed.
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
    fn a_new_file_has_the_default_mode_and_a_replaced_one_its_own() {
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
    fn open_descriptors_are_written_and_not_replaced() {
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
