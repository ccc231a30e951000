//! The secret that opens the page, and its file.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use pilotlight_auth::kernel_random;
use rustix::process::geteuid;
use subtle::ConstantTimeEq as _;

use crate::config::TokenFile;
use crate::privileges::files::open_text;

/// How long a token of an operator may be: at least 128 bits where its characters are random hexadecimal digits.
const LENGTH: std::ops::RangeInclusive<usize> = 32..=256;
/// Different characters of a token of an operator, at least: 32 random ones of 8 have 96 bits. Of 32 random hexadecimal digits, one text in
/// 27 million has fewer.
const DIFFERENT: usize = 8;
/// Mode bits that let others read or write it, or the group write it. A group may read: systemd's credentials have that bit.
const TOO_OPEN: u32 = 0o027;

/// A secret.
pub(crate) struct Token(String);

impl Token {
    /// Whether this is it, in a time that does not depend on where they differ.
    pub(super) fn is(&self, offered: &str) -> bool {
        self.0.as_bytes().ct_eq(offered.as_bytes()).into()
    }

    #[cfg(test)]
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnedFile {
    path: PathBuf,
    token: String,
}

impl Drop for OwnedFile {
    /// Removes the file, unless another server has put its own there.
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == self.token) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// 32 random bytes as hexadecimal digits.
pub(super) fn random() -> io::Result<String> {
    let mut bytes = [0; 32];
    kernel_random(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The token, and its file where that was made here.
pub(super) fn open(file: &TokenFile) -> anyhow::Result<(Token, Option<OwnedFile>)> {
    match file {
        TokenFile::Configured(path) => Ok((Token(read(path)?), None)),
        TokenFile::Generated(path) => {
            let token = random().context("no random numbers for the page's token")?;
            write(path, &token).with_context(|| {
                let path = path.display();
                format!("cannot write the page's token to {path}: name a file of your own with --page-token-file")
            })?;
            Ok((Token(token.clone()), Some(OwnedFile { path: path.clone(), token })))
        }
    }
}

/// Looks whether an operator's file holds a token.
///
/// # Errors
/// As of [`read`].
pub(crate) fn check(file: &TokenFile) -> anyhow::Result<()> {
    match file {
        TokenFile::Configured(path) => read(path).map(drop),
        TokenFile::Generated(_) => Ok(()),
    }
}

/// Reads a server's own token file.
///
/// # Errors
/// If it is neither this user's nor root's, others can read it too, or it holds no token.
fn read(path: &Path) -> anyhow::Result<String> {
    read_if(path, |owner| owner == geteuid().as_raw() || owner == 0)
}

/// Reads the token file of a running server. Root may read that of a server that runs as another user.
///
/// # Errors
/// As of [`read`].
pub(super) fn read_of_server(path: &Path) -> anyhow::Result<String> {
    if geteuid().is_root() { read_if(path, |_| true) } else { read(path) }
}

fn read_if(path: &Path, is_owner: impl Fn(u32) -> bool) -> anyhow::Result<String> {
    let shown = path.display();
    let how = format!("make one with: (umask 077; openssl rand -hex 32 > {shown})");
    let file = open_text(path).with_context(|| format!("the page's token file {shown}; {how}"))?;
    let meta = file.metadata().with_context(|| format!("the page's token file {shown}"))?;
    if !meta.is_file() {
        bail!("the page's token file {shown} is not a regular file; {how}");
    }
    if !is_owner(meta.uid()) || meta.mode() & TOO_OPEN != 0 {
        bail!("others may read or change the page's token file {shown}: chown it to this user, and chmod 600");
    }
    let text = io::read_to_string(file).with_context(|| format!("the page's token file {shown}"))?;
    let token = text.trim();
    if !LENGTH.contains(&token.len()) || !token.chars().all(|c| c.is_ascii_graphic()) {
        let (least, most) = (LENGTH.start(), LENGTH.end());
        bail!("the page's token file {shown} has to hold {least} to {most} characters of ASCII without spaces; {how}");
    }
    if is_guessable(token.as_bytes()) {
        bail!(
            "the page's token file {shown} holds a token that can be guessed: it repeats itself, or has fewer than {DIFFERENT} different \
             characters; {how}"
        );
    }
    Ok(token.to_owned())
}

/// Whether a token is certainly not random.
fn is_guessable(token: &[u8]) -> bool {
    let different = token.iter().collect::<std::collections::BTreeSet<_>>().len();
    let repeats_after = |length: usize| token[length..] == token[..token.len() - length];
    different < DIFFERENT || (1..=token.len() / 2).any(repeats_after)
}

/// Writes a token to a file that no other user can read at any time.
fn write(path: &Path, token: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let _ = fs::remove_file(&temporary); // of a process with the same number that was killed
    let written = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| writeln!(file, "{token}"))
        .and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_generated_token_is_private_and_removed_at_exit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.page-token");
        let (token, file) = open(&TokenFile::Generated(path.clone())).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert!(token.is(text.trim()) && text.trim().len() == 64);
        assert!(!token.is("") && !token.is(&text.trim()[1..]) && !token.is(&text));
        let (other, second) = open(&TokenFile::Generated(path.clone())).unwrap();
        assert!(!other.is(text.trim()), "each start has another token");
        drop(file);
        assert!(path.exists(), "it is the second one's by now");
        drop(second);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn root_reads_the_token_of_another_user_s_server() {
        if !geteuid().is_root() {
            return eprintln!("skipped: only root can give a file to another user");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        let token = random().unwrap();
        (&file).write_all(token.as_bytes()).unwrap();
        std::os::unix::fs::fchown(&file, Some(12_345), None).unwrap();
        assert_eq!(read_of_server(&path).unwrap(), token);
        let refused = open(&TokenFile::Configured(path.clone())).map(drop).unwrap_err().to_string();
        assert!(refused.contains("others may"), "a server does not trust it: {refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_of_server(&path).unwrap_err().to_string().contains("others may"));
    }

    #[test]
    fn readable_and_invalid_token_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let refused = || open(&TokenFile::Configured(path.clone())).map(drop).unwrap_err();
        assert!(format!("{:#}", refused()).contains("openssl rand"));
        let token = random().unwrap();
        fs::write(&path, format!("{token}\n")).unwrap();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o644, 0o604, 0o620, 0o602] {
            set(mode);
            assert!(refused().to_string().contains("others may"), "{mode:o}");
        }
        for mode in [0o600, 0o400, 0o440] {
            set(mode);
            assert!(open(&TokenFile::Configured(path.clone())).unwrap().0.is(&token));
        }
        assert!(path.exists());
        set(0o600);
        for text in ["", "short", &"x".repeat(257), &format!("{token} {token}")] {
            fs::write(&path, text).unwrap();
            assert!(refused().to_string().contains("characters"), "{text}");
        }
        for text in [
            &"x".repeat(64),
            &"0123456".repeat(9),
            &"abcdefgh12345678".repeat(2),
            &"Pass-word 1".replace(' ', "").repeat(4),
        ] {
            fs::write(&path, text).unwrap();
            let why = refused().to_string();
            assert!(why.contains("can be guessed") && why.contains("openssl rand -hex 32"), "{text}: {why}");
        }
        (0..1000).for_each(|_| assert!(!is_guessable(&random().unwrap().as_bytes()[..32])));
    }
}
