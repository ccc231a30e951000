//! `pilotlab run FILE --simulated PROFILE`: the experiment on a machine that is computed.
//!
//! The crate `bench` knows no simulator and the simulator no experiment: here the knobs of a point become a load ([`asked`]), and what the
//! simulator counted becomes what sensors and the workload would have said ([`told`]).

mod asked;
mod rows;
mod told;

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_actuators::Machine;
use pilotlight_bench::experiment;
use pilotlight_bench::plan::Plan;
use pilotlight_bench::results::environment::Environment;
use pilotlight_bench::run::computed::{Ask, Computed, Observed};
use pilotlight_lab::cells::Cells;
use pilotlight_lab::fingerprint::Fingerprint;
use pilotlight_lab::host::{self, Host, Load};
use pilotlight_lab::results::About;
use pilotlight_sensors::{Domain, Recording};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;
use pilotlight_workloads::Problem;

pub(super) use rows::write as write_rows;

/// A machine of a profile.
pub(super) struct Simulated {
    host: Host,
}

impl Simulated {
    pub(super) fn load(profile: &Path) -> anyhow::Result<Self> {
        Ok(Self { host: host::load(profile)? })
    }

    pub(super) fn name(&self) -> &str {
        &self.host.name
    }

    /// The fingerprint of its values.
    pub(super) fn hash(&self) -> String {
        Fingerprint::of(&self.host).to_string()
    }
}

/// Today's cells of a file of results of such a machine.
pub(crate) fn today(about: &About, home: &Path) -> anyhow::Result<Cells> {
    let profile = home.join(format!("profiles/{}.toml", about.profile));
    let loaded = experiment::load(&home.join(&about.file), &experiment::Asked::default())?;
    let plan = Plan::new(&loaded);
    Ok(Cells::known(rows::cells(&Simulated::load(&profile)?, &loaded, &plan)?))
}

impl Computed for Simulated {
    fn environment(&self) -> Environment {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        Environment {
            pilotlight: env!("CARGO_PKG_VERSION").into(),
            host: format!("simulated: {}", self.name()),
            cpu: of(&[("model", "simulated"), ("profile", self.name()), ("profile_hash", &self.hash())]),
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
