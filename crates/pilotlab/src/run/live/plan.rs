//! The output of `--dry-run`: sensors, points, commands, and estimated time.

use std::fmt::Write as _;

use pilotlight_input::Time;
use pilotlight_lab::experiment::schema::{OnFailure, Stop};
use pilotlight_lab::plan::Key;
use pilotlight_lab::results::summary::point_text;
use pilotlight_lab::run::power_domains;
use pilotlight_lab::run::preview::{Preview, preview};
use pilotlight_lab::run::target::drive_of;
use pilotlight_workloads::Target;
use serde_json::json;

use super::Prepared;
use super::progress::time;
use crate::console;
use crate::run::output;

pub(super) fn show(prepared: &Prepared, as_json: bool) -> anyhow::Result<()> {
    let preview = preview(&prepared.loaded, &prepared.plan, prepared.settings.folder.root())?;
    let text = if as_json { as_value(prepared, &preview)? } else { text(prepared, &preview)? };
    console::print(text)
}

fn as_value(prepared: &Prepared, preview: &Preview) -> anyhow::Result<String> {
    let Prepared { loaded, plan, sensors, settings } = prepared;
    let tool = loaded.workload.tool();
    let tool = tool.as_ref().map_err(ToString::to_string);
    let (min_s, max_s) = plan.time_s();
    let drive = drive(prepared);
    let value = json!({
        "experiment": loaded.table, "plan": plan, "tool": tool, "results": settings.folder.root(), "sensors": sensors,
        "power_domains": power_domains(sensors, drive.as_deref()), "too_short": too_short(prepared), "commands": preview, "order": order(prepared),
        "seconds_at_least": min_s, "seconds_at_most": max_s, "seconds_are_known": loaded.experiment.duration.is_some(),
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

/// Points of every round, unless a rule stops earlier.
fn order(prepared: &Prepared) -> Vec<Vec<usize>> {
    let plan = &prepared.plan;
    (0..plan.repeats.1).map(|round| plan.round(round, |_| true)).collect()
}

/// The drive of the target, without creating anything.
fn drive(prepared: &Prepared) -> Option<String> {
    let spec = &prepared.loaded.experiment.target;
    let folder = std::env::current_dir().unwrap_or_default().join(prepared.settings.folder.root());
    let place = match (&spec.device, spec.file.as_ref().or(spec.folder.as_ref())) {
        _ if spec.nothing => Target::None,
        (Some(device), _) => Target::Device(device.clone()),
        (None, path) => {
            Target::Folder(path.map_or(folder, |path| std::env::current_dir().unwrap_or_default().join(path)))
        }
    };
    drive_of(&place, &prepared.settings.roots.sys)
}

fn text(prepared: &Prepared, preview: &Preview) -> anyhow::Result<String> {
    let Prepared { loaded, plan, sensors, settings } = prepared;
    let experiment = &loaded.experiment;
    let mut text = format!("{}\n\n", experiment.title);
    let mut line = |name: &str, what: &str| text += &format!("{name:<10} {what}\n");
    match loaded.workload.tool() {
        Ok(tool) => line("workload", format!("{} {}", loaded.workload.name(), tool.version).trim_end()),
        Err(missing) => line("workload", &format!("{} cannot run: {missing}", loaded.workload.name())),
    }
    line("target", &preview.target);
    if let (Some(device), None) = (&experiment.target.device, &settings.may_overwrite) {
        line("", &format!("the run itself requires --i-may-overwrite {}", device.display()));
    }
    line("results", &settings.folder.root().display().to_string());
    text += &output::sensors(sensors);
    if !experiment.machine.is_empty() {
        let _ =
            writeln!(text, "machine    changed, then restored:\n{}", indented(&toml::to_string(&experiment.machine)?));
    }
    let mut line = |name: &str, what: &str| text += &format!("{name:<10} {what}\n");
    preview.precondition.iter().chain(&preview.prepare).for_each(|step| line("before", step));
    preview.clean_up.iter().for_each(|step| line("after", step));
    line("each point", &each_point(prepared));
    line("", &how_often(prepared));
    too_short(prepared).iter().for_each(|why| line("no energy", why));
    let _ = writeln!(text, "\n{} point{}:", plan.points.len(), if plan.points.len() == 1 { "" } else { "s" });
    for (at, (point, steps)) in plan.points.iter().zip(&preview.points).enumerate() {
        let _ = writeln!(text, "  {at}  {}", point_text(point));
        for step in steps {
            let _ = writeln!(text, "       {step}");
        }
    }
    let rule = if experiment.stop.is_some() {
        " (rounds after the first ones leave out points that are narrow enough)"
    } else {
        ""
    };
    let _ = writeln!(text, "\norder{rule}:");
    for (round, points) in order(prepared).iter().enumerate() {
        let points = points.iter().map(ToString::to_string).collect::<Vec<_>>();
        let _ = writeln!(text, "  round {round}: {}", points.join(" "));
    }
    let seed = plan.seed_of(Key { point: 0, repeat: 0 });
    let _ = writeln!(text, "\nseed {} (the tool's first: {seed})\n{}", plan.seed, duration_text(prepared));
    Ok(text)
}

/// Sensors without energy in the results, because the measurement is too short for their update interval.
fn too_short(prepared: &Prepared) -> Vec<String> {
    let (experiment, sensors) = (&prepared.loaded.experiment, &prepared.sensors);
    let of = |what: &str, time: Time| {
        let short = if time.0 == 0 { Vec::new() } else { sensors.too_short(time.0) };
        short.into_iter().map(|why| format!("{what}: {why}")).collect::<Vec<_>>()
    };
    let points = experiment.duration.map(|duration| of("points", duration)).unwrap_or_default();
    points.into_iter().chain(of("idle machine", experiment.idle_baseline(sensors.has_energy()))).collect()
}

/// Times of a measurement, and the idle machine.
fn each_point(prepared: &Prepared) -> String {
    let experiment = &prepared.loaded.experiment;
    let of = |time: Time| if time.0 == 0 { "none".to_owned() } else { String::from(time) };
    let measured = experiment.duration.map_or("until its command ends".to_owned(), of);
    let mut words =
        format!("warm-up {}, measured {measured}, rest {}", of(experiment.warm_up()), of(experiment.cool_down));
    let has_energy = prepared.sensors.has_energy();
    let idle = experiment.idle_baseline(has_energy);
    let mut before = "";
    if !has_energy {
        words += "; no idle baseline is needed: no sensor reads power or energy";
    } else if idle.0 == 0 {
        words += "; the idle machine is not measured";
    } else {
        words += &format!("; in each round, and for each setting, first the idle machine: {}", of(idle));
        before = ", and before the idle machine";
    }
    if experiment.settle.0 > 0 {
        words += &format!("; {} wait after filling and changing settings{before}", of(experiment.settle));
    }
    words
}

fn how_often(prepared: &Prepared) -> String {
    let experiment = &prepared.loaded.experiment;
    let failure = match experiment.on_failure {
        OnFailure::Stop => "ends the run",
        OnFailure::Continue => "leaves its error, and the run continues",
    };
    let often = match &experiment.stop {
        None => format!("measured {} times", experiment.repeats),
        Some(Stop { metric, within, at_least, at_most }) => {
            let within = String::from(*within);
            format!("measured {at_least} to {at_most} times, until {metric} is known to {within} of its mean")
        }
    };
    format!("{often}; one that fails {failure}")
}

fn duration_text(prepared: &Prepared) -> String {
    let (min_s, max_s) = prepared.plan.time_s();
    if prepared.loaded.experiment.duration.is_none() {
        let beside = if min_s >= 2.0 { format!(", and about {} beside them", time(min_s)) } else { String::new() };
        return format!("takes as long as its commands do{beside}; duration unknown");
    }
    let about = if min_s < max_s { format!("{} to {}", time(min_s), time(max_s)) } else { time(min_s) };
    format!("takes about {about}, without preparation")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("           {line}\n")).collect()
}
