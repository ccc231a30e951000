//! A private PostgreSQL server: created in a folder, reachable only by a Unix socket in it, and removed at the end.
//!
//! PostgreSQL refuses to run as root. Root creates the folder for the account `user` and starts the server's programs with `setpriv`,
//! which replaces itself by exec: a signal to the step reaches the server.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Missing, Problem, RunContext, Step, Target, Value, problem, program};

/// How to install PostgreSQL.
pub(crate) const HELP: &str = "apt install postgresql (Debian also starts a server, which may be stopped), or set \
                               workload.programs to the folder of its programs";
/// Debian's folder of PostgreSQL's programs, with a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Settings of the server that the adapter sets.
pub(crate) const RESERVED: [&str; 3] = ["listen_addresses", "unix_socket_directories", "port"];
/// Longest path of a socket (`sun_path`), without the terminating zero.
const MAX_SOCKET_PATH: usize = 107;
const SOCKET: &str = ".s.PGSQL.5432";

/// Folder and account of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Folder of PostgreSQL's programs; empty if they are on the path.
    pub(crate) programs: PathBuf,
    /// Folder of the socket and, in it, the data.
    pub(crate) folder: PathBuf,
    /// Account of the server's processes; `None` for the current one.
    pub(crate) user: Option<String>,
}

/// The folder of PostgreSQL's programs: the configured one, else Debian's newest, else `PATH`.
pub(crate) fn programs(configured: Option<&Path>) -> PathBuf {
    configured.map_or_else(|| newest(Path::new(DEBIAN)), Path::to_owned)
}

/// Checks that all programs exist, and as root also the account.
pub(crate) fn check_installed(programs: &Path, user: &str, tool: &str) -> Result<(), Missing> {
    for name in ["initdb", "postgres", "pg_ctl", "pg_isready", "createdb", "psql"] {
        program::output(&programs.join(name), &["--version"], HELP)?;
    }
    if !is_root() {
        return Ok(());
    }
    program::output(Path::new("setpriv"), &["--version"], "apt install util-linux")?;
    let id = program::output(Path::new("id"), &["-u", user], "apt install coreutils")?;
    id.trim().parse::<u32>().map(drop).map_err(|_| Missing {
        tool: tool.into(),
        why: format!("PostgreSQL does not run as root, and the account {user} does not exist"),
        help: "set workload.user to another account".into(),
    })
}

/// A value in the notation of the server's settings.
pub(crate) fn setting(value: &Value) -> String {
    match value {
        Value::Switch(on) => if *on { "on" } else { "off" }.into(),
        other => other.to_string(),
    }
}

/// The newest version's folder of programs under `versions`; empty if there is none.
pub(crate) fn newest(versions: &Path) -> PathBuf {
    let folders = std::fs::read_dir(versions).into_iter().flatten().flatten();
    let numbered = folders.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    numbered.max().map_or(PathBuf::new(), |(_, path)| path.join("bin"))
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

impl Server {
    /// A server in a folder below the target; `user` is used only as root.
    pub(crate) fn new(programs: &Path, user: &str, context: &RunContext) -> Result<Self, Problem> {
        let Target::Folder(target) = &context.target else {
            return Err(problem("target", "PostgreSQL needs a folder for its database"));
        };
        let folder = target.join("pilotlight-postgres");
        if folder.join(SOCKET).as_os_str().len() > MAX_SOCKET_PATH {
            let why =
                format!("the socket's path in {} is too long; use a folder with a shorter path", folder.display());
            return Err(problem("target", why));
        }
        Ok(Self { programs: programs.into(), folder, user: is_root().then(|| user.to_owned()) })
    }

    /// Checks that no server is left in the folder, and that the server's account can pass through every parent folder.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        if self.data().join("postmaster.pid").exists() {
            let why = format!(
                "a PostgreSQL server may be running in {}; stop it or remove that folder",
                self.folder.display()
            );
            return Err(problem("target", why));
        }
        let Some(user) = &self.user else { return Ok(()) };
        let closed = |folder: &&Path| std::fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 == 0);
        let Some(closed) = self.folder.ancestors().skip(1).find(closed) else { return Ok(()) };
        let why = format!(
            "the account {} cannot pass through {}; chmod o+x it, or use another folder (PostgreSQL does not run as root)",
            user,
            closed.display()
        );
        Err(problem("target", why))
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A program of the server, run under the server's account.
    fn step(&self, name: &str, words: &[&str], why: &str) -> Step {
        let owned = |word: &&str| (*word).to_owned();
        let path = self.programs.join(name).display().to_string();
        let as_user = self.user.iter().flat_map(|user| {
            let ids = [format!("--reuid={user}"), format!("--regid={user}")];
            ["setpriv".to_owned()].into_iter().chain(ids).chain(["--init-groups".into(), "--".into()])
        });
        let mut all = as_user.chain([path]).chain(words.iter().map(owned));
        let first = all.next().unwrap_or_default();
        Step {
            argv: program::argv(Path::new(&first), all),
            folder: Some(self.folder.clone()),
            why: why.into(),
            ..Step::default()
        }
    }

    /// A client program of the server.
    pub(crate) fn client(&self, name: &str, words: impl IntoIterator<Item = String>, why: &str) -> Step {
        let socket = ["-h".to_owned(), self.folder.display().to_string(), "-U".into(), "postgres".into()];
        let argv = program::argv(&self.programs.join(name), socket.into_iter().chain(words));
        Step { argv, why: why.into(), ..Step::default() }
    }

    /// Creates an empty cluster.
    pub(crate) fn create(&self) -> Vec<Step> {
        let folder = self.folder.display().to_string();
        let owner = self.user.iter().flat_map(|user| ["-o".to_owned(), user.clone(), "-g".into(), user.clone()]);
        let words = ["-d".to_owned(), "-m".into(), "700".into()].into_iter().chain(owner).chain([folder.clone()]);
        let scratch = |argv| Step { argv, why: "creating a folder for PostgreSQL".into(), ..Step::default() };
        let data = self.data().display().to_string();
        let init = ["-D", &data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
        vec![
            self.remove(),
            scratch(program::argv(Path::new("install"), words)),
            self.step("initdb", &init, "creating a database cluster"),
        ]
    }

    /// Starts the server in the background and waits until it accepts connections.
    pub(crate) fn start(&self, settings: &[(String, String)]) -> Vec<Step> {
        let (data, folder) = (self.data().display().to_string(), self.folder.display().to_string());
        let settings: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let socket = format!("unix_socket_directories={folder}");
        let mut words = vec!["-D", &data, "-c", "listen_addresses=", "-c", &socket];
        words.extend(settings.iter().flat_map(|setting| ["-c", setting]));
        let server = self.step("postgres", &words, "PostgreSQL");
        let ready = Some(self.folder.join(SOCKET));
        // The socket exists before the server accepts connections.
        let wait = "until \"$0\" -q -h \"$1\"; do sleep 0.1; done".to_owned();
        let pg_isready = self.programs.join("pg_isready").display().to_string();
        let words = ["-c".to_owned(), wait, pg_isready, folder.clone()];
        let wait = program::argv(Path::new("sh"), words);
        vec![
            Step { background: true, ready, ..server },
            Step { argv: wait, limit_s: 120.0, why: "waiting for PostgreSQL".into(), ..Step::default() },
        ]
    }

    /// Writes dirty pages, so that a point does not include the writes of the point before.
    pub(crate) fn checkpoint(&self) -> Step {
        let words = ["--quiet", "--command=CHECKPOINT", "postgres"].map(str::to_owned);
        self.client("psql", words, "writing dirty pages")
    }

    /// Stops the server without waiting for its clients.
    pub(crate) fn stop(&self) -> Step {
        let data = self.data().display().to_string();
        let words = ["stop", "-D", &data, "-m", "fast", "-w", "-t", "120"];
        Step { limit_s: 150.0, ..self.step("pg_ctl", &words, "stopping PostgreSQL") }
    }

    /// Removes the folder.
    pub(crate) fn remove(&self) -> Step {
        let words = ["-rf".to_owned(), "--".into(), self.folder.display().to_string()];
        Step { argv: program::argv(Path::new("rm"), words), why: "removing the database".into(), ..Step::default() }
    }
}
