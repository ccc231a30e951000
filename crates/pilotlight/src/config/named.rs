//! The files that a configuration names, without checks of anything else in it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pilotlight_storage::BackendSpec;

use super::args::ServeArgs;
use super::keys::{Draft, Namespace};
use super::validate::security::{credentials, secrets_path};
use super::{directory_of, file, flags};

/// Files of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Files and devices of namespaces and of checksums.
    pub(crate) storage: Vec<PathBuf>,
    /// Files that are read again at SIGHUP, the configuration among them.
    pub(crate) texts: Vec<PathBuf>,
}

/// The files that a configuration names: `text`, or without it the flags. A file with wrong values names what can be read from it.
///
/// # Errors
/// `text` is not TOML.
pub(crate) fn named_files(args: &ServeArgs, text: Option<&str>) -> io::Result<Named> {
    let (draft, base) = match text {
        Some(text) => (draft_of(text)?, args.config.as_deref().map(directory_of).unwrap_or_default()),
        None => (flags::read(args).0, PathBuf::new()),
    };
    let namespaces = draft.subsystems.iter().flat_map(|subsystem| &subsystem.namespace);
    let storage = namespaces.flat_map(|namespace| storage(namespace, &base)).collect();
    let secrets = draft.security.secrets_file.as_ref();
    let secrets = secrets.and_then(|file| secrets_path(&file.value, &base, credentials().as_deref()));
    let files = [&draft.goals.schedule, &draft.goals.profile].into_iter().flatten();
    let files = files.map(|file| base.join(&file.value));
    Ok(Named { storage, texts: args.config.iter().cloned().chain(secrets).chain(files).collect() })
}

fn draft_of(text: &str) -> io::Result<Draft> {
    let is_toml = toml::de::DeTable::parse(text).is_ok();
    is_toml.then(|| file::read(text).0).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "invalid TOML"))
}

/// The files of a namespace, of its checksums too.
fn storage(namespace: &Namespace, base: &Path) -> Vec<PathBuf> {
    let spec = namespace.backend.as_ref().and_then(|text| text.value.parse::<BackendSpec>().ok());
    let Some(spec) = spec.map(|spec| spec.relative_to(base)) else { return Vec::new() };
    let beside = spec.path().filter(|_| namespace.checksums).map(|path| {
        let mut sums = path.as_os_str().to_owned();
        sums.push(".sums");
        PathBuf::from(sums)
    });
    let sums = namespace.checksums_file.as_ref().map(|file| base.join(&file.value));
    spec.files().into_iter().chain(beside).chain(sums).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_files_too() {
        let namespace = vec!["file:a?size=1MiB".to_owned(), "mem:1MiB".to_owned(), "checked:file:/b".to_owned()];
        let args = ServeArgs { namespace, secrets_file: Some("c".to_owned()), ..ServeArgs::default() };
        let named = named_files(&args, None).unwrap();
        assert_eq!(named.storage, ["a", "/b", "/b.sums"].map(PathBuf::from));
        assert_eq!(named.texts, [PathBuf::from("c")]);
    }

    #[test]
    fn keys_name_files_below_the_folder_of_the_configuration() {
        let args = ServeArgs { config: Some("/etc/pilotlight/a.toml".into()), ..ServeArgs::default() };
        let text = r#"
            [goals]
            schedule = "schedule"
            [[subsystem]]
            [[subsystem.namespace]]
            backend = "file:disk"
            checksums = true
            [[subsystem.namespace]]
            backend = "file:/dev/nvme0n1"
            checksums_file = "sums"
        "#;
        let named = named_files(&args, Some(text)).unwrap();
        let below = |name: &str| Path::new("/etc/pilotlight").join(name);
        assert_eq!(named.storage, [below("disk"), below("disk.sums"), "/dev/nvme0n1".into(), below("sums")]);
        assert_eq!(named.texts, [below("a.toml"), below("schedule")]);
        assert!(named_files(&args, Some("= 1")).is_err());
    }
}
