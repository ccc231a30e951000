//! The default path of the control socket.

use std::env;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Name of the socket.
const NAME: &str = "pilotlight.sock";
/// Directory of root's socket.
const OF_ROOT: &str = "/run/pilotlight";

/// Environment variable with the path, for the server and its clients.
const VARIABLE: &str = "PILOTLIGHT_SOCKET";
/// The value that disables the control socket.
pub(crate) const NONE: &str = "none";

/// The socket of this user, for the server and its clients; `None` if it is disabled.
pub(crate) fn default_path() -> Option<PathBuf> {
    match env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => (value != NONE).then(|| PathBuf::from(value)),
        None => Some(path_of(geteuid().as_raw(), env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).as_deref())),
    }
}

/// Root's is always the same, so that a service and a shell agree. Users have a directory of their own from their session
/// (`XDG_RUNTIME_DIR`, basedir-spec); where there is no session the server makes one.
fn path_of(uid: u32, runtime: Option<&Path>) -> PathBuf {
    match runtime.filter(|runtime| runtime.is_absolute()) {
        _ if uid == 0 => Path::new(OF_ROOT).join(NAME),
        Some(runtime) => runtime.join(NAME),
        None => PathBuf::from(format!("/tmp/pilotlight-{uid}")).join(NAME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_one() {
        let runtime = Path::new("/run/user/1000");
        assert_eq!(path_of(0, Some(runtime)), Path::new("/run/pilotlight/pilotlight.sock"));
        assert_eq!(path_of(1000, Some(runtime)), Path::new("/run/user/1000/pilotlight.sock"));
        assert!(path_of(1000, None) == Path::new("/tmp/pilotlight-1000/pilotlight.sock"));
        assert!(path_of(1000, Some(Path::new("relative"))) == path_of(1000, None));
    }
}
