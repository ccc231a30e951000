//! Whether results are of today's files: the machine (profile, calibration, drives) and what the experiment asks.

use std::path::Path;

use crate::experiment::{self, Bench, LoadError, Request};
use crate::results::About;

/// The experiment that results say they are of, as it stands today; `None` if they do not say which.
///
/// # Errors
/// If it cannot be run today.
pub fn asked_again(about: &About, home: &Path) -> Result<Option<Bench>, LoadError> {
    if about.file.is_empty() {
        return Ok(None);
    }
    let request = Request { set: about.asked.set.clone(), smoke: about.asked.smoke, replications: None };
    experiment::load(&home.join(&about.file), &request).map(Some)
}

/// Why results are not today's, in words; `None` if they are, or do not say what they are of.
#[must_use]
pub fn reason(about: &About, home: &Path) -> Option<String> {
    match asked_again(about, home) {
        Ok(None) => None,
        Ok(Some(bench)) => changed(about, &bench.about()),
        Err(error) => Some(format!("{} cannot be run today ({error})", about.file)),
    }
}

/// What differs between results and today's files, in words.
#[must_use]
pub fn changed(then: &About, now: &About) -> Option<String> {
    if then.same(now) {
        return None;
    }
    let profile = format!("profiles/{}.toml", then.profile);
    let parts = [
        (profile.as_str(), then.parts.profile != now.parts.profile || then.profile != now.profile),
        ("calibration.toml", then.parts.calibration != now.parts.calibration),
        ("a drive's profile", then.parts.drives != now.parts.drives),
        (then.file.as_str(), then.question != now.question || then.experiment != now.experiment),
    ];
    let names: Vec<&str> = parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
    let names = if names.is_empty() { "the machine".to_owned() } else { names.join(" and ") };
    Some(format!("{names} changed since"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn what_changed_is_named() {
        let path = home().join("experiments/sandman/fig3.toml");
        let set = vec![("machine.poll.loop_ns".to_owned(), "77".to_owned())];
        let request = Request { set, smoke: true, replications: None };
        let about = experiment::load(&path, &request).unwrap().about();
        assert_eq!(about.file, "experiments/sandman/fig3.toml");
        assert_eq!(reason(&about, home()), None);
        let mut old = about.clone();
        "0".clone_into(&mut old.hash);
        "0".clone_into(&mut old.parts.calibration);
        assert_eq!(reason(&old, home()).unwrap(), "calibration.toml changed since");
        let old = About { question: "0".into(), ..about.clone() };
        assert_eq!(reason(&old, home()).unwrap(), "experiments/sandman/fig3.toml changed since");
        let gone = About { file: "experiments/nowhere.toml".into(), ..about };
        assert!(reason(&gone, home()).unwrap().contains("nowhere.toml cannot be run today"));
        assert_eq!(reason(&About::default(), home()), None);
    }
}
