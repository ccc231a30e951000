//! Sensors with their punctuality and cost, and the machine.

use std::collections::BTreeMap;

use pilotlight_report::{Block, Cell, Column, Section, Table};
use pilotlight_sensors::Origin;

use super::Read;
use crate::metrics::power::Group;
use crate::results::environment::Environment;

pub(super) fn sensors(read: &Read) -> Section {
    let mut blocks: Vec<Block> = Group::ALL.iter().map(|group| Block::Text(of_group(read, *group))).collect();
    blocks.push(Block::Table(domains(read)));
    blocks.push(Block::Table(punctuality(read)));
    blocks.extend(cost(read).map(Block::Text));
    Section { title: "Sensors".into(), blocks }
}

fn of_group(read: &Read, group: Group) -> String {
    let names = read.results.power_domains.names(group);
    if names.is_empty() {
        return format!("{}: no sensor reads its power.", group.name());
    }
    format!("{} power is {}, without overlapping domains.", group.name(), names.join(" + "))
}

/// Domains of power and energy.
fn domains(read: &Read) -> Table {
    let with_energy = read.sensors.domains.iter().filter(|(_, domain)| crate::observed::is_energy(domain));
    let row = |(sensor, domain): &(String, pilotlight_sensors::Domain)| {
        let origin = match &domain.origin {
            Origin::Measured => "measured".to_owned(),
            Origin::Modelled { profile } => format!("modelled (profile {profile})"),
        };
        vec![Cell::text(format!("{sensor}/{}", domain.name)), Cell::text(domain.part.to_string()), Cell::text(origin)]
    };
    Table {
        title: "Domains of power and energy".into(),
        columns: ["domain", "part of the machine", "origin"].map(Column::text).to_vec(),
        rows: with_energy.map(row).collect(),
    }
}

/// Mean and maximum CPU time of sampling over all measurements.
fn cost(read: &Read) -> Option<String> {
    let percent: Vec<f64> = read.finished.runs.values().map(|run| run.sensed.sampling_cost_ppm as f64 / 1e4).collect();
    let mean = pilotlight_stats::mean::average(&percent)?;
    let max = percent.iter().fold(0.0_f64, |max, value| max.max(*value));
    Some(format!(
        "Sampling took {mean:.2} % of one CPU (maximum of a measurement: {max:.2} %), which is included in the results."
    ))
}

/// Readings, missed readings and maximum lateness over all measurements.
fn punctuality(read: &Read) -> Table {
    let mut sensors: BTreeMap<&str, (u64, u64, u32)> = BTreeMap::new();
    for run in read.finished.runs.values() {
        for (sensor, punctual) in &run.sensed.punctuality {
            let entry = sensors.entry(sensor).or_default();
            entry.0 += punctual.reads as u64;
            entry.1 += punctual.missed;
            entry.2 = entry.2.max(punctual.late_p99_ns);
        }
    }
    let row = |(sensor, (reads, missed, late_ns)): (&str, (u64, u64, u32))| {
        let late_us = f64::from(late_ns) / 1e3;
        vec![Cell::text(sensor), Cell::Integer(reads as i64), Cell::Integer(missed as i64), Cell::number(late_us)]
    };
    Table {
        title: "Sampling (lateness: maximum p99 of all measurements)".into(),
        columns: vec![
            Column::text("sensor"),
            Column::integer("readings", ""),
            Column::integer("missed", ""),
            Column::number("late, p99", "us"),
        ],
        rows: sensors.into_iter().map(row).collect(),
    }
}

pub(super) fn machine(environment: &Environment) -> Section {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut add = |name: &str, value: String| rows.push(vec![Cell::text(name), Cell::text(value)]);
    add("host", environment.host.clone());
    add("Pilotlight", environment.pilotlight.clone());
    for tool in &environment.tools {
        add("workload", format!("{} {}", tool.name, tool.version));
    }
    for (title, values) in
        [("CPU", &environment.cpu), ("kernel", &environment.kernel), ("frequency", &environment.frequency)]
    {
        values.iter().for_each(|(key, value)| add(&format!("{title}, {}", key.replace('_', " ")), value.clone()));
    }
    if environment.frequency.is_empty() {
        add("frequency", "unknown (no cpufreq)".into());
    }
    environment.memory_bytes.iter().for_each(|bytes| add("memory", format!("{bytes} bytes")));
    for (name, keys) in &environment.drives {
        let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} {value}")).collect();
        add(&format!("drive {name}"), keys.join(", "));
    }
    environment.drive.iter().for_each(|drive| add("drive of the target", drive.clone()));
    let load: Vec<String> = environment.load.iter().map(ToString::to_string).collect();
    add("load at the start", load.join(", "));
    let columns = ["property", "value"].map(Column::text).to_vec();
    Section { title: "Machine".into(), blocks: vec![Block::Table(Table { title: String::new(), columns, rows })] }
}
