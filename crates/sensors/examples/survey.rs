//! Prints what sensors this machine has, with a reading of each, and what would help with the rest; then samples them for a
//! while and prints the delay of the readings and their cost.
//!
//! `cargo run --release -p pilotlight-sensors --example survey -- 10` samples for ten seconds.

use std::error::Error;
use std::time::Duration;

use pilotlight_sensors::recording::Track;
use pilotlight_sensors::{Config, Planned, Roots, Sampler, Sensor, modelled, survey};

/// So many values of a sensor are printed.
const SHOWN: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let roots = Roots::default();
    let seconds = std::env::args().nth(1).map_or(Ok(0), |text| text.parse())?;
    let mut planned = Vec::new();
    for result in survey(&roots) {
        match result {
            Err(missing) => println!("missing  {missing}"),
            Ok(found) => {
                let Some(config) = Config::by_name(&found.sensor) else { continue };
                let mut sensor = config.open(&roots)?;
                show(&mut *sensor)?;
                planned.push(Planned::new(sensor));
            }
        }
    }
    if seconds == 0 {
        return Ok(());
    }
    planned.push(Planned::new(Config::Modelled(modelled::Options::default()).open(&roots)?));
    let sampler = Sampler::start(planned)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let (recording, failure) = sampler.stop();
    recording.tracks.iter().for_each(report);
    println!("sampling took {} millionths of one CPU over {} ms", recording.cost_ppm(), recording.wall_ns / 1_000_000);
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

fn show(sensor: &mut dyn Sensor) -> Result<(), Box<dyn Error>> {
    let every_ms = sensor.info().native_interval_ns / 1_000_000;
    println!("found    {}: {} domains, every {every_ms} ms", sensor.name(), sensor.domains().len());
    let mut readings = Vec::new();
    sensor.read(&mut readings)?;
    for reading in readings.iter().take(SHOWN) {
        println!("           {} {}", sensor.domains()[reading.domain].column(), reading.value);
    }
    Ok(())
}

fn report(track: &Track) {
    let (cost, punctual) = (track.cost, track.punctuality());
    println!(
        "{}: {} readings, {} missed, late by {} us (median) and {} us (p99), {} us of CPU each",
        track.sensor,
        cost.reads,
        track.missed,
        punctual.late_median_ns / 1_000,
        punctual.late_p99_ns / 1_000,
        cost.cpu_ns / cost.reads.max(1) / 1_000
    );
}
