//! What the paper's machine gives, as `pilotlight demo` tells it: one sentence from the committed results of Figure 4, which the server
//! program contains as a file because it contains no simulator.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pilotlight_results::values;

/// Where the sentence stands, below the repository.
const FILE: &str = "crates/pilotlight/src/demo/paper.txt";
/// Bursts on SANDMAN's machine.
const EXPERIMENT: &str = "results/fig4";
/// The policies of the demo, as the experiment and as the demo name them; the first is what the others are compared with.
const POLICIES: [(&str, &str); 3] =
    [("spdk-static", "static"), ("linux-interrupt", "interrupt"), ("sandman-recommended", "sandman")];
/// The paper leaves open how many connections there are, and what limits a drive: this of its experiments' points.
const POINT: &str = "operating-point=16-dies";
const POWER: &str = "system_power_w";
const TAIL: &str = "burst.latency_p99_us";

/// The file below a folder, if it is a folder with the server's source.
pub(super) fn file(root: &Path) -> Option<PathBuf> {
    Some(root.join(FILE)).filter(|path| path.exists())
}

/// What is to stand in it.
pub(super) fn sentence(root: &Path) -> anyhow::Result<String> {
    let results = values::read(&root.join(EXPERIMENT).join(values::FILE))?;
    let results = results.with_context(|| format!("{EXPERIMENT} has no results"))?;
    let of = |policy: &str, metric: &str| -> anyhow::Result<f64> {
        let mut runs: Vec<_> = results.runs.iter().collect();
        runs.retain(|(key, _)| {
            (key.point.as_str(), key.policy.as_str(), key.variant.as_str()) == (POINT, policy, "default")
        });
        let values: Vec<f64> = runs.into_iter().filter_map(|(_, run)| run.get(metric)).collect();
        let count = values.len();
        anyhow::ensure!(count > 0, "{EXPERIMENT} has no {metric} of {policy}");
        Ok(values.iter().sum::<f64>() / count as f64)
    };
    let [(polling, polling_name), others @ ..] = POLICIES;
    let (polling_w, polling_us) = (of(polling, POWER)?, of(polling, TAIL)?);
    let mut all = vec![format!("{polling_name} {polling_w:.0} W")];
    for (policy, name) in others {
        let times = of(policy, TAIL)? / polling_us;
        all.push(format!("{name} {:.0} W at {times:.2} times the p99 of bursts", of(policy, POWER)?));
    }
    Ok(format!("\nOn the paper's machine (48 cores, 16 drives; simulated, power modelled): {}.\n", all.join(", ")))
}
