//! Fits drive models to measured load-latency curves, and says how well they foretell curves they have not seen.
//!
//! `cargo run --release -p pilotlight-sim --example fit_ssd -- FOLDER` with the folder `ssd_profiles` of the Sandook data.

mod curves;
mod fit;
mod load;
mod search;

use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), String> {
    let folder = std::env::args().nth(1).ok_or("say the folder with the curves")?;
    let drives = curves::read_folder(&PathBuf::from(folder))?;
    let only = std::env::args().nth(2);
    for (name, drive) in drives.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| *name == only)) {
        let started = Instant::now();
        let model = match std::env::args().nth(3) {
            Some(path) => pilotlight_sim::ssd::SsdModel::parse(&std::fs::read_to_string(path).unwrap()).unwrap(),
            None => fit::full(name, drive),
        };
        eprintln!("{name} in {:.1} s: {model:#?}", started.elapsed().as_secs_f64());
        for (share, curve) in drive {
            for point in curve.sample(0.05, 0.95, 5) {
                let ours = load::latency_us(&model, *share, point.rate, 500_000);
                println!("{share:4} {:9.0} measured {:?} ours {ours:.0?}", point.rate, point.latency_us);
            }
        }
    }
    Ok(())
}
