//! Points of parameters, overrides, and errors.

use super::*;

const BASE: &str = r#"
        name = "t"
        figure = "none"
        title = "a test"
        machine = { profile = "p" }
        duration = "1s"
        warm_up = "100ms"
        repeats = 2
        topology = { cores = 4, siblings = true, threads = 4 }
        drive = [{ profile = "d", count = 1 }]
        policy = [{ label = "a", name = "static" }, { label = "b", name = "sandman", settings = { z = 2.0 } }]
        [[workload]]
        name = "hosts"
        connections = 4
        depth = 8
        rate = 100
        request = { kind = "plain", size = "4KiB" }
    "#;

fn points(axes: &str) -> Result<Vec<Point>, PointsError> {
    expand(&read::parse("t.toml", &format!("{BASE}\n{axes}")).unwrap(), &[], "t.toml")
}

#[test]
fn points_are_selected_by_labels() {
    let axes = "[[parameter]]\nname = 'rate'\nkey = 'workload.hosts.rate'\nvalues = [10, 20]\n\
                [[parameter]]\nname = 'depth'\nkey = 'workload.hosts.depth'\nvalues = [1, 2]";
    let points = points(axes).unwrap();
    let names = |at: &[(&str, &str)]| {
        let at: Vec<_> = at.iter().map(|(name, label)| ((*name).to_owned(), (*label).to_owned())).collect();
        let selected = select(&points, &at)?;
        Ok::<_, NoPoint>(selected.into_iter().map(|index| points[index].name.as_str()).collect::<Vec<_>>())
    };
    assert_eq!(names(&[]).unwrap().len(), 4);
    assert_eq!(names(&[("rate", "20")]).unwrap(), ["rate=20;depth=1", "rate=20;depth=2"]);
    assert_eq!(names(&[("rate", "20"), ("depth", "1")]).unwrap(), ["rate=20;depth=1"]);
    let none = names(&[("rate", "30")]).unwrap_err().to_string();
    assert_eq!(none, "--at rate=30: no such point (labels: depth=1, depth=2, rate=10, rate=20)");
}

#[test]
fn parameters_multiply_in_order() {
    let axes = "[[parameter]]\nname = 'rate'\nkey = 'workload.hosts.rate'\nscale = 'log2'\nfrom = 10_000\nto = 40_000\n\
                [[parameter]]\nname = 'z'\nkey = ['policy.b.settings.z', 'machine.poll.loop_ns']\nvalues = [[1, 50], [3, 60]]";
    let points = points(axes).unwrap();
    let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
    assert_eq!(
        names,
        ["rate=10000;z=1", "rate=10000;z=3", "rate=20000;z=1", "rate=20000;z=3", "rate=40000;z=1", "rate=40000;z=3"]
    );
    assert_eq!(points[3].changes, [("poll.loop_ns".to_owned(), Value::Integer(60))]);
    assert_eq!(points[3].experiment.policies[1].settings["z"], Value::Integer(3));
    assert_eq!(points[3].experiment.workload[0].rate, Some(crate::simulated::quantity::Rate::PerSecond(20_000.0)));
}

#[test]
fn overrides_take_precedence_over_parameters() {
    let axes = "[[parameter]]\nname = 'seed'\nkey = 'seed'\nvalues = [1, 2]";
    let table = read::parse("t.toml", &format!("{BASE}\n{axes}")).unwrap();
    let overrides = [("seed".to_owned(), Value::Integer(9)), ("machine.poll.batch".to_owned(), Value::Integer(8))];
    let points = expand(&table, &overrides, "t.toml").unwrap();
    assert!(points.iter().all(|point| point.experiment.seed == 9 && point.changes.len() == 1));
}

#[test]
fn without_parameters_there_is_one_point() {
    let points = points("").unwrap();
    assert_eq!((points.len(), points[0].name.as_str()), (1, "-"));
}

#[test]
fn errors_name_parameter_point_and_key() {
    let message = |axes: &str| points(axes).unwrap_err().to_string();
    let unknown = message("[[parameter]]\nname = 'r'\nkey = 'workload.hosts.rates'\nvalues = [1]");
    assert!(unknown.contains("at r=1") && unknown.contains("rates"), "{unknown}");
    let nowhere = message("[[parameter]]\nname = 'r'\nkey = 'workload.guests.rate'\nvalues = [1]");
    assert!(nowhere.contains("guests") && nowhere.contains("hosts"), "{nowhere}");
    assert!(message("[[parameter]]\nname = 'r'\nkey = 'seed'").contains("parameter r: no values"));
    assert!(message("[[parameter]]\nkey = 'seed'\nvalues = [1]").contains("`name` is required"));
    assert!(message("[[parameter]]\nname = 'r'\nvalues = [1]").contains("set either `key`"));
    assert!(message("[[parameter]]\nname = 'r'\nkey = 'seed'\nvalues = [1, 1]").contains("duplicate"));
    assert!(message("[[parameter]]\nname = 'r'\nkey = 'seed'\nfrom = 2\nto = 1\ncount = 3").contains("rises"));
}

#[test]
fn an_experiment_is_written_and_read_back() {
    let table = read::parse("t", BASE).unwrap();
    let first: Experiment = read::table(table, "t").unwrap();
    let text = toml::to_string(&first).unwrap();
    let second: Experiment = read::table(read::parse("t", &text).unwrap(), "t").unwrap();
    assert_eq!(first, second);
}
