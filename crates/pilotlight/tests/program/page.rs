//! The live page over HTTP: access, data, changes, and constant memory.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::process::{Server, run, text};

/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server with a page.
struct Page {
    server: Server,
    /// Without the slash at its end.
    url: String,
    token: String,
}

/// A response.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    /// Reads it to its end; of an endless stream of events, only the head.
    fn read(stream: impl std::io::Read) -> Self {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "no answer: {head}");
        }
        let mut body = String::new();
        if !head.contains("text/event-stream") {
            stream.read_to_string(&mut body).unwrap();
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.trim_end().to_owned(), body }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}\n{}", self.head, self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let of = |line: &'_ str| -> Option<String> { Some(line.split_once(": ")?.0.to_ascii_lowercase()) };
        let line = self.head.lines().find(|line| of(line).as_deref() == Some(name))?;
        line.split_once(": ").map(|(_, value)| value)
    }
}

impl Page {
    fn start(args: &[&str]) -> Self {
        let at = if args.contains(&"--page") { &[][..] } else { &["--page", "0"] };
        let all = [&["--listen", "127.0.0.1:0", "--namespace", "mem:16MiB"], at, args].concat();
        let server = Server::start(&all);
        let message = server.request(&["page"]);
        let url = message["address"].as_str().unwrap().trim_end_matches('/').to_owned();
        Self { server, url, token: message["token"].as_str().unwrap().to_owned() }
    }

    fn host(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.host()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Sends a request with these lines in its head.
    fn send(&self, first: &str, lines: &[&str], body: &str) -> Answer {
        let mut stream = self.connect();
        write!(stream, "{}", request(first, lines, body)).unwrap();
        Answer::read(stream)
    }

    fn get(&self, path: &str, cookie: &str) -> Answer {
        let host = format!("Host: {}", self.host());
        self.send(&format!("GET {path}"), &[&host, &format!("Cookie: {cookie}")], "")
    }

    fn post(&self, path: &str, cookie: &str, body: &Value) -> Answer {
        let (host, origin) = (format!("Host: {}", self.host()), format!("Origin: {}", self.url));
        let lines = [&host, &origin, "Content-Type: application/json", &format!("Cookie: {cookie}")];
        self.send(&format!("POST {path}"), &lines, &body.to_string())
    }

    /// The cookie of a new session.
    fn login(&self) -> String {
        let answer = self.post("/login", "", &json!({ "token": self.token }));
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    /// A stream of events.
    fn events(&self, cookie: &str) -> Events<TcpStream> {
        let mut stream = self.connect();
        let (host, cookie) = (format!("Host: {}", self.host()), format!("Cookie: {cookie}"));
        write!(stream, "{}", request("GET /events", &[&host, &cookie], "")).unwrap();
        Events(BufReader::new(stream))
    }
}

/// Polls until the condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for {what}");
    }
}

fn request(first: &str, lines: &[&str], body: &str) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{first} HTTP/1.1\r\nConnection: close\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

struct Events<S>(BufReader<S>);

impl<S: std::io::Read> Events<S> {
    /// The next event: its name and its data.
    fn next(&mut self) -> Option<(String, String)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // sizes of chunks, the head and `retry:` begin with none of these
            if let Some(rest) = line.strip_prefix("event: ") {
                rest.trim_end().clone_into(&mut name);
            } else if let Some(rest) = line.strip_prefix("data: ") {
                return Some((name, rest.trim_end().to_owned()));
            }
        }
    }

    fn next_named(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().expect("the stream continues");
            if name == wanted {
                return serde_json::from_str(&data).unwrap();
            }
        }
    }
}

#[test]
fn the_page_is_off_by_default() {
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB"]);
    assert!(server.message()["page"].is_null());
    let output = server.admin(&["page"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--page 9809"), "{output:?}");
    assert!(!server.socket().with_extension("page-token").exists());
}

#[test]
fn without_a_login_nothing_is_disclosed() {
    let page = Page::start(&[]);
    let token_file = page.server.socket().with_extension("page-token");
    assert_eq!(fs::metadata(&token_file).unwrap().permissions().mode() & 0o7777, 0o600);
    for cookie in ["", "pilotlight=x", &format!("{}=", page.login().split('=').next().unwrap())] {
        let answer = page.get("/", cookie);
        assert!(answer.status == 200 && answer.body.contains("Log in") && !answer.body.contains("Budget"));
        assert_eq!(page.get("/events", cookie).status, 401);
        assert_eq!(page.get("/session", cookie).json()["open"], false);
        let change = json!({ "version": 1, "command": "set-policy", "policy": "static" });
        assert_eq!(page.post("/change", cookie, &change).status, 401);
    }
    let wrong = page.post("/login", "", &json!({ "token": "0".repeat(64) }));
    assert!(wrong.status == 403 && wrong.header("set-cookie").is_none(), "{}", wrong.body);
    assert_eq!(page.get(&format!("/?token={}", page.token), "").header("set-cookie"), None, "no token in an URL");
    assert_eq!(page.server.request(&["status"])["policy"]["name"], "sandman");
    let mut server = page.server;
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    assert!(!token_file.exists());
}

#[test]
fn a_session_is_a_strict_http_only_cookie_and_ends_at_logout() {
    let page = Page::start(&[]);
    let answer = page.post("/login", "", &json!({ "token": page.token }));
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
    assert!(!cookie.contains(&page.token));
    let cookie = cookie.split(';').next().unwrap();
    let answer = page.get("/", cookie);
    assert!(answer.body.contains("Power budget"), "{}", answer.body);
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    let mut events = page.events(cookie);
    assert_eq!(events.next_named("sample")["policy"]["name"], "sandman");
    assert_eq!(page.post("/logout", cookie, &json!({})).status, 200);
    assert!(page.get("/", cookie).body.contains("Log in"));
    until("the end of the stream", || events.next().is_none());
}

#[test]
fn other_hosts_origins_and_content_types_are_refused() {
    let page = Page::start(&[]);
    let cookie = format!("Cookie: {}", page.login());
    let host = format!("Host: {}", page.host());
    let get = |path: &str, lines: &[&str]| page.send(&format!("GET {path}"), &[lines, &[&cookie]].concat(), "").status;
    assert_eq!(get("/", &["Host: evil.example.com"]), 421);
    assert_eq!(get("/events", &["Host: evil.example.com:80"]), 421);
    assert_eq!(get("/events", &[&host, "Origin: http://evil.example.com"]), 403);
    assert_eq!(get("/events", &[&host, "Sec-Fetch-Site: cross-site"]), 403);
    let body = json!({ "version": 1, "command": "set-policy", "policy": "static" }).to_string();
    let post = |path: &str, lines: &[&str]| {
        page.send(&format!("POST {path}"), &[&[host.as_str(), &cookie], lines].concat(), &body).status
    };
    const JSON: &str = "Content-Type: application/json";
    for path in ["/change", "/login", "/logout"] {
        assert_eq!(post(path, &[JSON]), 403, "{path} without an origin");
        assert_eq!(post(path, &[JSON, "Origin: http://localhost:1"]), 403, "{path} from another port");
        assert_eq!(post(path, &[&format!("Origin: {}", page.url), "Content-Type: text/plain"]), 415, "{path}");
    }
    assert_eq!(page.server.request(&["status"])["policy"]["name"], "sandman");
    let long = json!({ "token": "x".repeat(64 * 1024) });
    assert_eq!(page.post("/login", "", &long).status, 413);
    for _ in 0..10 {
        assert_eq!(page.post("/login", "", &json!({ "token": "wrong" })).status, 403);
    }
    let late = page.post("/login", "", &json!({ "token": "wrong" }));
    assert!(late.status == 429 && late.header("retry-after").is_some(), "{}", late.body);
    page.login();
}

#[test]
fn a_change_over_the_page_is_applied_and_logged_with_its_peer() {
    let page = Page::start(&["--sensor", "modelled"]);
    let cookie = page.login();
    let mut events = page.events(&cookie);
    assert_eq!(events.next_named("sample")["goals"]["budget_uw"], Value::Null);
    let change = |body: &Value| page.post("/change", &cookie, body).json();
    let answer = change(&json!({ "version": 1, "command": "set-goals", "budget": "300W" }));
    assert_eq!(answer["ok"]["budget_uw"], 300_000_000, "{answer}");
    let line = page.server.expect_log("budget was changed over the page");
    for part in ["by=\"page\"", "peer=127.0.0.1:", "old=off", "new=300W"] {
        assert!(line.contains(part), "{line}");
    }
    until("a sample with the budget", || events.next_named("sample")["goals"]["budget_uw"] == 300_000_000);
    let refused = change(&json!({ "version": 1, "command": "set-goals", "budget": "much" }));
    assert!(refused["error"]["message"].is_string(), "{refused}");
    page.server.expect_log("page request refused");
    assert_eq!(page.server.request(&["status"])["goals"]["budget_uw"], 300_000_000);
}

#[test]
fn the_page_accepts_only_the_commands_of_its_forms() {
    let page = Page::start(&["--sensor", "modelled"]);
    let cookie = page.login();
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved.toml");
    let before = page.server.request(&["namespace", "list"]);
    let change = |fields: Value| {
        let mut body = json!({ "version": 1 });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        page.post("/change", &cookie, &body).json()
    };
    let host = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    for fields in [
        json!({ "command": "status" }),
        json!({ "command": "health" }),
        json!({ "command": "config-save", "to": saved }),
        json!({ "command": "host-list" }),
        json!({ "command": "host-add", "host": host }),
        json!({ "command": "host-remove", "host": host, "allow_any": true }),
        json!({ "command": "connections" }),
        json!({ "command": "disconnect", "host": host }),
        json!({ "command": "namespace-list" }),
        json!({ "command": "namespace-add", "backend": "mem:1MiB" }),
        json!({ "command": "namespace-remove", "nsid": 1 }),
        json!({ "command": "namespace-resize", "nsid": 1, "size": "32MiB" }),
        json!({ "command": "namespace-show", "nsid": 1, "all": true }),
        json!({ "command": "namespace-hide", "nsid": 1, "hosts": [host] }),
    ] {
        let refused = change(fields.clone());
        assert_eq!(refused["error"]["field"], "command", "{fields}: {refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("the page sets"), "{fields}: the command itself is known: {refused}");
    }
    assert!(!saved.exists());
    assert_eq!(page.server.request(&["namespace", "list"]), before);
    for fields in [
        json!({ "command": "set-policy", "policy": "static" }),
        json!({ "command": "set-cap", "nsid": 1, "max_bytes_per_s": "100MB/s" }),
        json!({ "command": "set-priority", "nsid": 1, "priority": "7" }),
        json!({ "command": "set-minimum", "priority": 7, "min_bytes_per_s": "1MB/s" }),
    ] {
        let done = change(fields.clone());
        assert!(done["ok"].is_object(), "{fields}: {done}");
    }
}

#[test]
fn history_survives_a_reload_and_the_number_of_readers_is_limited() {
    let page = Page::start(&["--page-tick", "20", "--sensor", "modelled"]);
    let cookie = page.login();
    let first = page.events(&cookie).next_named("point");
    let again = page.events(&cookie).next_named("history");
    assert!(again["points"].as_array().unwrap().contains(&first), "{again}");
    let mut readers: Vec<_> = (0..32).map(|_| page.events(&cookie)).collect();
    let starts: Vec<u64> =
        readers.iter_mut().map(|reader| reader.next_named("sample")["unix_ms"].as_u64().unwrap()).collect();
    assert!(starts.iter().all(|&ms| ms > 0));
    let places = || page.get("/session", &cookie).json()["places"].clone();
    assert_eq!(places(), 0);
    let more = page.get("/events", &cookie);
    assert!(more.status == 503 && more.body.contains("close one"), "{}", more.body);
    readers.clear();
    until("all readers to be closed", || places() == 32);
}

#[test]
fn a_configured_token_and_a_unix_socket_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, token) = (dir.path().join("page.sock"), dir.path().join("token"));
    fs::write(&token, "operator-0123456789abcdef-fedcba9876543210\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let at = format!("unix:{}", socket.display());
    let page = Page::start(&["--page", &at, "--page-token-file", token.to_str().unwrap()]);
    assert_eq!((page.url.as_str(), page.token.as_str()), (at.as_str(), "operator-0123456789abcdef-fedcba9876543210"));
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o7777, 0o600);
    let mut stream = UnixStream::connect(&socket).unwrap();
    let lines = ["Host: localhost:9809", "Origin: http://localhost:9809", "Content-Type: application/json"];
    write!(stream, "{}", request("POST /login", &lines, &json!({ "token": page.token }).to_string())).unwrap();
    assert_eq!(Answer::read(stream).status, 200);
    page.server.expect_log("peer=unix socket, uid");
    let mut server = page.server;
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    assert!(!socket.exists() && token.exists());
}

#[test]
fn errors_for_an_address_in_use_and_a_readable_token_name_a_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let token = dir.path().join("token");
    fs::write(&token, "0123456789abcdef-fedcba9876543210").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let serve = |args: &[&str]| {
        let all = [&["serve", "--listen", "127.0.0.1:0", "--admin-socket", socket.to_str().unwrap()], args].concat();
        let output = run(&all);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(serve(&["--page", &port]).contains("--page"));
    let open = ["--page", "0", "--page-token-file", token.to_str().unwrap()];
    assert!(serve(&open).contains("chmod 600"));
    let checked = run(&[&["serve", "--check", "--admin-socket", socket.to_str().unwrap()], &open[..]].concat());
    assert_eq!(checked.status.code(), Some(2));
    assert!(text(&checked.stderr).contains("chmod 600"), "{}", text(&checked.stderr));
}

#[test]
fn the_event_stream_does_not_wake_a_sleeping_server() {
    const SAMPLES: u64 = 100;
    let page = Page::start(&["--page-tick", "10", "--metrics", "0"]);
    let line = page.server.expect_log("metrics: http://");
    let metrics = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let wake_ups = || {
        let mut stream = TcpStream::connect(metrics).unwrap();
        write!(stream, "{}", request("GET /metrics", &["Host: localhost"], "")).unwrap();
        let lines = Answer::read(stream).body;
        let of_wakes = lines.lines().filter(|line| line.starts_with("pilotlight_wake_ups_total"));
        of_wakes.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    let mut events = page.events(&page.login());
    until("the server to sleep", || events.next_named("sample")["cores"][0]["state"] == "server-sleep");
    let before = wake_ups();
    (0..SAMPLES).for_each(|_| drop(events.next_named("sample")));
    let woken = wake_ups() - before;
    assert!(woken < SAMPLES / 10, "{woken} wake-ups in {SAMPLES} samples");
}

/// Memory of a process that is in use, in bytes.
fn resident(pid: &Value) -> u64 {
    let status = fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status"))).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// A tenth of a day of updates at one per second, or PILOTLIGHT_PAGE_UPDATES; also one reconnect per 8.64 updates, and readers that stop
/// reading.
#[test]
#[ignore = "slow: .ci/run test runs it"]
fn memory_stays_flat_over_updates_reconnects_and_stalled_readers() {
    /// Memory that the allocator may keep. One sample for each update, or 1.2 kB for each reconnect, would be more.
    const SLACK: u64 = 1 << 20;
    const STALLED: usize = 16;
    let updates = std::env::var("PILOTLIGHT_PAGE_UPDATES").map_or(8_640, |text| text.parse().unwrap());
    let reconnects = updates * 10_000 / 86_400;
    let page = Page::start(&["--page-tick", "0", "--sensor", "modelled"]);
    let pid = page.server.request(&["status"])["server"]["pid"].clone();
    let cookie = page.login();
    let mut events = page.events(&cookie);
    let stalled: Vec<_> = (0..STALLED).map(|_| page.events(&cookie)).collect(); // never read
    let (mut seen, mut made, mut after_a_tenth) = (0, 0, 0);
    let started = Instant::now();
    while seen < updates {
        let (name, _) = events.next().expect("the stream continues");
        seen += u64::from(name == "sample");
        while made < reconnects && made * updates < seen * reconnects {
            if page.events(&cookie).next().is_none() {
                break; // the server has not yet detected that the earlier ones are closed
            }
            made += 1;
        }
        if after_a_tenth == 0 && seen * 10 >= updates {
            after_a_tenth = resident(&pid);
        }
    }
    let at_the_end = resident(&pid);
    drop(stalled);
    eprintln!(
        "{seen} updates and {made} reconnects in {:.1} s: {} kB after a tenth, {} kB at the end",
        started.elapsed().as_secs_f64(),
        after_a_tenth / 1024,
        at_the_end / 1024
    );
    assert!(at_the_end < after_a_tenth + SLACK, "{after_a_tenth} bytes after a tenth, {at_the_end} at the end");
}
