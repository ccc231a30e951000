//! Counts per I/O: interrupts of the drive's queues and context switches of the workload's threads.
//!
//! Interrupts are counted over the whole command, not the measured window: tools report the window inaccurately, and a window without I/O
//! would look like polling. Tools do not count I/Os of the warm-up; the same rate is assumed.

use pilotlight_sensors::Recording;

use super::verify::Counted;
use crate::record::Run;
use pilotlight_workloads::record::{Class, OperationKind, Record};

/// The counts of a run.
#[must_use]
pub fn counted(run: &Run) -> Counted {
    let interrupts = run.completion.as_ref().and_then(|completion| {
        let ios = ios(&run.record, completion.ramp_ns)?;
        Some(completion.interrupts_count? as f64 / ios)
    });
    let switches = |count| switches_per_io(&run.record, count);
    Counted {
        interrupts,
        switches: switches("context_switches_count"),
        waits: switches("voluntary_context_switches_count"),
    }
}

/// Interrupts of the drive's queues in a recording, by prefix of their names; `None` if none was read.
#[must_use]
pub fn interrupts(recording: &Recording, begins: &[String]) -> Option<i64> {
    let mut lines = Vec::new();
    for track in &recording.tracks {
        for (domain, points) in track.domains.iter().zip(&track.points) {
            let is_ours = line_of(&domain.name).is_some_and(|name| begins.iter().any(|begins| is_queue(name, begins)));
            let grown = points.first().zip(points.last()).map(|(first, last)| last.value - first.value);
            lines.extend(grown.filter(|_| is_ours));
        }
    }
    (!lines.is_empty()).then(|| lines.iter().sum())
}

/// The name of an interrupt in a domain of the sensor `kernel`: `nvme0q1` of `irq/28:nvme0q1`.
fn line_of(domain: &str) -> Option<&str> {
    domain.strip_prefix("irq/")?.split_once(':').map(|(_, name)| name)
}

/// Whether an interrupt is of an I/O queue: `nvme0q1` for the prefix `nvme0q`, but not `nvme0q0` (admin queue) or `nvme0q1x`;
/// `virtio1-req.0` for `virtio1-req.`.
fn is_queue(name: &str, begins: &str) -> bool {
    let number = name.strip_prefix(begins).and_then(|rest| rest.parse::<u32>().ok());
    number.is_some_and(|number| number > 0 || !begins.starts_with("nvme"))
}

/// I/Os of the whole command, with an estimate for the warm-up.
fn ios(record: &Record, ramp_ns: u64) -> Option<f64> {
    let is_io = |class: &&Class| matches!(class.kind, OperationKind::Read | OperationKind::Write | OperationKind::Trim);
    let with_ramp = |class: &Class| class.counted() as f64 * (1.0 + ramp_ns as f64 / class.runtime_ns.max(1) as f64);
    let ios: f64 = record.classes.iter().filter(is_io).map(with_ramp).sum();
    (ios > 0.0).then_some(ios)
}

/// fio and `pilotlab read` count context switches of their workers (getrusage), without the warm-up.
fn switches_per_io(record: &Record, count: &str) -> Option<f64> {
    let operations: u64 = record.classes.iter().map(Class::counted).sum();
    let switches = record.extra.get(count)?;
    (operations > 0).then(|| switches / operations as f64)
}

#[cfg(test)]
mod tests {
    use pilotlight_sensors::energy::Point;
    use pilotlight_sensors::recording::Track;
    use pilotlight_sensors::{Domain, Unit};

    use super::*;

    #[test]
    fn only_io_queues_of_this_drive_count() {
        assert_eq!(["irq/28:nvme0q1", "irq/RES", "interrupts"].map(line_of), [Some("nvme0q1"), None, None]);
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

    /// Ten readings over two seconds; per reading the two I/O queues raise 30 and 10 interrupts, the admin queue 100, another drive 1,000.
    fn recording() -> Recording {
        let lines =
            [("irq/28:nvme0q0", 100), ("irq/29:nvme0q1", 30), ("irq/30:nvme0q2", 10), ("irq/31:nvme1q1", 1_000)];
        let domains: Vec<Domain> = lines.iter().map(|(name, _)| Domain::counter(*name, Unit::Count)).collect();
        let mut track = Track::new("kernel", &domains, 200_000_000);
        for (line, (_, each)) in lines.iter().enumerate() {
            track.points[line].extend((0..10).map(|at| Point { at_ns: at * 200_000_000, value: 7 + each * at as i64 }));
        }
        Recording { tracks: vec![track], ..Recording::default() }
    }

    #[test]
    fn interrupts_are_counted_over_the_whole_command() {
        assert_eq!(interrupts(&recording(), &["nvme0q".into()]), Some(9 * 40));
        assert_eq!(interrupts(&recording(), &["nvme0q".into(), "nvme1q".into()]), Some(9 * 1_040));
        assert_eq!(interrupts(&recording(), &["virtio1-req.".into()]), None);
    }

    #[test]
    fn ios_of_the_warm_up_have_the_same_rate() {
        let class = |kind, operations| Class {
            kind,
            operations: Some(operations),
            bytes: None,
            runtime_ns: 2_000,
            latency: pilotlight_workloads::record::Latency::default(),
        };
        let record = Record {
            classes: vec![class(OperationKind::Read, 100), class(OperationKind::Transaction, 5)],
            ..Record::default()
        };
        assert_eq!((ios(&record, 0), ios(&record, 1_000)), (Some(100.0), Some(150.0)));
        assert_eq!(ios(&Record::default(), 0), None);
    }

    #[test]
    fn only_interrupts_include_the_warm_up() {
        use crate::plan::Key;
        use crate::record::{Run, Sensed};
        use crate::study::Completion;
        use pilotlight_sensors::energy::Window;
        let latency = pilotlight_workloads::record::Latency::default();
        let class =
            Class { kind: OperationKind::Read, operations: Some(1_000), bytes: None, runtime_ns: 4_000, latency };
        let extra = [("context_switches_count", 500.0), ("voluntary_context_switches_count", 250.0)];
        let extra = extra.map(|(name, count)| (name.to_owned(), count)).into();
        let window = Window { from_ns: 0, to_ns: 4_000 };
        let completion = Completion {
            requested: "interrupt".into(),
            settings: Vec::new(),
            interrupts: Ok(vec!["nvme0q".into()]),
            interrupts_count: Some(1_250),
            ramp_ns: 1_000,
            io_poll: None,
            io_poll_delay: None,
        };
        let run = Run {
            key: Key { point: 0, repeat: 0 },
            knobs: pilotlight_workloads::Point::new(),
            began_wall_ns: 0,
            span: window,
            window,
            record: Record { classes: vec![class], extra, ..Record::default() },
            sensed: Sensed::default(),
            completion: Some(completion),
        };
        // 1,000 reads in 4 us, 250 more in the warm-up of 1 us; fio's switches exclude it
        let Counted { interrupts, switches, waits } = counted(&run);
        assert_eq!((interrupts, switches, waits), (Some(1.0), Some(0.5), Some(0.25)));
        assert_eq!(counted(&Run { completion: None, ..run }).interrupts, None);
    }
}
