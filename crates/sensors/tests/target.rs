//! The sensor of a target's counters, against a socket with the responses of a target.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pilotlight_sensors::target::Options;
use pilotlight_sensors::{Config, Missing, Roots, Sensor, Why};

/// Answers each request with the next of these, then stops.
fn serve(folder: &Path, connections: Vec<Vec<String>>) -> PathBuf {
    let socket = folder.join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for answers in connections {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                let request = lines.next().unwrap().unwrap();
                assert_eq!(request, r#"{"version":1,"command":"status"}"#);
                writeln!(&stream, "{answer}").unwrap();
            }
        }
        thread::sleep(Duration::from_secs(30));
    });
    socket
}

fn open(socket: &Path, with_workload: bool) -> Result<Box<dyn Sensor>, Missing> {
    patient(socket, with_workload, 20_000)
}

fn patient(socket: &Path, with_workload: bool, timeout_ms: u64) -> Result<Box<dyn Sensor>, Missing> {
    let options = Options { socket: socket.into(), with_workload, timeout_ms: Some(timeout_ms) };
    Config::Target(options).open(&Roots::default())
}

/// A status over `window_ms` of two reactors, one of which sleeps.
fn status(window_ms: u64, iops: f64, busy: f64, wakes: u64, scheduled: &str) -> String {
    let reactor = |state: &str, asleep: f64| {
        format!(
            r#"{{"state":"{state}","busy_percent":{busy},"idle_percent":10.0,"asleep_percent":{{"monitor-wait":{asleep},"software-wait":0.5}},"scheduled_percent":{scheduled}}}"#
        )
    };
    let (none, window_ns) = (r#"{"in_window":0,"since_start":9}"#, window_ms * 1_000_000);
    format!(
        r#"{{"version":1,"ok":{{"format":1,"server":{{"uptime_ns":1}},"window_ns":{window_ns},"io":{{"connections":3,"iops":{iops},"read_bytes_per_s":{},"written_bytes_per_s":0.0}},"reactors":[{},{}],"commands":{{"moves":{none},"sleeps":{none},"wakes":{{"in_window":{wakes},"since_start":99}},"refusals":{none}}}}}}}"#,
        iops * 4096.0,
        reactor("awake", 0.0),
        reactor("software-wait", 20.0),
    )
}

/// Readings by the names of their domains.
fn read(sensor: &mut dyn Sensor) -> Vec<(String, i64)> {
    let mut readings = Vec::new();
    sensor.read(&mut readings).unwrap();
    let name = |domain: usize| sensor.domains()[domain].name.clone();
    readings.into_iter().map(|reading| (name(reading.domain), reading.value)).collect()
}

fn of(readings: &[(String, i64)], name: &str) -> i64 {
    readings.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("{name}: {readings:?}")).1
}

#[test]
fn windows_add_up_without_the_first_and_over_a_reconnect() {
    let folder = tempfile::tempdir().unwrap();
    let first = vec![
        status(60_000, 1e6, 90.0, 7, "50.0"), // since the target's start
        status(500, 2_000.0, 40.0, 3, "50.0"),
        status(100, 30.0, 1.5, 2, "100.0"),
    ];
    let again = vec![status(61_000, 1e6, 90.0, 7, "50.0"), status(200, 10.0, 0.0, 1, "0.0")];
    let mut target = open(&serve(folder.path(), vec![first, again]), false).unwrap();
    // Opening sends one request.
    let one = read(&mut *target);
    assert_eq!([of(&one, "requests"), of(&one, "read"), of(&one, "wakes")], [1_000, 4_096_000, 3]);
    // 2 x 40 % of 500 ms; 2 x 10 %; 20 % and twice 0.5 %; 2 x 50 %
    assert_eq!([of(&one, "busy"), of(&one, "polling-idle")], [400_000_000, 100_000_000]);
    assert_eq!([of(&one, "asleep"), of(&one, "scheduled")], [105_000_000, 500_000_000]);
    assert_eq!([of(&one, "reactors"), of(&one, "reactors-awake"), of(&one, "connections")], [2, 1, 3]);
    let two = read(&mut *target);
    assert_eq!([of(&two, "requests"), of(&two, "busy"), of(&two, "wakes")], [1_003, 403_000_000, 5]);
    let lost = target.read(&mut Vec::new()).unwrap_err().to_string();
    assert!(lost.contains("control.sock"), "{lost}");
    let back = read(&mut *target);
    assert_eq!([of(&back, "requests"), of(&back, "wakes")], [1_003, 5], "what came meanwhile is not known");
    assert_eq!(of(&read(&mut *target), "requests"), 1_005);
}

#[test]
fn values_missing_in_the_kernel_are_omitted() {
    let folder = tempfile::tempdir().unwrap();
    let answers = vec![status(1, 0.0, 0.0, 0, "null"), status(1, 0.0, 0.0, 0, "null")];
    let mut target = open(&serve(folder.path(), vec![answers]), false).unwrap();
    assert!(read(&mut *target).iter().all(|(name, _)| name != "scheduled"));
}

#[test]
fn a_target_started_by_the_workload_is_queried_only_when_read() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let mut target = open(&socket, true).unwrap();
    let refused = target.read(&mut Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("the target at") && refused.contains("control.sock"), "{refused}");
    serve(folder.path(), vec![vec![status(5_000, 10.0, 0.0, 0, "1.0")]]);
    assert_eq!(of(&read(&mut *target), "requests"), 0);
}

#[test]
fn what_is_missing_says_what_would_help() {
    let none = Config::by_name("target").unwrap().open(&Roots::default()).map(drop).unwrap_err();
    assert!(none.why == Why::NotConfigured && none.help.contains("socket"), "{none}");
    let folder = tempfile::tempdir().unwrap();
    let absent = open(&folder.path().join("no.sock"), false).map(drop).unwrap_err();
    assert!(absent.why == Why::Absent && absent.help.contains("with_workload"), "{absent}");
    let dead = folder.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    assert_eq!(open(&dead, false).map(drop).unwrap_err().why, Why::Unreachable);
}

#[test]
fn invalid_responses_are_reported() {
    for (answer, said) in [
        (r#"{"version":2,"ok":null}"#.to_owned(), "version 2"),
        (status(1, 0.0, 0.0, 0, "1.0").replace(r#""format":1"#, r#""format":2"#), "format 2"),
        (r#"{"version":1,"error":{"message":"go away"}}"#.to_owned(), "go away"),
        ("nonsense".to_owned(), "expected"),
        (status(1, 0.0, 0.0, 0, "1.0").replace("busy_percent", "other"), "busy_percent"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let broken = open(&serve(folder.path(), vec![vec![answer]]), false).map(drop).unwrap_err();
        assert!(broken.why == Why::Broken && broken.what.contains(said), "{broken}");
    }
    // A server that does not respond.
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s")).unwrap();
    let silent = patient(&folder.path().join("s"), false, 100).map(drop).unwrap_err();
    assert!(silent.what.contains("timed out"), "{silent}");
    drop(listener);
}
