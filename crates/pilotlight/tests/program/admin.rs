//! The control socket: access, responses, and the commands `status`, `set` and `namespace`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};

use pilotlight_host::Controller;
use pilotlight_nvme::command::{Sqe, opcode::admin};
use pilotlight_nvme::feature::{NAMESPACE_CHANGED, async_event, fid};
use serde_json::{Value, json};

use crate::process::{Server, run, spawn, text};

fn small() -> Server {
    Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB"])
}

#[test]
fn only_the_owner_may_use_the_socket_and_it_is_removed_at_exit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made/a.sock");
    let args = ["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB", "--admin-socket", path.to_str().unwrap()];
    let mut server = Server::start(&args);
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(path.as_path()), mode(path.parent().unwrap())), (0o600, 0o700));
    let second = run(&[&["serve"], &args[..]].concat());
    assert_eq!(second.status.code(), Some(1));
    let message = text(&second.stderr);
    assert!(
        message.contains(path.to_str().unwrap()) && message.contains("already") && message.contains("process"),
        "{message}"
    );
    assert_eq!(server.request(&["status"])["policy"]["name"], "sandman", "the first server continues");
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn the_socket_of_a_killed_server_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let args = ["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB", "--admin-socket", path.to_str().unwrap()];
    let mut server = Server::start(&args);
    let before = fs::metadata(&path).unwrap().ino();
    server.kill();
    let refused = server.admin(&["status"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("has ended"), "{refused:?}");
    drop(server);
    let server = Server::start(&args);
    assert!(server.request(&["status"])["server"]["pid"].is_u64());
    assert_eq!(fs::metadata(&path).unwrap().uid(), fs::metadata(dir.path()).unwrap().uid());
    drop((before, server));
}

#[test]
fn without_a_server_the_error_names_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    for command in [&["status"][..], &["set", "policy", "static"], &["namespace", "list"]] {
        let output = run(&[command, &["--socket", path.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        let message = text(&output.stderr);
        assert!(message.contains("pilotlight serve") && message.contains("--socket"), "{message}");
    }
}

#[test]
fn a_response_of_another_version_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
        stream.write_all(b"{\"version\":9,\"ok\":{}}\n").unwrap();
    });
    let output = run(&["status", "--socket", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("version 9"), "{output:?}");
    other.join().unwrap();
}

#[test]
fn a_refusal_names_the_field_of_the_request() {
    let server = small();
    let mut stream = BufReader::new(UnixStream::connect(server.socket()).unwrap());
    let mut answer = |line: &str| -> Value {
        writeln!(stream.get_mut(), "{line}").unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    assert_eq!(answer(r#"{"version":1,"command":"status"}"#)["ok"]["format"], 1);
    for (line, field) in [
        ("nonsense", Value::Null),
        (r#"{"version":1,"command":"reboot"}"#, json!("command")),
        (r#"{"version":1,"command":"set-policy","policy":"sandmen"}"#, json!("policy")),
        (
            r#"{"version":1,"command":"set-policy","policy":"sandman","parameters":["z=1","windw=3"]}"#,
            json!("parameters[windw]"),
        ),
        (r#"{"version":1,"command":"namespace-add","backend":"mem:1G"}"#, json!("backend")),
        (r#"{"version":1,"command":"namespace-add","backend":"file:disk.img"}"#, json!("backend")),
        (r#"{"version":1,"command":"namespace-add","backend":"mem:1GiB","nsid":0}"#, json!("nsid")),
        (r#"{"version":1,"command":"namespace-add","backend":"mem:1GiB","nsid":1}"#, json!("nsid")),
        (r#"{"version":1,"command":"namespace-add","backend":"mem:1GiB","block_size":3}"#, json!("block_size")),
        (r#"{"version":1,"command":"namespace-add","backend":"mem:1GiB","uuid":"x"}"#, json!("uuid")),
        (r#"{"version":1,"command":"namespace-add","backend":"mem:1GiB","nqn":"x"}"#, json!("nqn")),
        (r#"{"version":1,"command":"namespace-remove","nsid":9}"#, json!("nsid")),
        (r#"{"version":1,"command":"namespace-resize","nsid":1,"size":"1MiB"}"#, json!("size")),
        (r#"{"version":1,"command":"namespace-resize","nsid":1,"size":"16777217B"}"#, json!("size")),
    ] {
        let answer = answer(line);
        assert_eq!(answer["error"]["field"], field, "{line}: {answer}");
        assert_eq!((&answer["version"], answer.get("ok")), (&json!(1), None), "{line}");
    }
    assert_eq!(answer(r#"{"version":1,"command":"namespace-list"}"#)["ok"]["namespaces"][0]["size_bytes"], 16 << 20);
}

#[test]
fn status_has_reactors_policy_and_io() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB", "--policy-set", "window=64"]);
    let host = server.connect();
    let status = server.request(&["status"]);
    assert_eq!(status["format"], 1);
    assert_eq!(status["server"]["listening"][0], server.address().to_string());
    assert_eq!(status["policy"]["name"], "sandman");
    let parameters = status["policy"]["parameters"].as_array().unwrap();
    let window = parameters.iter().find(|parameter| parameter["key"] == "window").unwrap();
    assert_eq!((&window["value"], &window["is_set"]), (&json!("64"), &json!(true)));
    assert_eq!((&status["io"]["connections"], &status["io"]["associations"]), (&json!(1), &json!(1)));
    let reactor = &status["reactors"][0];
    assert_eq!((&reactor["main"], &reactor["io_threads"]), (&json!(true), &json!([0])));
    let share = |key: &str| reactor[key].as_f64().unwrap();
    let asleep: f64 =
        reactor["asleep_percent"].as_object().unwrap().values().map(|value| value.as_f64().unwrap()).sum();
    let all = share("busy_percent") + share("idle_percent") + asleep;
    assert!((90.0..110.0).contains(&all), "time is divided completely: {all} %: {reactor}");
    let message = text(&server.admin(&["status"]).stdout);
    for words in ["policy ", "reactor ", "I/O thread ", "loops/s", "IOPS", "busy %", "since start"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(!message.contains('\x1b'), "colours, and no terminal: {message}");
    drop(host);
}

#[test]
fn watch_prints_status_until_ctrl_c() {
    let server = small();
    let socket = server.socket().to_str().unwrap();
    let mut watch = spawn(&["status", "--watch", "0.1", "--json", "--socket", socket]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let status: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(status["window_ns"].as_u64().unwrap() >= 100_000_000);
    }
    let pid = rustix::process::Pid::from_child(&watch);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}

/// Waits for the event, and for the log with its namespace.
fn wait_for_event(host: &mut Controller, nsid: u32) {
    let cid = host.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).unwrap();
    let event = host.admin().wait(cid, "an event", &mut []).unwrap();
    assert_eq!(event.result as u32, NAMESPACE_CHANGED);
    let mut list = [0; 4096];
    host.log_page(0x04, u32::MAX, 0, &mut list).unwrap();
    assert_eq!(u32::from_le_bytes([list[0], list[1], list[2], list[3]]), nsid);
}

#[test]
fn hosts_get_events_of_added_resized_and_removed_namespaces() {
    let server = small();
    let mut host = server.connect();
    host.set_feature(u32::from(fid::ASYNC_EVENT_CONFIGURATION), 0, async_event::NAMESPACE_ATTRIBUTE).unwrap();
    let added = server.request(&["namespace", "add", "mem:1MiB", "--block-size", "512"]);
    assert_eq!((&added["namespaces"][0]["nsid"], &added["namespaces"][0]["blocks"]), (&json!(2), &json!(2048)));
    wait_for_event(&mut host, 2);
    assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    server.request(&["namespace", "resize", "2", "2MiB"]);
    wait_for_event(&mut host, 2);
    assert_eq!(host.namespace(2).unwrap().bytes(), 2 << 20);
    let refused = server.admin(&["namespace", "resize", "2", "1MiB"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--shrink"), "{refused:?}");
    server.request(&["namespace", "resize", "2", "1MiB", "--shrink"]);
    wait_for_event(&mut host, 2);
    server.request(&["namespace", "remove", "2"]);
    wait_for_event(&mut host, 2);
    assert_eq!(host.active_namespaces().unwrap(), [1]);
    let list = text(&server.admin(&["namespace", "list"]).stdout);
    assert!(list.contains("mem:16MiB") && list.lines().count() == 2, "{list}");
}

#[test]
fn the_removal_of_memory_says_that_its_data_is_gone() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB", "--namespace", "mem:1MiB"]);
    let address = server.address().to_string();
    run(&["load", "--yield", "--target", &address, "--nsid", "2", "--rw", "write", "--number_ios", "8"]);
    let says = |nsid: &str| text(&server.admin(&["namespace", "remove", nsid]).stderr);
    assert_eq!(says("1"), "", "nothing was written");
    let removed = says("2");
    assert!(removed.contains("its data is gone") && removed.contains("KiB"), "{removed}");
}

#[test]
fn memory_that_cannot_be_filled_is_said_when_it_is_added_or_grows() {
    let args = ["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB", "--max-memory", "256MiB"];
    let server = Server::start(&args);
    let says = |line: &[&str]| text(&server.admin(line).stderr).contains("fail with Capacity Exceeded");
    assert!(says(&["namespace", "add", "mem:300MiB"]));
    assert!(!says(&["namespace", "resize", "2", "1MiB", "--shrink"]));
    assert!(!says(&["namespace", "add", "null:1TiB"]));
    assert!(says(&["namespace", "resize", "2", "300MiB"]));
}

#[test]
fn a_file_can_be_added_once_resized_and_removed() {
    let server = small();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk.img");
    let backend = format!("file:{}?size=1MiB", file.display());
    assert_eq!(server.request(&["namespace", "add", &backend, "--nsid", "7"])["namespaces"][0]["size_bytes"], 1 << 20);
    let again = server.admin(&["namespace", "add", &format!("file:{}", file.display())]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("already holds another namespace"), "{again:?}");
    fs::File::options().write(true).open(&file).unwrap().set_len(3 << 20).unwrap();
    let grown = server.request(&["namespace", "resize", "7"]);
    assert_eq!(grown["namespaces"][0]["size_bytes"], 3 << 20);
    assert!(grown["notes"][0].as_str().unwrap().contains("?size=1MiB"), "{grown}");
    server.request(&["namespace", "remove", "7"]);
    assert_eq!(fs::metadata(&file).unwrap().len(), 3 << 20, "the file is kept");
}

/// Whether a signal is ignored, here and therefore in the programs that this process starts.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

/// Clients end although the server hangs.
#[test]
fn clients_of_a_hung_server_end_with_ctrl_c() {
    use std::os::unix::process::ExitStatusExt as _;
    use std::time::{Duration, Instant};
    // above the usual time, and below the program's timeout
    const LIMIT: Duration = Duration::from_secs(40);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.sock");
    let listener = UnixListener::bind(&path).unwrap();
    for (signal, more) in [("INT", &[][..]), ("TERM", &[]), ("INT", &["--watch"]), ("TERM", &["--watch"])] {
        let number = if signal == "INT" { signal_hook::consts::SIGINT } else { signal_hook::consts::SIGTERM };
        if is_ignored(number) {
            println!(
                "skipped: {signal} is ignored here, as in what a shell runs in the background, and so by the program"
            );
            continue;
        }
        let mut client = crate::process::spawn(&[&["status", "--socket", path.to_str().unwrap()], more].concat());
        let (stream, _) = listener.accept().unwrap();
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        let pid = rustix::process::Pid::from_child(&client);
        rustix::process::kill_process(pid, rustix::process::Signal::from_named_raw(number).unwrap()).unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = client.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > LIMIT {
                client.kill().unwrap();
                panic!("{signal} {more:?}: still there");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.signal(), Some(number), "{signal} {more:?}: {status}");
    }
}

#[test]
fn a_bandwidth_cap_is_set_displayed_and_removed() {
    let server = Server::start(&["--listen=127.0.0.1:0", "--namespace=mem:1MiB", "--namespace=mem:1MiB"]);
    let cap = server.request(&["set", "cap", "100 MB/s", "--namespace=2"]);
    assert_eq!((&cap["nsid"], &cap["operator_bytes_per_s"]), (&json!(2), &json!(100_000_000)));
    let host = "nqn.2024-05.com.example:host";
    server.request(&["set", "cap", "50MiB/s", "--host", host]);
    let caps = server.request(&["status"])["caps"].clone();
    assert_eq!(caps.as_array().map(Vec::len), Some(2), "{caps}");
    assert_eq!((&caps[1]["host"], &caps[1]["operator_bytes_per_s"]), (&json!(host), &json!(50 << 20)));
    let printed = server.admin(&["set", "cap", "off", "--namespace=2"]);
    assert!(text(&printed.stdout).starts_with("cap of namespace 2 of nqn."), "{printed:?}");
    for (wrong, expected) in [
        (&["100", "--namespace=1"][..], "100MB/s"),
        (&["100MB/s", "--namespace=3"], "3"),
        (&["100MB/s", "--host=x"], "not an NQN"),
    ] {
        let refused = server.admin(&[&["set", "cap"], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(expected), "{refused:?}");
    }
    assert_eq!(server.request(&["status"])["caps"].as_array().map(Vec::len), Some(1));
}
