//! Prints what sensors this machine has and what would help with the rest; then samples those that it has for a while and prints
//! how punctual that was and what it cost.
//!
//! `cargo run --release -p pilotlight-sensors --example survey -- 10` samples for ten seconds.

use std::error::Error;
use std::time::Duration;

use pilotlight_sensors::{Config, Planned, Roots, Sampler, survey};

fn main() -> Result<(), Box<dyn Error>> {
    let roots = Roots::default();
    let seconds = std::env::args().nth(1).map_or(Ok(0), |text| text.parse())?;
    let mut planned = Vec::new();
    for result in survey(&roots) {
        match result {
            Ok(found) => {
                println!(
                    "found    {}: {} domains, every {} ms",
                    found.sensor,
                    found.domains.len(),
                    found.native_interval_ns / 1_000_000
                );
                planned.extend(
                    Config::by_name(&found.sensor).map(|config| config.open(&roots)).transpose()?.map(Planned::new),
                );
            }
            Err(missing) => println!("missing  {missing}"),
        }
    }
    if seconds == 0 {
        return Ok(());
    }
    planned.push(Planned::new(Config::Modelled(Default::default()).open(&roots)?));
    let sampler = Sampler::start(planned)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let (recording, failure) = sampler.stop();
    for track in &recording.tracks {
        let (cost, on_time) = (track.cost, track.punctuality());
        println!(
            "{}: {} readings, {} missed, late by {} us (median) and {} us (p99), {} us of CPU each",
            track.sensor,
            cost.reads,
            on_time.missed,
            on_time.late_median_ns / 1_000,
            on_time.late_p99_ns / 1_000,
            cost.cpu_ns / cost.reads.max(1) / 1_000
        );
    }
    println!("sampling took {} millionths of one CPU over {} ms", recording.cost_ppm(), recording.wall_ns / 1_000_000);
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}
