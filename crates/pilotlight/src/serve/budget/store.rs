//! The state file: goals that were set manually, kept over a restart, also one by `kill -9`.
//!
//! One JSON object, replaced as a whole. It also holds the configuration at that time: once that has changed, the
//! configuration is in force again, as it is at SIGHUP.

use std::io;
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use pilotlight_plant::Scope;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{Configured, GoalOverrides, Named};
use crate::config::LatencyBound;
use crate::policies::BudgetDomain;
use crate::privileges::files::read_own_text;
use crate::replace::replace;

const VERSION: u32 = 1;

/// Where goals are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Store {
    path: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    /// Under its former name in the file of an older server.
    #[serde(alias = "by_hand")]
    overrides: GoalOverrides,
    configured: Digest,
}

/// Goals of the configuration.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Digest {
    budget_uw: Option<u64>,
    tolerance: Option<LatencyBound>,
    domain: Option<BudgetDomain>,
    /// Entries of the schedule, as text.
    schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    priorities: Vec<(Named, u8)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tolerances: Vec<(Named, LatencyBound)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    minimums: Vec<(u8, u64)>,
}

impl Digest {
    fn from_configured(configured: &Configured) -> Self {
        let Configured { goals, priorities, tolerances, domain, schedule, limit_uw: _ } = configured;
        Self {
            budget_uw: goals.budget_uw,
            tolerance: goals.tolerance(Scope::Server).map(LatencyBound::from),
            domain: *domain,
            schedule: schedule.as_ref().map(ToString::to_string),
            priorities: priorities.iter().map(|(of, priority)| (of.clone().into(), *priority)).collect(),
            tolerances: tolerances.iter().map(|(of, bound)| (of.clone().into(), *bound)).collect(),
            minimums: goals.minimums.clone(),
        }
    }
}

impl Store {
    /// In this file; `None`: nothing is kept.
    pub(in crate::serve) fn at(path: Option<PathBuf>) -> Self {
        Self { path }
    }

    /// The path, as text.
    pub(in crate::serve) fn place(&self) -> Option<String> {
        self.path.as_ref().map(|path| path.display().to_string())
    }

    /// Overrides from before this start, if they are still valid. A file that cannot be read is kept, and logged.
    pub(in crate::serve) fn load(&self, configured: &Configured, now_s: u64) -> GoalOverrides {
        let Some(path) = &self.path else { return GoalOverrides::default() };
        let text = match read_own_text(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return GoalOverrides::default(),
            Err(error) => {
                warn!("goals that were set before are not known: cannot read {}: {error}", path.display());
                return GoalOverrides::default();
            }
        };
        let mut contents = match parse(&text) {
            Ok(contents) => contents,
            Err(why) => {
                warn!("goals that were set before are not known: {}: {why}", path.display());
                return GoalOverrides::default();
            }
        };
        if contents.configured != Digest::from_configured(configured) {
            info!("the goals of the configuration have changed since goals were set manually: it is in force again");
            return GoalOverrides::default();
        }
        if contents.overrides.expire(now_s) {
            info!("the budget that was set manually has ended while no server ran");
        }
        if contents.overrides != GoalOverrides::default() {
            info!("goals that were set manually before are in force again ({})", path.display());
        }
        contents.overrides
    }

    /// Keeps what was set manually.
    ///
    /// # Errors
    /// If it cannot be written; what was kept before is still there.
    pub(in crate::serve) fn save(&self, overrides: &GoalOverrides, configured: &Configured) -> anyhow::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let contents = Contents {
            version: VERSION,
            overrides: overrides.clone(),
            configured: Digest::from_configured(configured),
        };
        let text = serde_json::to_string(&contents).map_err(io::Error::from);
        text.and_then(|text| replace(path, (text + "\n").as_bytes()))
            .map_err(|error| anyhow!("cannot write {}: {error}", path.display()))
    }
}

/// The contents of a file; an error names the place and quotes nothing, as the error of the parser can.
fn parse(text: &str) -> anyhow::Result<Contents> {
    let contents: Contents = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        anyhow!("line {line}, column {column}: not what a server writes; remove the file and set them again")
    })?;
    match contents.version {
        VERSION => Ok(contents),
        version => bail!("it has version {version}; remove the file and set them again"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pilotlight_plant::Goals;

    use super::super::BudgetOverride;
    use super::*;
    use crate::config::parse_tolerance;

    fn overrides(until_s: Option<u64>) -> GoalOverrides {
        let budget = Some(BudgetOverride { budget_uw: Some(300_000_000), until_s });
        let namespace = Named::Namespace { nqn: "a".to_owned(), nsid: 7 };
        let priorities = vec![(namespace.clone(), Some(5)), (Named::Host { host: "b".to_owned() }, None)];
        let minimums = vec![(5, Some(100_000_000)), (6, None)];
        let tolerances = vec![(None, None), (Some(namespace), parse_tolerance("500us p99").unwrap())];
        GoalOverrides { budget, domain: Some(BudgetDomain::Cpu), tolerances, priorities, minimums }
    }

    fn configured(watts: u64) -> Configured {
        Configured { goals: Goals { budget_uw: Some(watts * 1_000_000), ..Goals::default() }, ..Configured::default() }
    }

    #[test]
    fn goals_are_restored_until_they_end_or_the_configuration_changes() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(Some(folder.path().join("goals.json")));
        assert_eq!(store.load(&configured(400), 0), GoalOverrides::default(), "there is no file");
        store.save(&overrides(Some(100)), &configured(400)).unwrap();
        assert_eq!(store.load(&configured(400), 99), overrides(Some(100)));
        assert_eq!(
            store.load(&configured(400), 100),
            GoalOverrides { budget: None, domain: None, ..overrides(None) },
            "it has ended"
        );
        assert_eq!(store.load(&configured(350), 99), GoalOverrides::default(), "the configuration has changed");
        store.save(&overrides(None), &configured(400)).unwrap();
        assert_eq!(store.load(&configured(400), u64::MAX), overrides(None));
        store.save(&GoalOverrides::default(), &configured(400)).unwrap();
        assert_eq!(store.load(&configured(400), 0), GoalOverrides::default());
    }

    #[test]
    fn an_error_of_the_state_file_quotes_nothing() {
        for text in ["root:x:0:0\n", "\"root:x\"", "{\"root:x\":1}", "{\"version\":1,\n\"overrides\":\"root:x\"}"] {
            let why = parse(text).unwrap_err().to_string();
            assert!(why.starts_with("line ") && why.contains(", column ") && !why.contains("root"), "{text}: {why}");
        }
    }

    #[test]
    fn a_pipe_in_place_of_the_state_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("goals.json");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        assert_eq!(Store::at(Some(pipe)).load(&configured(1), 0), GoalOverrides::default());
    }

    #[test]
    fn an_unreadable_file_is_ignored_and_a_failed_write_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("goals.json");
        for text in ["", "{}", "{\"version\":2}", "[]"] {
            fs::write(&path, text).unwrap();
            assert_eq!(Store::at(Some(path.clone())).load(&configured(1), 0), GoalOverrides::default(), "{text}");
        }
        let nowhere = Store::at(Some(folder.path().join("none/goals.json")));
        assert!(nowhere.save(&overrides(None), &configured(1)).unwrap_err().to_string().contains("none/goals.json"));
        Store::default().save(&overrides(None), &configured(1)).unwrap();
    }
}
