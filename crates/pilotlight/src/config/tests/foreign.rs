//! Files that the server's user put where the configuration names one: root neither follows a link of it nor waits for a pipe.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::config::operation::TokenFile;
use crate::page::token;
use crate::privileges::Account;
use crate::privileges::files::as_user;
use crate::serve::power;

const NOBODY: u32 = 65_534;
const USER: &str = "user = \"nobody\"\ngroup = \"65534\"";
/// Of the file that a link leads to.
const PRIVATE: &str = "root:private:20000:0:99999:7:::\n";

/// A folder of the user, and a private file of root.
struct Folders {
    config_dir: ConfigDir,
}

impl Folders {
    /// `None`, with the reason printed, where this is not root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root reads files for another user");
            return None;
        }
        let config_dir = ConfigDir::new();
        let (users, private) = (config_dir.path().join("users"), config_dir.path().join("private"));
        fs::create_dir(&users).unwrap();
        chown(&users, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(config_dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&private, PRIVATE.repeat(200)).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
        Some(Self { config_dir })
    }

    /// The file of the user that the configuration names, which is a link to the private file or a pipe.
    fn place(&self, is_link: bool) -> std::path::PathBuf {
        let path = self.config_dir.path().join("users/file");
        let _ = fs::remove_file(&path);
        if is_link {
            symlink("../private", &path).unwrap();
        } else {
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        path
    }
}

/// All keys that name a file which root reads or looks at; checksums are opened after the privileges are gone.
fn configurations() -> Vec<(&'static str, String)> {
    let file = "\"users/file\"";
    let namespace = "[[subsystem.namespace]]\nnsid = 1\nbackend = ";
    let of = |rest: String| with_subsystem(&format!("[security]\n{USER}\n{rest}"));
    vec![
        ("secrets_file", of(format!("secrets_file = {file}"))),
        ("schedule", of(format!("[goals]\nschedule = {file}"))),
        ("profile", of(format!("[goals]\nprofile = {file}"))),
        ("backend", of(String::new()) + namespace + "\"file:users/file\""),
    ]
}

#[test]
fn root_opens_no_file_that_the_servers_user_chose() {
    let Some(folders) = Folders::new() else { return };
    for is_link in [true, false] {
        folders.place(is_link);
        for (key, text) in configurations() {
            let refused = match folders.config_dir.load(&text) {
                Ok(loaded) => panic!("{key}, link {is_link}: not refused: {:?}", loaded.warnings(false)),
                Err(refused) => refused.render(false),
            };
            assert!(refused.contains(key) && !refused.contains("root:private"), "{key}: {refused}");
            let why = if is_link {
                ["root does not, as others can change", "is a symbolic link"]
            } else {
                ["regular file", "neither a file"]
            };
            assert!(why.iter().any(|why| refused.contains(why)), "{key}, link {is_link}: {refused}");
        }
    }
}

#[test]
fn neither_the_token_nor_the_profile_of_the_sensor_is_read_through_a_link_or_pipe() {
    let Some(folders) = Folders::new() else { return };
    let _limit = as_user(Some(Account { name: "nobody".to_owned(), uid: NOBODY, gid: NOBODY }));
    for is_link in [true, false] {
        let path = folders.place(is_link);
        let why = if is_link { "root does not, as others can change" } else { "not a regular file" };
        let token = format!("{:#}", token::check(&TokenFile::Configured(path.clone())).unwrap_err());
        assert!(token.contains(why), "{token}");
        let sensor =
            power::open(&SensorChoice::Modelled(Some(path)), &Default::default()).map(drop).unwrap_err().to_string();
        assert!(sensor.contains(why) && !sensor.contains("private"), "{sensor}");
    }
}

#[test]
fn what_the_user_may_read_itself_and_what_only_root_can_replace_is_read() {
    let Some(folders) = Folders::new() else { return };
    let dir = folders.config_dir.path();
    let own = dir.join("users/file");
    fs::write(&own, "18:00Z 250W\n").unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
    let roots = dir.join("budgets.txt");
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o600)).unwrap();
    for file in ["users/file", "budgets.txt"] {
        let goals = format!("[goals]\nschedule = \"{file}\"\n[server]\nsensor = \"none\"");
        let loaded = folders.config_dir.load(&with_subsystem(&format!("[security]\n{USER}\n{goals}")));
        assert!(loaded.is_ok_and(|loaded| loaded.operation.schedule.is_some()), "{file}");
    }
    assert!(rustix::process::geteuid().is_root() && fs::read(dir.join("private")).is_ok(), "root again");
}

#[test]
fn an_error_of_a_file_names_its_place_and_quotes_nothing() {
    let config_dir = ConfigDir::new();
    for name in ["secrets", "users-file"] {
        fs::write(config_dir.path().join(name), PRIVATE).unwrap();
        fs::set_permissions(config_dir.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    for text in ["[security]\nsecrets_file = \"secrets\"", "[goals]\nschedule = \"users-file\""] {
        let refused = config_dir.output(&with_subsystem(text));
        assert!(refused.contains("line 1") && !refused.contains("private"), "{refused}");
    }
    let profile = config_dir.output(&with_subsystem("[goals]\nprofile = \"users-file\""));
    assert!(profile.contains("no whole profile") && !profile.contains("private"), "{profile}");
    let file = config_dir.path().join("users-file");
    let sensor =
        power::open(&SensorChoice::Modelled(Some(file)), &Default::default()).map(drop).unwrap_err().to_string();
    assert!(sensor.contains("line 1, column ") && !sensor.contains("private"), "{sensor}");
}
