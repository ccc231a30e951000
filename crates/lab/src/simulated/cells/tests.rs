//! Which cells become stale by a change.

use std::path::Path;

use super::*;
use crate::simulated::experiment::{LoadError, Request, load_text};
use crate::simulated::stale::variants_of;
use crate::stored::values::{Provenance, Run, Value as Number};

const TEXT: &str = r#"
    name = "t"
    figure = "none"
    title = "a test"
    machine = { profile = "sandman-epyc-9454p" }
    duration = "1s"
    warm_up = "100ms"
    repeats = 2
    topology = { cores = 4, siblings = true, threads = 4 }
    drive = [{ profile = "pm1743", count = 1 }]
    policy = [{ label = "plain", name = "static" }, { label = "moving", name = "dynamic", settings = { core_busy = "90%" } }]
    metrics = ["iops", "cpu_power_w"]
    [[workload]]
    name = "hosts"
    connections = 4
    depth = 8
    rate = 100
    request = { kind = "plain", size = "4KiB" }
    [[parameter]]
    name = "load"
    case = [{ label = "low", set = { "workload.hosts.rate" = 100 } }, { label = "high", set = { "workload.hosts.rate" = 200 } }]
"#;

/// A file of the repository, with replacements in the calibration.
fn file(name: &str, changes: &[(&str, &str)]) -> Result<String, LoadError> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap();
    let changes = if name.starts_with("profiles/calibration/") { changes } else { &[] };
    Ok(changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    }))
}

fn cells(text: &str, calibration: &[(&str, &str)]) -> Cells {
    let bench = load_text("t.toml", text, &Request::default(), &|name| file(name, calibration)).unwrap();
    let names = ["family:x", "perturb:poll.loop_ns:+20"];
    Cells::new(&bench, &variants_of(&bench, names.into_iter()))
}

fn changed(from: &str, to: &str) -> Cells {
    assert!(TEXT.contains(from), "{from}");
    cells(&TEXT.replacen(from, to, 1), &[])
}

/// Stale cells of earlier results.
fn stale<'a>(earlier: &'a Cells, current: &Cells) -> Vec<&'a Cell> {
    current.stale(&earlier.0)
}

#[test]
fn changes_of_notation_make_no_cell_stale() {
    let before = cells(TEXT, &[]);
    assert!(before.0.len() > 4 * 10, "{}", before.0.len());
    let same = [
        ("duration = \"1s\"", "duration = \"1000ms\" # one second"),
        ("title = \"a test\"", "title = \"another\"\nabout = \"more\"\nprinted = { rates = [1] }"),
        ("repeats = 2", "repeats = 9"),
        ("name = \"hosts\"", "name = \"guests\"\nspacing = { kind = \"poisson\" }"),
        ("[\"iops\", \"cpu_power_w\"]", "[\"cpu_power_w\", \"iops\"]"),
        ("core_busy = \"90%\"", "core_busy = \"90%\", interval = \"10us\""),
    ];
    for (from, to) in same {
        let text = TEXT.replacen(from, to, 1);
        let text = if to.contains("guests") { text.replace("workload.hosts", "workload.guests") } else { text };
        assert_eq!(cells(&text, &[]), before, "{to}");
    }
    let words = [
        ("fitted_on = []", "fitted_on = [\"sandman-t1-idle-cpu-w\"]"),
        ("source = \"assumed: fixed", "source = \"fixed"),
    ];
    assert_eq!(cells(TEXT, &words), before);
}

#[test]
fn a_changed_value_makes_only_its_points_stale() {
    let before = cells(TEXT, &[]);
    let only = |current: &Cells, is: &dyn Fn(&Cell) -> bool, what: &str| {
        let stale = stale(&before, current);
        let expected: Vec<&Cell> = before.0.keys().filter(|cell| is(cell)).collect();
        assert!(!expected.is_empty() && stale == expected, "{what}: {stale:?}");
    };
    only(&changed("= 200 }", "= 201 }"), &|cell| cell.point == "load=high", "a rate");
    only(&changed("\"90%\"", "\"91%\""), &|cell| cell.policy == "moving", "a setting");
    only(
        &changed("core_busy = \"90%\"", "core_busy = \"90%\", interval = \"11us\""),
        &|cell| cell.policy == "moving",
        "a default",
    );
    for (from, to) in [
        ("\"1s\"", "\"2s\""),
        ("100ms", "101ms"),
        ("cores = 4", "cores = 8"),
        ("4KiB", "8KiB"),
        ("count = 1", "count = 2"),
    ] {
        only(&changed(from, to), &|_| true, to);
    }
    let constant = [("value = 100\nlow = 50", "value = 101\nlow = 50")];
    only(&cells(TEXT, &constant), &|_| true, "a constant");
}

#[test]
fn a_renamed_member_of_the_family_is_recognized() {
    let before = cells(TEXT, &[]);
    let bench = load_text("t.toml", TEXT, &Request::default(), &|name| file(name, &[])).unwrap();
    let name = bench.machine.calibration.families[0].name.clone();
    let (from, renamed) = (format!("name = \"{name}\""), "name = \"renamed\"".to_owned());
    let current = cells(TEXT, &[(from.as_str(), renamed.as_str())]);
    assert_eq!(stale(&before, &current), Vec::<&Cell>::new());
    let of_earlier = results(&before);
    let sorted = current.sort(of_earlier.clone());
    assert_eq!((sorted.current.runs.len(), sorted.stale.runs.len()), (of_earlier.runs.len(), 0));
    assert!(sorted.current.runs.keys().any(|key| key.variant == "family:renamed"), "runs have current names");
    let text = TEXT.replace("name = \"load\"", "name = \"requests\"");
    let sorted = cells(&text, &[]).sort(of_earlier);
    assert!(sorted.stale.runs.is_empty() && sorted.current.runs.keys().all(|key| key.point.starts_with("requests=")));
}

#[test]
fn results_without_fingerprints_are_stale_until_stamped() {
    let current = cells(TEXT, &[]);
    let old = Results { cells: BTreeMap::new(), ..results(&current) };
    assert_eq!(current.sort(old.clone()).current.runs.len(), 0);
    let stamped = current.stamp(&old).unwrap();
    assert_eq!(stamped, results(&current));
    assert_eq!(Results::parse(&stamped.text()).unwrap(), stamped);
    assert_eq!(
        cells(&TEXT.replace("label = \"plain\"", "label = \"other\""), &[]).stamp(&old),
        None,
        "a policy no longer exists"
    );
}

#[test]
fn a_trace_file_is_identified_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let replay = |name: &str, sizes: &str| {
        let trace = format!(
            "volumes = 8\nclient_sets = 2\nthreads_per_client = 2\ndepth = 8\nsizes = '{}'\nsource = '{}'",
            path(sizes),
            path(name)
        );
        cells(&TEXT.replace("[[parameter]]", &format!("[trace]\n{trace}\n[[parameter]]")), &[])
    };
    for (name, text) in
        [("a", "0,W,0,4096,0"), ("renamed", "0,W,0,4096,0"), ("other", "0,R,0,4096,0"), ("sizes", "0,1")]
    {
        std::fs::write(path(name), text).unwrap();
    }
    let before = replay("a", "sizes");
    assert_eq!(replay("renamed", "sizes"), before);
    assert_eq!(stale(&before, &replay("other", "sizes")).len(), before.0.len());
    assert_eq!(stale(&before, &replay("a", "other")).len(), before.0.len());
    std::fs::write(path("a"), "0,W,0,4096,1").unwrap();
    assert_eq!(stale(&before, &replay("a", "sizes")).len(), before.0.len());
}

/// A run of each cell.
fn results(cells: &Cells) -> Results {
    let key = |cell: &Cell| RunKey {
        point: cell.point.clone(),
        variant: cell.variant.clone(),
        policy: cell.policy.clone(),
        replication: 0,
    };
    let value = Number { metric: crate::simulated::metrics::SATURATED.into(), unit: "1".into(), value: 0.0 };
    let run = Run { seed: 1, values: vec![value] };
    Results {
        about: Provenance::default(),
        cells: cells.0.clone(),
        runs: cells.0.keys().map(|cell| (key(cell), run.clone())).collect(),
    }
}
