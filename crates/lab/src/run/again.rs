//! A run that goes on may do so on another machine than it began on: after an update, with another drive. Every change is kept
//! (`environment-2.json` and on), and said in the results.

use super::{FolderError, Settings};
use crate::given::{differing, machine};
use crate::results::Folder;
use crate::results::environment::Environment;
use pilotlight_workloads::record::Tool;

/// Looks at the machine again, and keeps what it has become.
pub(super) fn look(settings: &Settings, at_unix_s: u64, tool: Tool, drive: Option<String>) -> Result<(), FolderError> {
    let folder = &settings.folder;
    let before = all(folder)?;
    let now = Environment::read(&settings.roots, at_unix_s, vec![tool], drive);
    match before.last() {
        Some(last) if !differing(&machine(last), &machine(&now)).is_empty() => {
            folder.save(&folder.environment_again(before.len() + 1), &now)
        }
        _ => Ok(()),
    }
}

/// What had changed each time.
pub(super) fn notes(folder: &Folder) -> Result<Vec<String>, FolderError> {
    let all = all(folder)?;
    let note = |(at, pair): (usize, &[Environment])| {
        let changes = differing(&machine(&pair[0]), &machine(&pair[1]));
        let changes: Vec<String> =
            changes.into_iter().map(|(key, was, is)| format!("{key} was {was:?} and is {is:?}")).collect();
        let number = at + 2;
        format!("the run went on when the machine had changed (environment-{number}.json): {}", changes.join("; "))
    };
    Ok(all.windows(2).enumerate().map(note).collect())
}

/// The machine as it was at the start, and at each change.
fn all(folder: &Folder) -> Result<Vec<Environment>, FolderError> {
    let first = folder.load(&folder.environment())?;
    let later = (2..).map(|number| folder.environment_again(number)).take_while(|path| path.exists());
    std::iter::once(Ok(first)).chain(later.map(|path| folder.load(&path))).collect()
}

#[cfg(test)]
mod tests {
    use pilotlight_sensors::Roots;

    use super::*;
    use crate::results::samples::Format;

    #[test]
    fn what_has_changed_is_kept_and_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let release = |text: &str| {
            let path = folder.path().join("proc/sys/kernel/osrelease");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let (out, roots) = (Folder::new(folder.path()), Roots::below(folder.path()));
        let settings = Settings { folder: out.clone(), may_overwrite: None, format: Format::Csv, roots, changes: None };
        let go_on = |at_s| {
            look(&settings, at_s, Tool::default(), None).unwrap();
            notes(&out).unwrap()
        };
        release("6.1.0\n");
        out.save(&out.environment(), &Environment::read(&settings.roots, 1, vec![Tool::default()], None)).unwrap();
        assert_eq!(go_on(2), [""; 0], "only the time is another");
        release("6.12.0\n");
        let first = go_on(3);
        assert_eq!(first.len(), 1);
        assert!(first[0].ends_with(r#"(environment-2.json): kernel.release was "6.1.0" and is "6.12.0""#), "{first:?}");
        assert_eq!(go_on(4), first, "it stays as it has become");
        release("6.1.0\n");
        assert_eq!(go_on(5).len(), 2, "and back again");
    }
}
