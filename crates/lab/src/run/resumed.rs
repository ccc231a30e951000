//! Changes of the machine between the start of a run and its resumption, for example an update or another drive. Each is stored
//! (`environment-2.json` and following) and noted in the results.

use super::{FolderError, Settings};
use crate::result_set::{differing, machine};
use crate::results::Folder;
use crate::results::environment::Environment;
use pilotlight_workloads::record::Tool;

/// Reads the environment and stores it if it changed. Results of two hosts are never mixed.
pub(super) fn record(
    settings: &Settings,
    at_unix_s: u64,
    tool: Tool,
    drive: Option<String>,
) -> Result<(), FolderError> {
    let folder = &settings.folder;
    let before = all(folder)?;
    let now = Environment::read(&settings.roots, at_unix_s, vec![tool], drive);
    if let Some(first) = before.first().filter(|first| first.host != now.host) {
        let differing = format!("host changed from {:?} to {:?}", first.host, now.host);
        return Err(FolderError::OtherMachine { path: folder.root().to_owned(), differing });
    }
    match before.last() {
        Some(last) if !differing(&machine(last), &machine(&now)).is_empty() => {
            folder.save(&folder.environment_on_resumption(before.len() + 1), &now)
        }
        _ => Ok(()),
    }
}

/// Notes on the changes.
pub(super) fn notes(folder: &Folder) -> Result<Vec<String>, FolderError> {
    let all = all(folder)?;
    let note = |(at, pair): (usize, &[Environment])| {
        let changes = differing(&machine(&pair[0]), &machine(&pair[1]));
        let changes: Vec<String> =
            changes.into_iter().map(|(key, was, is)| format!("{key} changed from {was:?} to {is:?}")).collect();
        let number = at + 2;
        format!("the machine changed before the run was resumed (environment-{number}.json): {}", changes.join("; "))
    };
    Ok(all.windows(2).enumerate().map(note).collect())
}

/// The environment at the start and after each change.
fn all(folder: &Folder) -> Result<Vec<Environment>, FolderError> {
    let first = folder.load(&folder.environment())?;
    let later = (2..).map(|number| folder.environment_on_resumption(number)).take_while(|path| path.exists());
    std::iter::once(Ok(first)).chain(later.map(|path| folder.load(&path))).collect()
}

#[cfg(test)]
mod tests {
    use pilotlight_sensors::Roots;

    use super::*;
    use crate::results::samples::Format;

    #[test]
    fn changes_are_stored_and_noted_once() {
        let folder = tempfile::tempdir().unwrap();
        let release = |text: &str| {
            let path = folder.path().join("proc/sys/kernel/osrelease");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let (out, roots) = (Folder::new(folder.path()), Roots::below(folder.path()));
        let settings = Settings { folder: out.clone(), may_overwrite: None, format: Format::Csv, roots, changes: None };
        let resume = |at_s| {
            record(&settings, at_s, Tool::default(), None).unwrap();
            notes(&out).unwrap()
        };
        release("6.1.0\n");
        out.save(&out.environment(), &Environment::read(&settings.roots, 1, vec![Tool::default()], None)).unwrap();
        assert_eq!(resume(2), [""; 0], "only the time differs");
        release("6.12.0\n");
        let first = resume(3);
        assert_eq!(first.len(), 1);
        assert!(
            first[0].ends_with(r#"(environment-2.json): kernel.release changed from "6.1.0" to "6.12.0""#),
            "{first:?}"
        );
        assert_eq!(resume(4), first, "no further change");
        release("6.1.0\n");
        assert_eq!(resume(5).len(), 2, "changed back");
        std::fs::write(folder.path().join("proc/sys/kernel/hostname"), "node8\n").unwrap();
        let refused = record(&settings, 6, Tool::default(), None).unwrap_err();
        assert!(
            refused.is_refusal() && refused.to_string().contains(r#"host changed from "" to "node8""#),
            "{refused}"
        );
    }
}
