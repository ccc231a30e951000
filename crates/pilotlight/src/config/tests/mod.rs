//! All kinds of errors, with their exact text. `UPDATE_EXPECT=1 cargo test` updates it.

mod foreign;
mod policy;
mod reference;
mod security;
mod server;
mod storage;
mod text;
mod whole;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use clap::Parser as _;
use expect_test::Expect;
use pilotlight_auth::tls::ConfiguredPsk;
use pilotlight_auth::{Secret, SecretLen};

use super::*;

/// A command line of `pilotlight serve`.
#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    args: ServeArgs,
}

/// A small machine, the same for every test.
pub(crate) fn machine() -> Machine {
    Machine {
        cores: vec![0, 1, 2, 3, 6],
        online: 8,
        siblings: vec![vec![0, 2], vec![1, 3], vec![6, 7]],
        memory: Some(8 << 30),
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        socket: Some("/run/pilotlight/pilotlight.sock".into()),
        state_file: Some("/var/lib/pilotlight/goals.json".into()),
        reservations: Some("/var/lib/pilotlight/reservations".into()),
        sector_size: |_| None,
    }
}

/// A directory with a file for the configuration and one for data.
struct ConfigDir {
    dir: tempfile::TempDir,
}

impl ConfigDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::File::create(dir.path().join("disk.img")).unwrap().set_len(1 << 20).unwrap();
        fs::write(dir.path().join("budgets.txt"), "18:00Z 250W\n20:00Z default\n").unwrap();
        write_secrets(&dir.path().join("secrets"));
        fs::write(dir.path().join("machine.toml"), include_str!("../../../../../profiles/pass-xeon-gold-6430.toml"))
            .unwrap();
        Self { dir }
    }

    fn load(&self, text: &str) -> Result<Loaded, ConfigError> {
        self.load_on(text, &machine())
    }

    fn load_on(&self, text: &str, machine: &Machine) -> Result<Loaded, ConfigError> {
        let path = self.dir.path().join("server.toml");
        fs::write(&path, text).unwrap();
        load(&ServeArgs { config: Some(path), ..ServeArgs::default() }, machine)
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The output for a file, without the name of the temporary directory.
    fn output(&self, text: &str) -> String {
        self.cut(&match self.load(text) {
            Ok(loaded) => loaded.warnings(false),
            Err(refused) => refused.render(false),
        })
    }

    fn cut(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

fn args(line: &[&str]) -> ServeArgs {
    Line::try_parse_from(["serve"].iter().chain(line)).unwrap().args
}

fn flags(line: &[&str]) -> Result<Loaded, ConfigError> {
    load(&args(line), &machine())
}

#[expect(clippy::needless_pass_by_value, reason = "an `expect!` stands in the call")]
fn refused(text: &str, words: Expect) {
    let config_dir = ConfigDir::new();
    assert!(config_dir.load(text).is_err(), "not refused: {text}");
    words.assert_eq(&config_dir.output(text));
}

#[expect(clippy::needless_pass_by_value, reason = "an `expect!` stands in the call")]
fn refused_flags(line: &[&str], words: Expect) {
    words.assert_eq(&flags(line).unwrap_err().render(false));
}

/// A file with one good subsystem after `text`.
fn with_subsystem(text: &str) -> String {
    format!("{text}\n[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n")
}

/// A file with one subsystem of which the rest is `text`.
fn in_subsystem(text: &str) -> String {
    format!("[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\n{text}\n")
}

/// A host with secrets.
const AUTHENTICATED: &str = "nqn.2024-05.com.example:host-1";

/// A secret of equal bytes.
fn secret(byte: u8) -> Secret {
    let mut fill = |bytes: &mut [u8]| {
        bytes.fill(byte);
        Ok(())
    };
    Secret::generate(None, SecretLen::Bytes32, &mut fill).unwrap()
}

const TLS_KEY: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

fn tls_key() -> ConfiguredPsk {
    ConfiguredPsk::parse(TLS_KEY).unwrap()
}

/// A file with the secrets of [`AUTHENTICATED`] and its controllers.
fn write_secrets(path: &Path) {
    let (host, controller) = (secret(1).to_text(), secret(2).to_text());
    let text = format!(
        "{AUTHENTICATED} dhchap_key {}\n{AUTHENTICATED} dhchap_ctrl_key {}\n{AUTHENTICATED} tls_key {TLS_KEY}\n",
        host.as_str(),
        controller.as_str()
    );
    write_secret(path, &text);
}

/// Writes a file that only its owner may access.
fn write_secret(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
