//! The pressure of a trace's segments on PACER's machine (section III-A3).

use std::path::Path;

use pilotlight_lab::simulated::experiment::{Request, load};
use pilotlight_lab::simulated::pressure::{measure, of_all};
use pilotlight_trace::stats::segments::Segments;
use pilotlight_trace::{Op, Request as Traced};

const SECOND: u64 = 1_000_000_000;

/// Two segments of 8 KiB requests: 60 k a second with 70 % reads, and half of that as sequential reads.
#[test]
fn a_trace_at_a_tenth_of_the_maximum_rate_has_a_pressure_of_10_percent() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/pacer/pressure.toml");
    let bench = load(&path, &Request { smoke: true, ..Request::default() }).unwrap();
    let mut segments = Segments::new(SECOND);
    for at in 0..60_000_u64 {
        let op = if at % 10 < 7 { Op::Read } else { Op::Write };
        let offset = at * 7_919 % 100_003 * 8_192;
        segments.add(&Traced { at_ns: at * SECOND / 60_000, volume: 1, op, offset, bytes: 8_192 });
    }
    for at in 0..30_000_u64 {
        let at_ns = SECOND + at * SECOND / 30_000;
        segments.add(&Traced { at_ns, volume: 2, op: Op::Read, offset: at * 8_192, bytes: 8_192 });
    }
    let pressed = measure(&bench, &segments.finish()).unwrap();
    let percent: Vec<f64> = pressed.iter().map(|one| one.percent()).collect();
    assert!((percent[0] - 10.0).abs() < 1.0 && (percent[1] - 5.0).abs() < 0.5, "{percent:?}");
    assert!((of_all(&pressed).unwrap() - 7.5).abs() < 0.7, "{:?}", of_all(&pressed));
    assert_eq!(of_all(&measure(&bench, &[]).unwrap()), None);
}
