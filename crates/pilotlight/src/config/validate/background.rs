//! Background work: what is scrubbed, how fast, and which namespaces are tracked for it.

use std::ops::RangeInclusive;

use pilotlight_storage::BackendSpec;
use pilotlight_storage::background::control::{BackgroundConfig, Scrubbed};
use pilotlight_storage::background::tracked::{SumsPlace, Tracking};

use super::Checker;
use crate::config::caps::parse_background_rate;
use crate::config::keys::{Background, Namespace};
use crate::config::problem::{Problem, Text};

/// Days that a pass of scrubbing may take.
const DAYS: RangeInclusive<u32> = 1..=3650;

impl Checker<'_> {
    /// The section `[background]`.
    pub(super) fn background(&mut self, written: &Background) -> BackgroundConfig {
        let default = BackgroundConfig::default();
        let rate = |checker: &mut Self, written: &Option<Text>| checker.parsed(written.as_ref(), parse_background_rate);
        BackgroundConfig {
            scrub: written.scrub.as_ref().map_or(default.scrub, |scrub| self.scrubbed(scrub)),
            scrub_bytes_per_s: rate(self, &written.scrub_rate).unwrap_or(default.scrub_bytes_per_s),
            scrub_days: self.number(written.scrub_days.as_ref(), DAYS, default.scrub_days, "days"),
            trim_bytes_per_s: rate(self, &written.trim_rate).unwrap_or(default.trim_bytes_per_s),
        }
    }

    fn scrubbed(&mut self, written: &Text) -> Scrubbed {
        match written.value.as_str() {
            "off" => Scrubbed::Off,
            "checked" => Scrubbed::Checked,
            "all" => Scrubbed::All,
            other => {
                let help = "write off, checked (namespaces with checksums) or all (all in files and on block devices)";
                self.problem(Problem::error(&written.at, format!("`{other}` is nothing to be scrubbed")).help(help));
                Scrubbed::default()
            }
        }
    }

    /// The backend with `checksums`, `checksums_file` and `trim`.
    pub(super) fn tracked(&mut self, written: &Namespace, spec: BackendSpec, block_size: u32) -> BackendSpec {
        let (mut tracking, inner) = match spec {
            BackendSpec::Tracked { tracking, inner } => (tracking, *inner),
            other => (Tracking::default(), other),
        };
        if let Some(file) = &written.checksums_file {
            tracking.sums = Some(SumsPlace::At(self.base.join(&file.value)));
        } else if written.checksums && tracking.sums.is_none() {
            tracking.sums = Some(SumsPlace::Beside);
        }
        tracking.trim |= written.trim.as_ref().is_some_and(|trim| self.trims(trim));
        if tracking == Tracking::default() {
            return inner;
        }
        if !matches!(inner, BackendSpec::File { .. }) {
            let what = "only a file or block device that is written has checksums, or is trimmed in the background";
            self.error(&written.at, what);
            return inner;
        }
        if block_size != 4096 {
            let at = written.block_size.as_ref().map_or(&written.at, |size| &size.at);
            let what = "checksums and trimming in the background need blocks of 4096 bytes";
            self.problem(
                Problem::error(at, what).help("set block_size = 4096; a namespace with data has to keep its own"),
            );
        }
        BackendSpec::Tracked { tracking, inner: Box::new(inner) }
    }

    fn trims(&mut self, written: &Text) -> bool {
        match written.value.as_str() {
            "now" => false,
            "background" => true,
            other => {
                let help = "write now (when a host frees a range) or background";
                self.problem(Problem::error(&written.at, format!("`{other}` is no time to trim")).help(help));
                false
            }
        }
    }
}

/// Whether a namespace is tracked, which takes blocks of 4096 bytes.
pub(super) fn is_tracked(written: &Namespace) -> bool {
    let spec = written.backend.as_ref().and_then(|text| text.value.parse::<BackendSpec>().ok());
    let trims = written.trim.as_ref().is_some_and(|trim| trim.value == "background");
    written.checksums || written.checksums_file.is_some() || trims || matches!(spec, Some(BackendSpec::Tracked { .. }))
}
