use super::*;

fn command(text: &str) -> Result<Command, Problem> {
    Command::new(toml::from_str(text).unwrap())
}

fn run_context() -> RunContext {
    let place = Target::File("/tmp/f".into(), 4_096);
    RunContext { scratch: "/tmp/s".into(), target: place, ramp_s: 0.5, duration_s: 2.0, seed: 9 }
}

fn printed(stdout: &str) -> Outcome {
    let span_ns = (0, 2_000_000_000);
    Outcome { status: Some(0), stdout: stdout.into(), stderr: Vec::new(), span_ns, began_wall_ns: 0 }
}

#[test]
fn placeholders_are_replaced() {
    let command =
        command("argv = ['x', '{depth}:{file}:{size}:{seed}:{duration_s}', '{{a}}']\nknobs = { depth = [4] }").unwrap();
    let point = Point::from([("depth".to_owned(), Value::Integer(4))]);
    let step = command.command(&point, &run_context()).unwrap();
    assert_eq!(step.argv, ["x", "4:/tmp/f:4096:9:2", "{a}"]);
    let problem = command.command(&Point::new(), &run_context()).unwrap_err();
    assert!(problem.why.contains("{depth}"), "{problem}");
}

#[test]
fn unknown_placeholders_are_refused_before_the_run() {
    for (keys, at) in [
        ("argv = ['x', '{zzz}']", "workload.argv"),
        ("argv = ['x', '{zzz}']\nknobs = { depth = [1] }", "workload.argv"),
        ("argv = ['x']\nenv = { A = '{zzz}' }", "workload.env"),
        ("argv = ['x']\nbefore = [['y', '{zzz}']]", "workload.before"),
        ("argv = ['x']\nprepare = [['y', '{depth}']]\nknobs = { depth = [1] }", "workload.prepare"),
        ("argv = ['x']\nclean_up = [['y', '{zzz}']]", "workload.clean_up"),
    ] {
        let problem = command(keys).unwrap_err();
        assert_eq!(problem.at, at, "{problem}");
    }
    let fine = "argv = ['x', '{depth} {file} {{zzz}}']\nbefore = [['y', '{depth}']]\nknobs = { depth = [1] }";
    assert!(command(fine).is_ok());
}

#[test]
fn metrics_are_matched_by_regular_expressions() {
    let command = command(
        "argv = ['x']\n\
         [[metric]]\nname = 'done'\nunit = 'count'\nregex = 'did ([0-9,]+)'\nclass = 'read'\nfield = 'operations'\n\
         [[metric]]\nname = 'mean'\nunit = 'ms'\nregex = 'mean ([0-9.]+)'\nclass = 'read'\nfield = 'latency-mean'\n\
         [[metric]]\nname = 'score'\nunit = 'points'\nregex = 'score=([0-9.]+)'",
    );
    let record =
        command.unwrap().parse(&Point::new(), &run_context(), &printed("did 1,200 mean 0.25 score=7.5")).unwrap();
    assert_eq!(record.extra["score_points"], 7.5);
    assert_eq!((record.classes[0].counted(), record.classes[0].runtime_ns), (1_200, 2_000_000_000));
    assert_eq!(record.classes[0].latency.mean_ns, Some(250_000.0));
}

#[test]
fn metrics_are_read_by_json_pointers() {
    let command = command("argv = ['x']\n[[metric]]\nname = 'v'\nunit = 'count'\npointer = '/a/1'").unwrap();
    let record = command.parse(&Point::new(), &run_context(), &printed("{\"a\": [1, 2.5]}")).unwrap();
    assert_eq!(record.extra["v_count"], 2.5);
    let problem = command.parse(&Point::new(), &run_context(), &printed("{}")).unwrap_err();
    assert_eq!(problem.at, "metric v");
    assert!(problem.why.contains("nothing at /a/1"), "{problem}");
}

#[test]
fn the_error_of_a_failed_command_has_its_output() {
    let outcome = Outcome { status: Some(3), stderr: b"no such disk".to_vec(), ..printed("") };
    let problem = command("argv = ['x']").unwrap().parse(&Point::new(), &run_context(), &outcome).unwrap_err();
    assert!(problem.why.contains("status 3") && problem.why.contains("no such disk"), "{problem}");
}

#[test]
fn invalid_metrics_are_refused_before_the_run() {
    let metric =
        |keys: &str| command(&format!("argv = ['x']\n[[metric]]\nname = 'a'\n{keys}")).unwrap_err().to_string();
    assert!(metric("unit = 's'").contains("either regex or pointer"));
    assert!(metric("unit = 's'\nregex = 'x'").contains("needs a group"));
    assert!(metric("unit = 'W'\nregex = '(x)'\nclass = 'read'\nfield = 'latency-p99'").contains("ns, us, ms or s"));
    assert!(metric("unit = 's'\nregex = '(x)'\nclass = 'read'").contains("require each other"));
    assert_eq!(command("argv = []").unwrap_err().at, "workload.argv");
}
