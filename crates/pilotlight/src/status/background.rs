//! Background work in the status: its classes, and the progress of each namespace.

use pilotlight_nvmf_target::ServerStats;
use pilotlight_storage::background::control::ClassStats;
use pilotlight_storage::background::upkeep::UpkeepStats;
use pilotlight_storage::format_size;

use super::format::{line, time};
use super::report::{BackgroundReport, ClassReport, UpkeepReport};

/// The report of a server's counters.
pub(crate) fn background(stats: &ServerStats) -> BackgroundReport {
    BackgroundReport {
        classes: stats.background.iter().map(class).collect(),
        namespaces: stats.upkeeps.iter().map(namespace).collect(),
        ios_met: stats.background_overlaps.count(),
        met_for_p99_ns: stats.background_overlaps.percentile_ns(0.99),
    }
}

fn class(stats: &ClassStats) -> ClassReport {
    ClassReport {
        class: stats.class.name().to_owned(),
        highest_bytes_per_s: stats.highest_bytes_per_s,
        rate_ppm: stats.rate_ppm,
        paused: stats.is_paused,
        backlog_bytes: stats.backlog_bytes,
    }
}

fn namespace(stats: &UpkeepStats) -> UpkeepReport {
    UpkeepReport {
        nqn: stats.nqn.clone(),
        nsid: stats.nsid,
        bytes: stats.bytes,
        checksums: stats.has_sums,
        scrubbed: stats.scrubs,
        trimmed: stats.trims,
        scrubbed_bytes: stats.scrubbed_bytes,
        began_unix_s: stats.began_s,
        passes: stats.passes,
        read_bytes: stats.read_bytes,
        dirty_bytes: stats.dirty_bytes,
        freed_bytes: stats.freed_bytes,
        trimmed_bytes: stats.trimmed_bytes,
        mismatches: stats.mismatches,
        bad_blocks: stats.bad_blocks,
        read_errors: stats.read_errors,
    }
}

/// A line for each class and each namespace; nothing where there is no background work.
pub(crate) fn text(report: &BackgroundReport) -> String {
    let mut out = String::new();
    for class in &report.classes {
        let rate = if class.paused {
            "paused".to_owned()
        } else {
            let percent = class.rate_ppm as f64 / 1e4;
            format!("{percent:.0} % of {}", crate::config::format_cap(Some(class.highest_bytes_per_s)))
        };
        line(&mut out, &class.class, &format!("{rate}; {} to do", format_size(class.backlog_bytes)));
    }
    if report.ios_met > 0 {
        let words =
            format!("{} background I/Os; they ended within {} (p99)", report.ios_met, time(report.met_for_p99_ns));
        line(&mut out, "  requests met", &words);
    }
    for namespace in &report.namespaces {
        let words: Vec<String> = [scrub_of(namespace), trim_of(namespace)].into_iter().flatten().collect();
        line(
            &mut out,
            &format!("  namespace {}", namespace.nsid),
            &format!("of {}: {}", namespace.nqn, words.join("; ")),
        );
    }
    out
}

fn scrub_of(namespace: &UpkeepReport) -> Option<String> {
    if !namespace.scrubbed {
        return None;
    }
    let percent = namespace.scrubbed_bytes.saturating_mul(100) / namespace.bytes.max(1);
    let sums = if namespace.checksums {
        format!(
            ", {} to be summed, {} blocks bad now, {} mismatches",
            format_size(namespace.dirty_bytes),
            namespace.bad_blocks,
            namespace.mismatches
        )
    } else {
        ", no checksums".to_owned()
    };
    let errors = namespace.read_errors;
    Some(format!("pass {} at {percent} %{sums}, {errors} read errors", namespace.passes + 1))
}

fn trim_of(namespace: &UpkeepReport) -> Option<String> {
    let words = || {
        format!("{} to be trimmed, {} done", format_size(namespace.freed_bytes), format_size(namespace.trimmed_bytes))
    };
    namespace.trimmed.then(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_said_in_words() {
        let class = ClassReport {
            class: "scrub".to_owned(),
            highest_bytes_per_s: 100_000_000,
            rate_ppm: 250_000,
            backlog_bytes: 3 << 20,
            ..ClassReport::default()
        };
        let namespace = UpkeepReport {
            nqn: "nqn".to_owned(),
            nsid: 3,
            bytes: 4 << 20,
            checksums: true,
            scrubbed: true,
            scrubbed_bytes: 1 << 20,
            dirty_bytes: 1 << 16,
            mismatches: 2,
            bad_blocks: 1,
            ..UpkeepReport::default()
        };
        let paused = ClassReport { paused: true, ..class.clone() };
        let plain = UpkeepReport { checksums: false, trimmed: true, ..namespace.clone() };
        let (classes, namespaces) = (vec![class, paused], vec![namespace, plain]);
        let said = text(&BackgroundReport { classes, namespaces: namespaces.clone(), ..BackgroundReport::default() });
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "scrub                 25 % of 100MB/s; 3MiB to do");
        assert_eq!(lines[1], "scrub                 paused; 3MiB to do");
        assert!(
            lines[2]
                .ends_with("of nqn: pass 1 at 25 %, 64KiB to be summed, 1 blocks bad now, 2 mismatches, 0 read errors")
        );
        assert!(lines[3].ends_with("of nqn: pass 1 at 25 %, no checksums, 0 read errors; 0B to be trimmed, 0B done"));
        let met = BackgroundReport { namespaces, ios_met: 3, met_for_p99_ns: 210_000, ..BackgroundReport::default() };
        assert!(
            text(&met).starts_with("  requests met        3 background I/Os; they ended within 210"),
            "{}",
            text(&met)
        );
        assert_eq!(text(&BackgroundReport::default()), "");
    }
}
