//! CPU time per I/O and p99 latency of each policy by request rate, without the bursts, as one SVG file.

use pilotlight_report::chart::{Axis, Chart, Line, Lines, Place, Scale, picture};

use super::frontier::Measured;
use super::{POLICIES, Point};

/// `None` without a measurement.
pub(crate) fn svg(all: &[Measured]) -> Option<String> {
    let cpu = chart(all, "CPU time per I/O", "CPU per I/O (us)", Point::cpu_us_per_io);
    let latency = chart(all, "p99 latency", "p99 latency (us)", |point| point.p99_us);
    picture(&[cpu, latency])
}

fn chart(all: &[Measured], title: &str, y_label: &str, y: fn(&Point) -> f64) -> Chart {
    let axis = |label: &str| Axis { label: label.to_owned(), scale: Scale::Log10, from_zero: false };
    let steady = || all.iter().filter(|measured| measured.load.rate > 0.0 && !measured.load.bursts);
    let place = |point: Point| Place { x: point.iops, y: Some(y(&point)), band: None };
    let lines = POLICIES.iter().enumerate().map(|(at, policy)| Line {
        name: policy.label.to_owned(),
        places: steady().filter_map(|measured| measured.median(at)).map(place).collect(),
    });
    let lines = lines.filter(|line| !line.places.is_empty()).collect();
    Chart::Lines(Lines { title: title.to_owned(), x: axis("reads per second"), y: axis(y_label), lines })
}
