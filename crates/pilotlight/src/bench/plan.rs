//! What `--dry-run` prints: sensors, points, order, commands, and how long it takes.

use pilotlight_bench::plan::Key;
use pilotlight_bench::results::summary::words;
use pilotlight_bench::run::preview::preview;
use pilotlight_bench::run::taken;
use serde_json::json;

use super::progress::time;
use super::{Prepared, output};

pub(super) fn show(prepared: &Prepared, as_json: bool) -> anyhow::Result<()> {
    let Prepared { loaded, plan, senses, settings } = prepared;
    let tool = loaded.workload.tool();
    let preview = preview(loaded, plan, settings.folder.root())?;
    let order: Vec<Vec<usize>> = (0..plan.repeats.1).map(|round| plan.round(round, |_| true)).collect();
    let (least_s, most_s) = plan.takes_s();
    if as_json {
        let tool = tool.as_ref().map_err(ToString::to_string);
        let value = json!({
            "plan": plan, "tool": tool, "sensors": senses, "taken": taken(senses, None), "commands": preview,
            "order": order, "seconds_at_least": least_s, "seconds_at_most": most_s,
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
        return Ok(());
    }
    println!("{}\n", loaded.experiment.title);
    match tool {
        Ok(tool) => println!("workload   {} {}", loaded.workload.name(), tool.version),
        Err(missing) => println!("workload   {} cannot run: {missing}", loaded.workload.name()),
    }
    println!("place      {}", preview.place);
    println!("results    {}", settings.folder.root().display());
    output::say_sensors(senses);
    if !loaded.experiment.machine.is_empty() {
        println!("machine    changed, and put back:\n{}", indented(&toml::to_string(&loaded.experiment.machine)?));
    }
    preview.prepare.iter().for_each(|step| println!("before     {step}"));
    println!("\n{} points:", plan.points.len());
    for (at, (point, steps)) in plan.points.iter().zip(&preview.points).enumerate() {
        println!("  {at}  {}", words(point));
        steps.iter().for_each(|step| println!("       {step}"));
    }
    println!("\norder:");
    for (round, points) in order.iter().enumerate() {
        println!("  round {round}: {}", points.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    let seed = plan.seed_of(Key { point: 0, repeat: 0 });
    println!("\nseed {} (the tool's first: {seed})", plan.seed);
    if least_s < most_s {
        println!("takes about {} to {}, without preparation", time(least_s), time(most_s));
    } else {
        println!("takes about {}, without preparation", time(least_s));
    }
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("           {line}\n")).collect()
}
