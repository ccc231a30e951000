//! The sentence on the paper's machine in `pilotlight demo`, generated from the committed results of Figure 4, because the server contains no
//! simulator.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pilotlight_lab::stored::values;

/// The file with the sentence, relative to the repository.
const FILE: &str = "crates/pilotlight/src/demo/paper.txt";
/// Bursts on SANDMAN's machine.
const EXPERIMENT: &str = "papers/sandman/results/fig4";
/// The policies of the demo: names in the experiment and in the demo. The first is the reference.
const POLICIES: [(&str, &str); 3] =
    [("spdk-static", "static"), ("linux-interrupt", "interrupt"), ("sandman-recommended", "sandman")];
/// The point used: the paper does not print the number of connections and the limit of a drive.
const POINT: &str = "operating-point=4-dies";
const POWER: &str = "system_power_w";
const TAIL: &str = "burst.latency_p99_us";

/// The file below a folder with the server's source.
pub(super) fn file(root: &Path) -> Option<PathBuf> {
    Some(root.join(FILE)).filter(|path| path.exists())
}

/// Its content.
pub(super) fn text(root: &Path) -> anyhow::Result<String> {
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
