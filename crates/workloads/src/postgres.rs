//! A PostgreSQL server of one's own: made in a folder, reached by a socket in it and by nothing else, and removed at the end.
//!
//! PostgreSQL refuses to run as root, so that root makes the folder for the account `user` and starts the server's programs
//! with `setpriv`, which becomes them: a signal to the step is one to the server.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Missing, Place, Problem, Stage, Step, Value, problem, program};

/// What would help where PostgreSQL is missing.
pub(crate) const HELP: &str = "apt install postgresql (Debian then also starts a server of its own, which may be stopped), or \
                               name the folder of its programs with workload.programs";
/// Where Debian has PostgreSQL's programs, in a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Settings of the server that make it one's own.
pub(crate) const OWN: [&str; 3] = ["listen_addresses", "unix_socket_directories", "port"];
/// Longest name of a socket (`sun_path`), without the closing zero.
const LONGEST: usize = 107;
const SOCKET: &str = ".s.PGSQL.5432";

/// Where the server lives and who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Folder of PostgreSQL's programs; empty if they are on the path.
    pub(crate) programs: PathBuf,
    /// Folder of the socket and, in it, the data.
    pub(crate) folder: PathBuf,
    /// The account that the server's programs run under; `None` for ours.
    pub(crate) user: Option<String>,
}

/// The folder of PostgreSQL's programs: as named, else Debian's newest, else the path.
pub(crate) fn programs(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| newest(Path::new(DEBIAN)), Path::to_owned)
}

/// Whether all that is needed is there; as root also the account.
pub(crate) fn look(programs: &Path, user: &str, tool: &str) -> Result<(), Missing> {
    for name in ["initdb", "postgres", "pg_ctl", "pg_isready", "createdb", "psql"] {
        program::ask(&programs.join(name), &["--version"], HELP)?;
    }
    if !is_root() {
        return Ok(());
    }
    program::ask(Path::new("setpriv"), &["--version"], "apt install util-linux")?;
    let said = program::ask(Path::new("id"), &["-u", user], "apt install coreutils")?;
    said.trim().parse::<u32>().map(drop).map_err(|_| Missing {
        tool: tool.into(),
        why: format!("PostgreSQL does not run as root, and there is no account {user}"),
        help: "name another account with workload.user".into(),
    })
}

/// A value as the server's settings have it.
pub(crate) fn setting(value: &Value) -> String {
    match value {
        Value::Switch(on) => if *on { "on" } else { "off" }.into(),
        other => other.to_string(),
    }
}

/// The folder of the newest PostgreSQL that a Debian has, under `versions` (`/usr/lib/postgresql`); empty if there is none.
pub(crate) fn newest(versions: &Path) -> PathBuf {
    let folders = std::fs::read_dir(versions).into_iter().flatten().flatten();
    let numbered = folders.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    numbered.max().map_or(PathBuf::new(), |(_, path)| path.join("bin"))
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

impl Server {
    /// In a folder of its own in the stage's; `user` is for when we are root.
    pub(crate) fn new(programs: &Path, user: &str, stage: &Stage) -> Result<Self, Problem> {
        let Place::Folder(place) = &stage.place else {
            return Err(problem("target", "PostgreSQL needs a folder, in which a database is made"));
        };
        let folder = place.join("pilotlight-postgres");
        if folder.join(SOCKET).as_os_str().len() > LONGEST {
            let why = format!("{} is too long a name for a socket: use a folder nearer to the root", folder.display());
            return Err(problem("target", why));
        }
        Ok(Self { programs: programs.into(), folder, user: is_root().then(|| user.to_owned()) })
    }

    /// No server may be left there, and every folder above must let the server's account through.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.data().join("postmaster.pid").exists() {
            let why = format!("a PostgreSQL seems to run in {}: stop it, or remove that folder", self.folder.display());
            return Err(problem("target", why));
        }
        let Some(user) = &self.user else { return Ok(()) };
        let closed = |folder: &&Path| std::fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 == 0);
        let Some(closed) = self.folder.ancestors().skip(1).find(closed) else { return Ok(()) };
        let why = format!(
            "{} cannot pass through {}: chmod o+x it, or use another folder (PostgreSQL does not run as root)",
            user,
            closed.display()
        );
        Err(problem("target", why))
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A program of the server, as the server's account.
    fn step(&self, name: &str, words: &[&str], why: &str) -> Step {
        let own = |word: &&str| (*word).to_owned();
        let path = self.programs.join(name).display().to_string();
        let as_user = self.user.iter().flat_map(|user| {
            let ids = [format!("--reuid={user}"), format!("--regid={user}")];
            ["setpriv".to_owned()].into_iter().chain(ids).chain(["--init-groups".into(), "--".into()])
        });
        let mut all = as_user.chain([path]).chain(words.iter().map(own));
        let first = all.next().unwrap_or_default();
        Step {
            argv: program::argv(Path::new(&first), all),
            folder: Some(self.folder.clone()),
            why: why.into(),
            ..Step::default()
        }
    }

    /// A program that talks to the server.
    pub(crate) fn client(&self, name: &str, words: impl IntoIterator<Item = String>, why: &str) -> Step {
        let socket = ["-h".to_owned(), self.folder.display().to_string(), "-U".into(), "postgres".into()];
        let argv = program::argv(&self.programs.join(name), socket.into_iter().chain(words));
        Step { argv, why: why.into(), ..Step::default() }
    }

    /// An empty cluster.
    pub(crate) fn make(&self) -> Vec<Step> {
        let folder = self.folder.display().to_string();
        let owner = self.user.iter().flat_map(|user| ["-o".to_owned(), user.clone(), "-g".into(), user.clone()]);
        let words = ["-d".to_owned(), "-m".into(), "700".into()].into_iter().chain(owner).chain([folder.clone()]);
        let scratch = |argv| Step { argv, why: "a folder for PostgreSQL".into(), ..Step::default() };
        let data = self.data().display().to_string();
        let init = ["-D", &data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
        vec![
            self.remove(),
            scratch(program::argv(Path::new("install"), words)),
            self.step("initdb", &init, "making a database"),
        ]
    }

    /// The server itself, in the background, and a wait until it answers.
    pub(crate) fn start(&self, settings: &[(String, String)]) -> Vec<Step> {
        let (data, folder) = (self.data().display().to_string(), self.folder.display().to_string());
        let settings: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let socket = format!("unix_socket_directories={folder}");
        let mut words = vec!["-D", &data, "-c", "listen_addresses=", "-c", &socket];
        words.extend(settings.iter().flat_map(|setting| ["-c", setting]));
        let server = self.step("postgres", &words, "PostgreSQL");
        let ready = Some(self.folder.join(SOCKET));
        // The socket is there before the server takes connections.
        let wait = "until \"$0\" -q -h \"$1\"; do sleep 0.1; done".to_owned();
        let pg_isready = self.programs.join("pg_isready").display().to_string();
        let words = ["-c".to_owned(), wait, pg_isready, folder.clone()];
        let wait = program::argv(Path::new("sh"), words);
        vec![
            Step { background: true, ready, ..server },
            Step { argv: wait, limit_s: 120.0, why: "waiting for PostgreSQL".into(), ..Step::default() },
        ]
    }

    /// Has it write out what is dirty, so that points do not pay for each other.
    pub(crate) fn checkpoint(&self) -> Step {
        let words = ["--quiet", "--command=CHECKPOINT", "postgres"].map(str::to_owned);
        self.client("psql", words, "writing out what is dirty")
    }

    /// Ends the server at once, without waiting for its clients.
    pub(crate) fn stop(&self) -> Step {
        let data = self.data().display().to_string();
        let words = ["stop", "-D", &data, "-m", "fast", "-w", "-t", "120"];
        Step { limit_s: 150.0, ..self.step("pg_ctl", &words, "stopping PostgreSQL") }
    }

    /// Removes what was made.
    pub(crate) fn remove(&self) -> Step {
        let words = ["-rf".to_owned(), "--".into(), self.folder.display().to_string()];
        Step { argv: program::argv(Path::new("rm"), words), why: "removing the database".into(), ..Step::default() }
    }
}
