//! Fits drive models to measured load-latency curves, and evaluates their predictions of other curves.
//!
//! `fit_ssd fit CURVES PROFILES [SERIAL]` fits a drive of each kind and writes its profile; `fit_ssd table CURVES PROFILES` prints the
//! errors of those profiles, of interpolation and of the baseline; `fit_ssd show CURVES SERIAL PROFILE` prints a
//! drive's curves next to those of a profile; `fit_ssd speed PROFILE` measures the cost of a request. CURVES is the folder
//! `ssd_profiles` of the Sandook data (MIT), PROFILES is `profiles/ssd`.

mod curves;
mod fit;
mod load;
mod predict;
mod profile;
mod search;
mod speed;
mod table;

use curves::Drive;
use pilotlight_sim::ssd::SsdModel;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The drive of each kind that its profile is fitted to (all its mixes were measured), and the name of the profile.
const KINDS: [(&str, &str); 4] = [
    ("S39WNA0KC01659", "sandook-s39w"),
    ("S47ANA0M403393", "sandook-s47a"),
    ("S5CVNA0N101050", "sandook-s5cv"),
    ("SDM000024C8D", "sandook-sdm0"),
];

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fit", curves, profiles] => fit_kinds(Path::new(curves), Path::new(profiles), ""),
        ["fit", curves, profiles, serial] => fit_kinds(Path::new(curves), Path::new(profiles), serial),
        ["table", curves, profiles] => print_table(Path::new(curves), Path::new(profiles)),
        ["show", curves, serial, profile] => show(Path::new(curves), serial, Path::new(profile)),
        ["speed", profile] => read_profile(Path::new(profile)).map(|model| speed::print(&model)),
        _ => {
            Err("say fit CURVES PROFILES [SERIAL], table CURVES PROFILES, show CURVES SERIAL PROFILE or speed PROFILE"
                .into())
        }
    }
}

fn fit_kinds(curves: &Path, profiles: &Path, only: &str) -> Result<(), String> {
    let drives = curves::read_folder(curves)?;
    for (serial, name) in KINDS.iter().filter(|(serial, _)| serial.starts_with(only)) {
        let model = fit::full(name, drive(&drives, serial)?);
        let path = profiles.join(format!("{name}.toml"));
        fs::write(&path, profile::text(&model, serial)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn print_table(curves: &Path, profiles: &Path) -> Result<(), String> {
    let mut models = BTreeMap::new();
    for (serial, name) in KINDS {
        models.insert(serial.to_owned(), read_profile(&profiles.join(format!("{name}.toml")))?);
    }
    table::print(&curves::read_folder(curves)?, &models);
    Ok(())
}

/// Five loads of every mix: p50, p90, p99 and p99.9 in us.
fn show(curves: &Path, serial: &str, profile: &Path) -> Result<(), String> {
    let model = read_profile(profile)?;
    for (share, curve) in drive(&curves::read_folder(curves)?, serial)? {
        for point in curve.sample(0.05, 0.95, 5) {
            let ours = load::latency_us(&model, *share, point.rate, 500_000);
            println!("{share:4} {:9.0}/s measured {:.0?} us, simulated {ours:.0?} us", point.rate, point.latency_us);
        }
    }
    Ok(())
}

fn drive<'a>(drives: &'a BTreeMap<String, Drive>, serial: &str) -> Result<&'a Drive, String> {
    drives.get(serial).ok_or_else(|| format!("{serial}: no such drive among the curves"))
}

fn read_profile(path: &Path) -> Result<SsdModel, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    SsdModel::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}
