//! The fitted profiles against measured curves of other mixes.
//!
//! The data (Sandook, MIT) is not in the repository: without `shared/data` the test prints a notice and passes.

#[path = "../examples/fit_ssd/curves.rs"]
mod curves;
#[path = "../examples/fit_ssd/load.rs"]
mod load;
#[path = "../examples/fit_ssd/predict.rs"]
mod predict;

use curves::Drive;
use pilotlight_sim::ssd::SsdModel;
use predict::{Scale, interpolate};
use std::path::{Path, PathBuf};

const REQUESTS: usize = 60_000;
const P99: usize = 2;

/// The folder with the curves, in `shared` next to or above the repository.
fn folder() -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|folder| folder.join("shared/data/sandook-ssd/data/ssd_profiles")).find(|folder| folder.is_dir())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median error of p99, in per cent, of a prediction over eight loads from 25 to 95 % of the highest.
fn p99_error(drive: &Drive, share: u32, predict: impl Fn(f64) -> [f64; 4]) -> f64 {
    let points = drive[&share].sample(0.25, 0.95, 8);
    let error = |point: &curves::Point| 100.0 * (predict(point.rate)[P99] / point.latency_us[P99] - 1.0).abs();
    median(points.iter().map(error).collect())
}

/// Interpolation between the curves that the profile was fitted to.
fn seen_curves(drive: &Drive, scale: Scale, share: u32, rate: f64) -> [f64; 4] {
    interpolate(drive, |one| [0, 500, 1000].contains(&one), scale, share, rate).unwrap()
}

/// Fitted on 0, 50 and 100 % writes; here 10 and 20 % writes, far from all of them. The table is in `profiles/README.md`.
#[test]
fn profiles_predict_mixes_better_than_interpolation() {
    let Some(folder) = folder() else { return println!("skipped: no shared/data/sandook-ssd above this repository") };
    let drives = curves::read_folder(&folder).unwrap();
    let profiles = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/ssd");
    for (serial, name) in [("S39WNA0KC01659", "sandook-s39w"), ("SDM000024C8D", "sandook-sdm0")] {
        let text = std::fs::read_to_string(format!("{profiles}/{name}.toml")).unwrap();
        let (model, drive) = (SsdModel::parse(&text).unwrap(), &drives[serial]);
        for share in [100, 200] {
            let ours = p99_error(drive, share, |rate| load::latency_us(&model, share, rate, REQUESTS));
            let by = |scale| p99_error(drive, share, |rate| seen_curves(drive, scale, share, rate));
            let theirs = by(Scale::Linear).min(by(Scale::Logarithm));
            println!("{serial} at {share} permille writes: {ours:.1} % by the model, {theirs:.1} % by interpolation");
            assert!(ours < theirs, "{serial} at {share} permille writes: {ours:.1} %, interpolation {theirs:.1} %");
        }
    }
}
