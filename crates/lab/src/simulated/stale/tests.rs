//! Messages about stale results.

use super::*;

fn home() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn fig3() -> (Provenance, Fingerprints) {
    let set = vec![("machine.poll.loop_ns".to_owned(), "77".to_owned())];
    let request = Request { set, smoke: true, repeats: None };
    let bench = experiment::load(&home().join("papers/sandman/fig3.toml"), &request).unwrap();
    let cells = Cells::new(&bench, &variants_of(&bench, std::iter::empty()));
    let cells_of_points = bench.points.iter().flat_map(|point| {
        point.experiment.policies.iter().map(|policy| Cell {
            point: point.name.clone(),
            variant: "default".into(),
            policy: policy.label.clone(),
        })
    });
    (bench.provenance(), cells_of_points.map(|cell| (cell.clone(), cells.get(&cell).unwrap())).collect())
}

#[test]
fn stale_cells_are_listed() {
    let (about, mut cells_of_points) = fig3();
    assert_eq!(about.file, "papers/sandman/fig3.toml");
    let now = current_cells(&about, &cells_of_points, home());
    assert_eq!(reason(&cells_of_points, &now), None);
    let other = crate::simulated::fingerprint::digest("other");
    let (cell, fingerprint) = cells_of_points.iter_mut().next().unwrap();
    let name = format!("{} at {} (default)", cell.policy, cell.point);
    *fingerprint = other;
    let said = reason(&cells_of_points, &now).unwrap();
    assert!(said.starts_with("1 of ") && said.ends_with(&name), "{said}");
    cells_of_points.values_mut().for_each(|fingerprint| *fingerprint = other);
    let said = reason(&cells_of_points, &now).unwrap();
    assert!(said.contains("and ") && said.matches("(default)").count() == MAX_LISTED, "{said}");
    assert!(reason(&BTreeMap::new(), &now).unwrap().contains("all of it is stale"));
}

#[test]
fn an_experiment_with_a_moved_file_is_found_by_name() {
    let (about, cells_of_points) = fig3();
    let moved = Provenance { file: "experiments/elsewhere/figure-3.toml".into(), ..about.clone() };
    assert_eq!(reason(&cells_of_points, &current_cells(&moved, &cells_of_points, home())), None);
    let gone = Provenance { experiment: "nowhere".into(), ..moved };
    assert!(
        reason(&cells_of_points, &current_cells(&gone, &cells_of_points, home()))
            .unwrap()
            .contains("figure-3.toml cannot be run now")
    );
}

#[test]
fn draws_are_those_of_the_machine_of_the_experiment() {
    let drawn = |file: &str| {
        let bench = experiment::load(&home().join(file), &Request::default()).unwrap();
        let cell = |variant: &str| Cell { point: String::new(), variant: variant.into(), policy: "p".into() };
        let cells = |variants: &[&str]| -> Fingerprints {
            variants.iter().map(|variant| (cell(variant), crate::simulated::fingerprint::digest("any"))).collect()
        };
        assert_eq!(draws(&bench.provenance(), &cells(&["default", "family:idle-deep"]), home()), BTreeMap::new());
        draws(&bench.provenance(), &cells(&["default", "lhs:2/16"]), home())
    };
    let (sandman, pass) = (drawn("papers/sandman/fig10.toml"), drawn("papers/pass/fig2.toml"));
    let key = "poll.receive_ns"; // 250 to 450 ns and 200 to 350 ns
    for (draws, low, high) in [(&sandman, 250.0, 450.0), (&pass, 200.0, 350.0)] {
        let values: Vec<f64> = draws.values().map(|constants| constants[key]).collect();
        assert!(values.len() == 16 && values.iter().all(|value| (low..=high).contains(value)), "{values:?}");
    }
    let shared = "network.overhead_bytes"; // 60 to 200 in both, after constants that only one has
    assert!(sandman.iter().all(|(variant, constants)| constants[shared] == pass[variant][shared]));
}
