//! `pilotlab run FILE --simulated PROFILE`: the experiment on a machine that is computed.
//!
//! The runner knows no simulator and the simulator no experiment: here the knobs of a point become a load ([`asked`]), and what the
//! simulator counted becomes what sensors and the workload would have said ([`told`]).

mod asked;
mod told;

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_actuators::Machine;
use pilotlight_lab::experiment;
use pilotlight_lab::plan::Plan;
use pilotlight_lab::results::environment::Environment;
use pilotlight_lab::run::computed::{self, Ask, Computed, Observed};
use pilotlight_lab::simulated::cells::Cells;
use pilotlight_lab::simulated::fingerprint::{self, Fingerprint};
use pilotlight_lab::simulated::host::{self, Host, Load};
use pilotlight_results::values::{self, About};
use pilotlight_sensors::{Domain, Recording};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;
use pilotlight_workloads::Problem;

/// A machine of a profile.
pub(super) struct Simulated {
    host: Host,
    about: About,
}

impl Simulated {
    /// For the experiment of a file, with what is set beside.
    pub(super) fn load(profile: &Path, file: &Path, set: &[(String, String)]) -> anyhow::Result<Self> {
        let host = host::load(profile)?;
        let absolute = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let home = pilotlight_lab::simulated::experiment::home(&absolute).unwrap_or_default();
        let about = About {
            experiment: name_of(file),
            profile: host.name.clone(),
            hash: fingerprint::of(&host).to_string(),
            file: absolute.strip_prefix(&home).unwrap_or(file).display().to_string(),
            asked: values::Asked { set: set.to_vec(), smoke: false },
            ..About::default()
        };
        Ok(Self { host, about })
    }

    pub(super) fn name(&self) -> &str {
        &self.host.name
    }

    /// The fingerprint of its values.
    fn hash(&self) -> &str {
        &self.about.hash
    }
}

/// Today's cells of a file of results of such a machine.
pub(crate) fn today(about: &About, home: &Path) -> anyhow::Result<Cells> {
    let profile = home.join(format!("profiles/{}.toml", about.profile));
    let (file, set) = (home.join(&about.file), about.asked.set.clone());
    let machine = Simulated::load(&profile, &file, &set)?;
    let loaded = experiment::load(&file, &experiment::Asked { set, ..experiment::Asked::default() })?;
    let plan = Plan::new(&loaded);
    Ok(Cells::known(computed::cells(&loaded, &plan, &machine)?))
}

/// `completion/paper` of `experiments/completion/paper.toml`.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let folder = file.parent().and_then(Path::file_name).map(|folder| format!("{}/", folder.to_string_lossy()));
    format!("{}{stem}", folder.unwrap_or_default())
}

impl Computed for Simulated {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn fingerprint(&self, ask: &Ask<'_>) -> Result<Fingerprint, Problem> {
        Ok(fingerprint::of(&(&self.host, &asked::load(&self.host, ask)?)))
    }

    fn environment(&self) -> Environment {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        Environment {
            pilotlight: env!("CARGO_PKG_VERSION").into(),
            host: format!("simulated: {}", self.name()),
            cpu: of(&[("model", "simulated"), ("profile", self.name()), ("profile_hash", self.hash())]),
            kernel: of(&[("release", "simulated")]),
            ..Environment::default()
        }
    }

    fn notes(&self) -> Vec<String> {
        let (name, hash) = (self.name(), self.hash());
        vec![format!("nothing was measured: everything is simulated with the profile {name} ({hash}), power included")]
    }

    fn domains(&self) -> Vec<(String, Domain)> {
        told::domains(&self.host)
    }

    fn measure(&mut self, ask: &Ask<'_>) -> Result<Observed, Problem> {
        let load = asked::load(&self.host, ask)?;
        let (scenario, outcome) = run(&self.host, &load)?;
        Ok(told::observed(&self.host, &load, (&scenario, &outcome), ask.stage))
    }

    fn idle(&mut self, set: &Machine, length_ns: u64) -> Result<Recording, Problem> {
        let load = asked::idle(&self.host, set, length_ns)?;
        let (scenario, outcome) = run(&self.host, &load)?;
        Ok(told::recording(&self.host, &scenario, &outcome))
    }
}

/// Runs a load; no policy decides anything, since all cores are scheduled.
fn run(host: &Host, load: &Load) -> Result<(Scenario, Outcome), Problem> {
    let scenario = host.scenario(load);
    let refused = |why: String| Problem { at: "workload".to_owned(), why };
    let policy = pilotlight_policy::registry::build("static", &[]).map_err(|error| refused(error.to_string()))?;
    let outcome = pilotlight_sim::run(&scenario, policy).map_err(|error| refused(error.to_string()))?;
    Ok((scenario, outcome))
}
