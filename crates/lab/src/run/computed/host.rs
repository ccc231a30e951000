//! The simulated machine of a profile (`pilotlab run FILE --simulated PROFILE`): converts the knobs of a point to a load of the simulator
//! (`load`), and its counters to a recording and the output of a workload (`recording`).

mod load;
mod recording;

use std::path::Path;

use super::{Computed, Measurement, Request};
use crate::experiment;
use crate::plan::Plan;
use crate::simulated::audit;
use crate::simulated::cells::Cells;
use crate::simulated::fingerprint::{self, Fingerprint};
use crate::simulated::host::{self, Host, HostError, Load};
use crate::simulated::stale;
use crate::stored::values::{self, Provenance};
use pilotlight_actuators::Machine;
use pilotlight_sensors::{Domain, Recording};
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::jobs::Scheduler;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;
use pilotlight_workloads::Problem;

/// A machine of a profile.
#[derive(Debug)]
pub struct Simulated {
    host: Host,
    about: Provenance,
    /// Loads that were audited; their repeats run the same code.
    audited: Vec<Load>,
}

impl Simulated {
    /// The machine for an experiment file with its overrides.
    ///
    /// # Errors
    /// If the profile or its calibration cannot be read or is invalid.
    pub fn load(profile: &Path, file: &Path, set: &[(String, String)]) -> Result<Self, HostError> {
        let host = host::load(profile)?;
        let absolute = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let home = crate::simulated::experiment::home(&absolute).unwrap_or_default();
        let about = Provenance {
            experiment: host::name_of(file),
            profile: host.name.clone(),
            hash: fingerprint::digest(&host).to_string(),
            file: absolute.strip_prefix(&home).unwrap_or(file).display().to_string(),
            overrides: values::Overrides { set: set.to_vec(), smoke: false },
            ..Provenance::default()
        };
        Ok(Self { host, about, audited: Vec::new() })
    }
}

/// The current cells of a results file of such a machine.
///
/// # Errors
/// If its experiment cannot be run any more.
pub fn current(about: &Provenance, home: &Path) -> Result<Cells, Box<dyn std::error::Error>> {
    let profile = home.join(format!("profiles/{}.toml", about.profile));
    let (file, set) = (stale::file_of(about, home), about.overrides.set.clone());
    let machine = Simulated::load(&profile, &file, &set)?;
    let loaded = experiment::load(&file, &experiment::Overrides { set, ..experiment::Overrides::default() })?;
    let plan = Plan::new(&loaded);
    Ok(Cells::known(super::cells(&loaded, &plan, &machine)?))
}

impl Computed for Simulated {
    fn provenance(&self) -> Provenance {
        self.about.clone()
    }

    fn fingerprint(&self, request: &Request<'_>) -> Result<Fingerprint, Problem> {
        let load = load::load(&self.host, request)?;
        let mut host = self.host.clone();
        // Without a scheduler the constant has no effect.
        host.costs.lock_sleeps &= load.job.scheduler != Scheduler::None;
        // Without larger requests the constant has no effect.
        let largest = load.beside.iter().map(|job| job.bytes).fold(load.job.bytes, u32::max);
        if largest <= host.costs.command_bytes {
            host.costs.command_bytes = 0;
        }
        Ok(fingerprint::digest(&(&host, &load)))
    }

    fn domains(&self) -> Vec<(String, Domain)> {
        recording::domains(&self.host)
    }

    fn measure(&mut self, request: &Request<'_>) -> Result<Measurement, Problem> {
        let load = load::load(&self.host, request)?;
        let of_any_seed = Load { seed: 0, ..load.clone() };
        let audits = !self.audited.contains(&of_any_seed);
        let (scenario, outcome) = if audits { audited(&self.host, &load)? } else { run(&self.host, &load)? };
        if audits {
            self.audited.push(of_any_seed);
        }
        Ok(recording::observed(&self.host, &load, (&scenario, &outcome), request.stage))
    }

    fn idle(&mut self, set: &Machine, length_ns: u64) -> Result<Recording, Problem> {
        let load = load::idle(&self.host, set, length_ns)?;
        let (scenario, outcome) = run(&self.host, &load)?;
        Ok(recording::recording(&self.host, &scenario, &outcome))
    }
}

/// Runs a load. The policy has no effect, since all cores are scheduled.
fn run(host: &Host, load: &Load) -> Result<(Scenario, Outcome), Problem> {
    let scenario = host.scenario(load);
    let outcome = pilotlight_sim::run(&scenario, policy()?).map_err(|error| refused(error.to_string()))?;
    Ok((scenario, outcome))
}

/// As [`run`], with an audit of the simulator's invariants ([`pilotlight_sim::audit::Law`]).
fn audited(host: &Host, load: &Load) -> Result<(Scenario, Outcome), Problem> {
    let scenario = host.scenario(load);
    let mut auditor = TraceAuditor::new(&scenario);
    let outcome = pilotlight_sim::run_traced(&scenario, policy()?, &mut auditor);
    let outcome = outcome.map_err(|error| refused(error.to_string()))?;
    auditor.finish(&outcome).map_err(|broken| refused(audit::violations_message(&broken)))?;
    Ok((scenario, outcome))
}

fn policy() -> Result<Box<dyn pilotlight_plant::Policy>, Problem> {
    pilotlight_policy::registry::build("static", &[]).map_err(|error| refused(error.to_string()))
}

fn refused(why: String) -> Problem {
    Problem { at: "workload".to_owned(), why }
}
