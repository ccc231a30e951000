//! What is counted for each I/O: interrupts of the drive's queues and context switches of the workload's threads.

use super::ran::{Completion, Counted};
use crate::record::{Record, What};
use crate::results::entry::{Run, Sensed};

/// How rates of interrupt lines end, as the sensor `kernel` names them.
const RATE: &str = "_count_per_s";

/// What was counted in a run.
#[must_use]
pub fn counted(run: &Run) -> Counted {
    let interrupts = run.completion.as_ref().and_then(|completion| interrupts_per_s(completion, &run.sensed));
    let per_io = |per_s: f64| io_per_s(&run.record).map(|io| per_s / io);
    Counted { interrupts: interrupts.and_then(per_io), switches: switches_per_io(&run.record) }
}

/// Interrupts of the drive's queues in a second; `None` where no line of theirs was read.
fn interrupts_per_s(completion: &Completion, sensed: &Sensed) -> Option<f64> {
    let begins = completion.interrupts.as_ref().ok()?;
    let lines = sensed.observed.iter().filter_map(|(column, rate)| Some((line_of(column)?, *rate)));
    let rates: Vec<f64> =
        lines.filter(|(name, _)| begins.iter().any(|b| is_queue(name, b))).map(|(_, rate)| rate).collect();
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// The name of an interrupt in a column of the sensor: `nvme0q1` of `kernel/irq/28:nvme0q1_count_per_s`.
fn line_of(column: &str) -> Option<&str> {
    let (_, line) = column.split_once("/irq/")?;
    line.strip_suffix(RATE)?.split_once(':').map(|(_, name)| name)
}

/// Whether an interrupt is one of a queue for I/O: `nvme0q1` of `nvme0q`, but not `nvme0q0`, which is for administration, nor
/// `nvme0q1x`; `virtio1-req.0` of `virtio1-req.`.
fn is_queue(name: &str, begins: &str) -> bool {
    let number = name.strip_prefix(begins).and_then(|rest| rest.parse::<u32>().ok());
    number.is_some_and(|number| number > 0 || !begins.starts_with("nvme"))
}

fn io_per_s(record: &Record) -> Option<f64> {
    let classes = record.classes.iter().filter(|class| matches!(class.what, What::Read | What::Write | What::Trim));
    let rate: f64 = classes.map(|class| class.operations as f64 / (class.runtime_ns.max(1) as f64 / 1e9)).sum();
    (rate > 0.0).then_some(rate)
}

/// fio counts those of its workers (getrusage), without the ramp.
fn switches_per_io(record: &Record) -> Option<f64> {
    let operations: u64 = record.classes.iter().map(|class| class.operations).sum();
    let switches = record.extra.get("context_switches_count")?;
    (operations > 0).then(|| switches / operations as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queues_for_io_of_this_drive_count() {
        let name = |column| line_of(column);
        assert_eq!(name("kernel/irq/28:nvme0q1_count_per_s"), Some("nvme0q1"));
        assert_eq!(name("kernel/interrupts_count_per_s"), None);
        for (name, begins, expected) in [
            ("nvme0q1", "nvme0q", true),
            ("nvme0q12", "nvme0q", true),
            ("nvme0q0", "nvme0q", false),
            ("nvme01q1", "nvme0q", false),
            ("nvme10q1", "nvme1q", false),
            ("virtio1-req.0", "virtio1-req.", true),
            ("virtio1-config", "virtio1-req.", false),
        ] {
            assert_eq!(is_queue(name, begins), expected, "{name} {begins}");
        }
    }
}
