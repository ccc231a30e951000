//! The commands of a run, without running them (`--dry-run`).

use std::path::Path;

use crate::experiment::Loaded;
use crate::experiment::schema::OnFailure;
use crate::plan::{Key, Plan, workload_knobs};
use pilotlight_workloads::{Point, Problem, RunContext, Step, Target};

use super::{bind, process};

/// The commands of a run, in shell syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Preview {
    /// The target.
    pub target: String,
    /// Preparation of the device.
    pub precondition: Vec<String>,
    /// Once, before the first point.
    pub prepare: Vec<String>,
    /// For each point: preparation and the measured command.
    pub points: Vec<Vec<String>>,
    /// At the end, also after an error.
    pub clean_up: Vec<String>,
}

/// The commands of a run whose results go to `folder`, which need not exist.
///
/// # Errors
/// If the workload cannot run a point.
pub fn preview(loaded: &Loaded, plan: &Plan, folder: &Path) -> Result<Preview, Problem> {
    let stage = |key: Key| RunContext {
        scratch: folder.join("scratch"),
        target: loaded.experiment.target.unchecked(folder),
        ramp_s: loaded.experiment.warm_up().seconds(),
        duration_s: loaded.experiment.duration.map_or(0.0, |duration| duration.seconds()),
        seed: plan.seed_of(key),
    };
    let title = |step: Step| process::title(&bind::bound(step, &loaded.experiment.bind));
    let first = Key { point: 0, repeat: 0 };
    let prepare = loaded.workload.prepare(&stage(first))?.into_iter().map(title).collect();
    // Not bound to CPUs: the measurement is over.
    let clean_up = loaded.workload.clean_up(&stage(first)).iter().map(process::title).collect();
    let of_point = |(point, knobs): (usize, &Point)| {
        let (stage, own) = (stage(Key { point, repeat: 0 }), workload_knobs(knobs));
        let before = loaded.workload.before(&own, &stage)?;
        match loaded.workload.command(&own, &stage) {
            Err(problem) if loaded.experiment.on_failure == OnFailure::Continue => {
                Ok(vec![format!("cannot run: {problem}")])
            }
            step => Ok(before.into_iter().chain([step?]).map(title).collect()),
        }
    };
    let points = plan.points.iter().enumerate().map(of_point).collect::<Result<_, Problem>>()?;
    let target = description(&stage(first).target);
    Ok(Preview { target, precondition: precondition(loaded), prepare, points, clean_up })
}

fn precondition(loaded: &Loaded) -> Vec<String> {
    let (Some(spec), Some(device)) = (loaded.experiment.precondition, &loaded.experiment.target.device) else {
        return Vec::new();
    };
    let erase = spec.format.then(|| process::title(&super::precondition::erasing(device)));
    let fill = (spec.fill > 0).then(|| format!("write all of {} sequentially, {} times", device.display(), spec.fill));
    erase.into_iter().chain(fill).collect()
}

fn description(place: &Target) -> String {
    match place {
        Target::File(path, size) => {
            format!("file {} of {}", path.display(), String::from(pilotlight_input::Size(*size)))
        }
        Target::Folder(path) => format!("folder {}", path.display()),
        Target::Device(path) => format!("device {} (all data on it is lost)", path.display()),
        Target::None => "nothing".to_owned(),
    }
}
