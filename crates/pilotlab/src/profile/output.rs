//! The printed summary of `pilotlab profile`.

use std::path::Path;

use pilotlight_stats::Estimate;
use serde_json::{Value, json};

use super::args::Common;
use super::file::ProfileFile;
use super::fit::{CpuFit, DriveFit, Line};
use super::subject::{CORE_PPM, DriveMeasured, Measured};
use crate::console;
use crate::table::Table;

/// A part, or all, as text and as JSON.
pub(super) struct Printed {
    text: String,
    value: Value,
    /// The last line.
    end: String,
}

impl Printed {
    /// The CPU and its drives.
    pub(super) fn and(self, ssd: Self) -> Self {
        let value = json!({ "cpu": self.value, "ssd": ssd.value });
        Self { text: format!("{}\n{}", self.text, ssd.text), value, end: ssd.end }
    }

    pub(super) fn print(&self, common: &Common) -> anyhow::Result<()> {
        if common.json {
            return console::println(serde_json::to_string_pretty(&self.value)?);
        }
        console::print(format!("{}{}", self.text, self.end))
    }
}

/// The CPU.
pub(super) fn cpu(out: &Path, profile: &ProfileFile, fit: &CpuFit, all: &[Measured]) -> Printed {
    let cpu = profile.cpu.as_ref();
    let mut table = Table::new(&["W", "cores", "CPU time (% of a core)", "limit (W)", "p99 interval (us)"]);
    for row in cpu.iter().flat_map(|cpu| &cpu.rows) {
        let limit = if row.limit_uw == 0 { "-".to_owned() } else { format!("{:.0}", row.limit_uw as f64 / 1e6) };
        table.row([
            format!("{:.2}", row.power_uw as f64 / 1e6),
            row.cores.to_string(),
            format!("{:.0}", row.quota_ppm as f64 / (CORE_PPM / 100) as f64),
            limit,
            format!("{:.3}", row.p99_interval),
        ]);
    }
    let mut text = format!("{table}\n{} configurations measured; the best within each budget\n", all.len());
    let line = |what: &str, line: Option<&Line>, units: (&str, &str)| match line {
        None => format!("{what}: too few values for a fit\n"),
        Some(Line { base, slope, r2 }) => {
            format!("{what}: {} {} + {} {}, R2 {r2:.4}\n", value(*base), units.0, value(*slope), units.1)
        }
    };
    text += &line("power", fit.power_w.as_ref(), ("W", "W for each core in use"));
    text += &line("polling interval", fit.interval_ns.as_ref(), ("ns", "ns for each I/O thread on a core"));
    text += &line("power under a limit that is kept", fit.limit_w.as_ref(), ("W", "W for each watt of the limit"));
    text += &notes(cpu.map(|cpu| &cpu.notes[..]).unwrap_or_default());
    let value = json!({ "profile": profile, "fit": fit, "measured": all, "file": out });
    Printed { text, value, end: next_step(out, profile) }
}

/// The drives.
pub(super) fn ssd(out: &Path, profile: &ProfileFile, fit: &DriveFit, all: &[DriveMeasured]) -> Printed {
    let mut table = Table::new(&["reads (MB/s)", "writes (MB/s)", "W"]);
    for one in all {
        let watts = pilotlight_stats::mean::average(&one.watts);
        let watts = watts.map_or_else(|| "-".to_owned(), |watts| format!("{watts:.2}"));
        table.row([format!("{:.0}", one.read / 1e6), format!("{:.0}", one.written / 1e6), watts]);
    }
    let mut text =
        format!("{table}\na drive: {} W idle, {} W for each GB/s read", value(fit.idle_w), value(fit.read_w_per_gb_s));
    if let Some(written) = fit.written_w_per_gb_s {
        text += &format!(", {} W for each GB/s written", value(written));
    }
    text += &format!(", R2 {:.4}\n", fit.r2);
    text += &notes(profile.ssd.as_ref().map(|ssd| &ssd.notes[..]).unwrap_or_default());
    let value = json!({ "profile": profile, "fit": fit, "measured": all, "file": out });
    Printed { text, value, end: next_step(out, profile) }
}

/// A value with the half-width of its 95 % interval.
fn value(estimate: Estimate) -> String {
    if estimate.is_bounded() {
        format!("{:.3} ± {:.3}", estimate.value, (estimate.high - estimate.low) / 2.0)
    } else {
        format!("{:.3} (too few values for an interval)", estimate.value)
    }
}

fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("note: {note}\n")).collect()
}

fn next_step(out: &Path, profile: &ProfileFile) -> String {
    let shown = out.display();
    profile.missing().map_or_else(
        || format!("{shown}: a profile for policy pass\n"),
        |command| format!("{shown}: pass loads it once `{command} --out {shown}` has added its part\n"),
    )
}
