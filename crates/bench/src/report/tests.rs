//! A page made of results whose figures are known.

use std::collections::BTreeMap;

use super::*;
use crate::results::summary::Spread;
use crate::workload::Value;

/// Depths 1, 4 and 16, reads and writes: I/Os a second are a thousand times the depth.
fn results() -> Results {
    let metric = |key: &str, title: &str, unit: &str, modelled| About {
        key: key.into(),
        title: title.into(),
        unit: unit.into(),
        modelled,
    };
    let mut results = Results {
        title: "a <test>".into(),
        complete: true,
        knobs: vec!["depth".into(), "rw".into()],
        metrics: vec![
            metric("io_per_s", "I/Os per second", "1/s", false),
            metric("cpu_modelled_generic_power_w", "power, CPU, modelled (generic)", "W", true),
            metric("io_per_j_cpu_modelled_generic", "I/Os per joule, CPU, modelled (generic)", "1/J", true),
        ],
        ..Results::default()
    };
    for (at, (depth, rw)) in [1, 4, 16].into_iter().flat_map(|depth| [(depth, "read"), (depth, "write")]).enumerate() {
        let rate = 1_000.0 * f64::from(depth);
        let values = [rate * 0.9, rate, rate * 1.1];
        let all = [
            ("io_per_s", values),
            ("cpu_modelled_generic_power_w", [10.0; 3]),
            ("io_per_j_cpu_modelled_generic", values.map(|v| v / 10.0)),
        ];
        results.points.push(PointResult {
            point: at,
            knobs: BTreeMap::from([
                ("depth".into(), Value::Integer(depth.into())),
                ("rw".into(), Value::Word(rw.into())),
            ]),
            repeats: 3,
            values: all.map(|(key, values)| (key.to_owned(), Spread::of(&values).unwrap())).into(),
            ..PointResult::default()
        });
    }
    results
}

fn page() -> String {
    let read = Read {
        folder: Folder::new(Path::new("/nowhere")),
        results: results(),
        environment: Environment { host: "h".into(), ..Environment::default() },
        senses: Senses::default(),
        finished: Finished::default(),
    };
    report(&read).html()
}

#[test]
fn every_metric_is_drawn_over_every_knob() {
    let page = page();
    for chart in [
        "I/Os per second over depth",
        "I/Os per second over rw",
        "power, CPU, modelled (generic) over depth",
        "I/Os per joule, CPU, modelled (generic) over rw",
        "I/Os per joule, CPU, modelled (generic) (1/J)",
    ] {
        assert!(page.contains(&format!("aria-label=\"{chart}\"")), "{chart}");
    }
    assert!(page.contains("16,000 ± "), "the table shows mean and interval");
}

#[test]
fn what_is_modelled_is_said_and_text_is_no_markup() {
    let page = page();
    assert!(page.contains("modelled where it says so"));
    assert!(page.contains("a &lt;test&gt;") && !page.contains("<test>"));
    for outside in ["http:", "https:", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn sizes_are_numbers_and_engines_are_not() {
    let number = |word: &str| knobs::number(&Value::Word(word.into()));
    assert_eq!(
        [number("4k"), number("1M"), number("512"), number("io_uring")],
        [Some(4_096.0), Some(1_048_576.0), Some(512.0), None]
    );
}
