//! Support for tests of adapters: fixtures, points, and a simple runner of steps.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Outcome, Point, RunContext, Step, Target, Value, Workload};

/// A recorded output under `fixtures/`.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The outcome of a successful step with this output, started at `began_ms` since 1970, that took 100 s.
pub(crate) fn outcome(stdout: &str, began_ms: u64) -> Outcome {
    Outcome {
        status: Some(0),
        stdout: stdout.into(),
        stderr: Vec::new(),
        span_ns: (0, 100_000_000_000),
        began_wall_ns: began_ms * 1_000_000,
    }
}

/// A context with an existing scratch folder.
pub(crate) fn run_context(scratch: &Path, target: Target, ramp_s: f64, duration_s: f64) -> RunContext {
    RunContext { scratch: scratch.into(), target, ramp_s, duration_s, seed: 7 }
}

/// A point from names and values.
pub(crate) fn point<const N: usize>(knobs: [(&str, Value); N]) -> Point {
    knobs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Every point of a workload, the last knob varying fastest.
pub(crate) fn points(workload: &dyn Workload) -> Vec<Point> {
    workload.knobs().into_iter().fold(vec![Point::new()], |points, (name, values)| {
        let with = |point: &Point, value: &Value| {
            let mut point = point.clone();
            point.insert(name.clone(), value.clone());
            point
        };
        points.iter().flat_map(|point| values.iter().map(|value| with(point, value)).collect::<Vec<_>>()).collect()
    })
}

/// The arguments of a step.
pub(crate) fn words(step: &Step) -> Vec<String> {
    step.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Whether the tool is installed; prints the reason if not.
pub(crate) fn is_installed(workload: &dyn Workload) -> bool {
    match workload.tool() {
        Ok(_) => true,
        Err(missing) => {
            println!("skipped: {missing}");
            false
        }
    }
}

fn start(step: &Step, context: &RunContext) -> Child {
    for (path, text) in &step.files {
        fs::write(path, text).unwrap();
    }
    let folder = step.folder.clone().unwrap_or_else(|| context.scratch.clone());
    let mut command = Command::new(&step.argv[0]);
    command.args(&step.argv[1..]).envs(step.env.iter().cloned()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", step.argv))
}

/// Runs a step to its end.
pub(crate) fn run(step: &Step, context: &RunContext) -> Outcome {
    assert!(!step.background, "{:?}", step.argv);
    let began_wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let began = Instant::now();
    let output = start(step, context).wait_with_output().unwrap();
    let span_ns = (0, began.elapsed().as_nanos() as u64);
    Outcome { status: output.status.code(), stdout: output.stdout, stderr: output.stderr, span_ns, began_wall_ns }
}

/// Runs steps, which must succeed; returns those in the background.
pub(crate) fn run_all(steps: &[Step], context: &RunContext) -> Background {
    let mut background = Background::default();
    for step in steps {
        if step.background {
            background.0.push(start(step, context));
            step.ready.iter().for_each(|ready| wait_for(ready));
            continue;
        }
        let outcome = run(step, context);
        let output =
            || format!("{} {}", String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
        assert_eq!(outcome.status, Some(0), "{:?}: {}", step.argv, output());
    }
    background
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "timed out waiting for {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Servers of a test, stopped when dropped.
#[derive(Default)]
pub(crate) struct Background(Vec<Child>);

impl Drop for Background {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}
