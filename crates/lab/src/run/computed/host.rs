//! The simulated machine of a profile (`pilotlab run FILE --simulated PROFILE`) as one that is computed.
//!
//! The runner knows no simulator and the simulator no experiment: here the knobs of a point become a load (`asked`), and what the
//! simulator counted becomes what sensors and the workload would have said (`told`).

mod asked;
mod told;

use std::path::Path;

use super::{Ask, Computed, Observed};
use crate::experiment;
use crate::plan::Plan;
use crate::simulated::audit;
use crate::simulated::cells::Cells;
use crate::simulated::fingerprint::{self, Fingerprint};
use crate::simulated::host::{self, Host, HostError, Load};
use pilotlight_actuators::Machine;
use pilotlight_results::values::{self, About};
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
    about: About,
    /// Loads that an accountant has watched; repeats of them run the same code.
    audited: Vec<Load>,
}

impl Simulated {
    /// For the experiment of a file, with what is set beside.
    ///
    /// # Errors
    /// If the profile or its calibration cannot be read, or is not as it should be.
    pub fn load(profile: &Path, file: &Path, set: &[(String, String)]) -> Result<Self, HostError> {
        let host = host::load(profile)?;
        let absolute = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let home = crate::simulated::experiment::home(&absolute).unwrap_or_default();
        let about = About {
            experiment: name_of(file),
            profile: host.name.clone(),
            hash: fingerprint::of(&host).to_string(),
            file: absolute.strip_prefix(&home).unwrap_or(file).display().to_string(),
            asked: values::Asked { set: set.to_vec(), smoke: false },
            ..About::default()
        };
        Ok(Self { host, about, audited: Vec::new() })
    }
}

/// Today's cells of a file of results of such a machine.
///
/// # Errors
/// If its experiment cannot be run today.
pub fn today(about: &About, home: &Path) -> Result<Cells, Box<dyn std::error::Error>> {
    let profile = home.join(format!("profiles/{}.toml", about.profile));
    let (file, set) = (home.join(&about.file), about.asked.set.clone());
    let machine = Simulated::load(&profile, &file, &set)?;
    let loaded = experiment::load(&file, &experiment::Asked { set, ..experiment::Asked::default() })?;
    let plan = Plan::new(&loaded);
    Ok(Cells::known(super::cells(&loaded, &plan, &machine)?))
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
        let load = asked::load(&self.host, ask)?;
        let mut host = self.host.clone();
        // Without a scheduler nobody waits for its lock.
        host.costs.lock_sleeps &= load.job.scheduler != Scheduler::None;
        // Without larger requests none is cut.
        let largest = load.beside.iter().map(|job| job.bytes).fold(load.job.bytes, u32::max);
        if largest <= host.costs.command_bytes {
            host.costs.command_bytes = 0;
        }
        Ok(fingerprint::of(&(&host, &load)))
    }

    fn domains(&self) -> Vec<(String, Domain)> {
        told::domains(&self.host)
    }

    fn measure(&mut self, ask: &Ask<'_>) -> Result<Observed, Problem> {
        let load = asked::load(&self.host, ask)?;
        let of_any_seed = Load { seed: 0, ..load.clone() };
        let audits = !self.audited.contains(&of_any_seed);
        let (scenario, outcome) = if audits { audited(&self.host, &load)? } else { run(&self.host, &load)? };
        if audits {
            self.audited.push(of_any_seed);
        }
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
    let outcome = pilotlight_sim::run(&scenario, policy()?).map_err(|error| refused(error.to_string()))?;
    Ok((scenario, outcome))
}

/// The same, held to the laws of the simulator ([`pilotlight_sim::audit::Law`]).
fn audited(host: &Host, load: &Load) -> Result<(Scenario, Outcome), Problem> {
    let scenario = host.scenario(load);
    let mut auditor = TraceAuditor::new(&scenario);
    let outcome = pilotlight_sim::run_traced(&scenario, policy()?, &mut auditor);
    let outcome = outcome.map_err(|error| refused(error.to_string()))?;
    auditor.finish(&outcome).map_err(|broken| refused(audit::words(&broken)))?;
    Ok((scenario, outcome))
}

fn policy() -> Result<Box<dyn pilotlight_plant::Policy>, Problem> {
    pilotlight_policy::registry::build("static", &[]).map_err(|error| refused(error.to_string()))
}

fn refused(why: String) -> Problem {
    Problem { at: "workload".to_owned(), why }
}
