//! What a run would do, without doing any of it.

use std::path::Path;

use crate::experiment::Loaded;
use crate::experiment::schema::{OnFailure, PlaceSpec};
use crate::plan::{Key, Plan};
use pilotlight_workloads::{Point, Problem, RunContext, Step, Target};

use super::{bind, own, process};

/// The commands of a run, as a person would type them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Preview {
    /// What is worked on.
    pub place: String,
    /// What is done to the device before anything else.
    pub precondition: Vec<String>,
    /// Once, before the first point.
    pub prepare: Vec<String>,
    /// For each point, before its measurement and measured.
    pub points: Vec<Vec<String>>,
    /// At the end, whatever happens.
    pub clean_up: Vec<String>,
}

/// The commands of a run whose results go to `folder`, which need not be there.
///
/// # Errors
/// What the workload cannot do.
pub fn preview(loaded: &Loaded, plan: &Plan, folder: &Path) -> Result<Preview, Problem> {
    let stage = |key: Key| RunContext {
        scratch: folder.join("scratch"),
        target: place(&loaded.experiment.place, folder),
        ramp_s: loaded.experiment.warm_up().seconds(),
        duration_s: loaded.experiment.duration.map_or(0.0, |duration| duration.seconds()),
        seed: plan.seed_of(key),
    };
    let title = |step: Step| process::title(&bind::bound(step, &loaded.experiment.bind));
    let first = Key { point: 0, repeat: 0 };
    let prepare = loaded.workload.prepare(&stage(first))?.into_iter().map(title).collect();
    // Not bound: what is measured is over by then.
    let clean_up = loaded.workload.clean_up(&stage(first)).iter().map(process::title).collect();
    let of_point = |(point, knobs): (usize, &Point)| {
        let (stage, own) = (stage(Key { point, repeat: 0 }), own(knobs));
        let before = loaded.workload.before(&own, &stage)?;
        match loaded.workload.command(&own, &stage) {
            Err(problem) if loaded.experiment.on_failure == OnFailure::GoOn => {
                Ok(vec![format!("cannot run: {problem}")])
            }
            step => Ok(before.into_iter().chain([step?]).map(title).collect()),
        }
    };
    let points = plan.points.iter().enumerate().map(of_point).collect::<Result<_, Problem>>()?;
    let place = words(&stage(first).target);
    Ok(Preview { place, precondition: precondition(loaded), prepare, points, clean_up })
}

fn precondition(loaded: &Loaded) -> Vec<String> {
    let (Some(what), Some(device)) = (loaded.experiment.precondition, &loaded.experiment.place.device) else {
        return Vec::new();
    };
    let erase = what.format.then(|| process::title(&super::precondition::erasing(device)));
    let fill = (what.fill > 0).then(|| format!("write all of {} front to back, {} times", device.display(), what.fill));
    erase.into_iter().chain(fill).collect()
}

/// The place as it would be; nothing is looked at.
pub(crate) fn place(spec: &PlaceSpec, folder: &Path) -> Target {
    let size = spec.size.map_or(super::place::DEFAULT_SIZE, |size| size.0);
    match spec {
        PlaceSpec { nothing: true, .. } => Target::None,
        PlaceSpec { device: Some(device), .. } => Target::Device(device.clone()),
        PlaceSpec { folder: Some(folder), .. } => Target::Folder(folder.clone()),
        PlaceSpec { file: Some(file), .. } => Target::File(file.clone(), size),
        _ => Target::File(folder.join(super::place::DEFAULT_FILE), size),
    }
}

fn words(place: &Target) -> String {
    match place {
        Target::File(path, size) => {
            format!("file {} of {}", path.display(), String::from(pilotlight_input::Size(*size)))
        }
        Target::Folder(path) => format!("folder {}", path.display()),
        Target::Device(path) => format!("device {}, of which everything is lost", path.display()),
        Target::None => "nothing".to_owned(),
    }
}
