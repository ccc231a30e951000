//! Sensors behind HTTP, against a server in a thread.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use pilotlight_sensors::http::Endpoint;
use pilotlight_sensors::{Config, Missing, Part, Roots, Sensor, Why, netio, redfish};

type Pages = Arc<Mutex<BTreeMap<String, String>>>;

/// A server that returns pages by path to requests with `authorization`.
fn serve(pages: &[(&str, &str)], authorization: Option<&'static str>) -> (String, Pages) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let pages: Pages = Arc::new(Mutex::new(pages.iter().map(|&(path, text)| (path.into(), text.into())).collect()));
    let shared = pages.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let shared = shared.clone();
            thread::spawn(move || answer(stream.unwrap(), &shared, authorization));
        }
    });
    (url, pages)
}

fn answer(mut stream: TcpStream, pages: &Pages, authorization: Option<&str>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let request = lines.next()?.ok()?;
        let path = request.split(' ').nth(1)?.to_owned();
        let headers: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let received = headers.iter().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("authorization").then_some(value)
        });
        let page = pages.lock().unwrap().get(&path).cloned();
        let (status, body) = match page {
            _ if authorization.is_some() && received != authorization => ("401 Unauthorized", String::new()),
            Some(page) => ("200 OK", page),
            None => ("404 Not Found", String::new()),
        };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
    }
}

fn values(sensor: &mut dyn Sensor) -> Vec<i64> {
    let mut readings = Vec::new();
    sensor.read(&mut readings).unwrap();
    readings.iter().map(|reading| reading.value).collect()
}

fn failure(sensor: &mut dyn Sensor) -> String {
    sensor.read(&mut Vec::new()).unwrap_err().to_string()
}

const NETIO: &str = r#"{"Agent": {"Model": "PowerPDU 4KS"}, "GlobalMeasure": {"Voltage": 231.1, "TotalLoad": 105},
    "Outputs": [{"ID": 1, "Name": "node3-a", "State": 1, "Load": 61, "Energy": 13346833},
                {"ID": 2, "Name": "node3-b", "State": 1, "Load": 33, "Energy": 1},
                {"ID": 3, "Name": "lamp", "State": 0}]}"#;

fn netio(url: &str, outputs: &[&str]) -> Result<Box<dyn Sensor>, Missing> {
    let endpoint = Endpoint { url: url.into(), ..Endpoint::default() };
    let outputs = outputs.iter().map(|&output| output.into()).collect();
    Config::Netio(netio::Options { endpoint, outputs }).open(&Roots::default())
}

#[test]
fn a_pdu_gives_the_outputs_that_feed_the_machine() {
    let (url, pages) = serve(&[("/netio.json", NETIO)], None);
    let mut one = netio(&url, &["node3-a"]).unwrap();
    assert_eq!((values(&mut *one), one.domains()[0].part.clone()), (vec![61_000_000], Part::System));
    // Two power supplies: their sum is the system; each is a part that is never added to it.
    let mut both = netio(&url, &["1", "node3-b"]).unwrap();
    assert_eq!(values(&mut *both), [94_000_000, 61_000_000, 33_000_000]);
    assert_eq!((both.domains()[0].part.clone(), both.domains()[1].parent), (Part::System, Some(0)));
    // Later the unit loses its load, or returns wrong values.
    let replace = |text: &str| pages.lock().unwrap().insert("/netio.json".into(), text.into());
    replace(&NETIO.replace("61", "0"));
    assert!(failure(&mut *one).contains("0 W"));
    replace("<html>");
    assert!(failure(&mut *one).contains("invalid JSON"));
    pages.lock().unwrap().clear();
    assert!(failure(&mut *one).contains("404"));
}

#[test]
fn errors_of_a_pdu_include_a_remedy() {
    let (url, _) = serve(&[("/netio.json", NETIO)], None);
    let unset = netio(&url, &[]).err().unwrap();
    assert!(unset.to_string().contains("outputs node3-a (1), node3-b (2), lamp (3)"), "{unset}");
    assert!(netio(&url, &["lamp"]).err().unwrap().to_string().contains("does not measure"));
    assert!(netio(&url, &["node4"]).err().unwrap().to_string().contains("no output node4"));
    assert_eq!(netio("", &["1"]).err().unwrap().why, Why::NotConfigured);
    let twice = netio(&url, &["1", "node3-b", "node3-a"]).err().unwrap();
    assert!(twice.why == Why::NotConfigured && twice.what.contains("1 and node3-a are the same output"), "{twice}");
    // No server listens on this port; one that is free now may be used by another test's server later.
    assert_eq!(netio("http://127.0.0.1:1", &["1"]).err().unwrap().why, Why::Unreachable);
}

#[test]
fn a_silent_unit_causes_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let endpoint = Endpoint { url, timeout_ms: Some(200), ..Endpoint::default() };
        let options = netio::Options { endpoint, outputs: vec!["1".into()] };
        let _ = sender.send(Config::Netio(options).open(&Roots::default()).map(drop));
    });
    let missing = receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits").unwrap_err();
    assert_eq!(missing.why, Why::Unreachable, "{missing}");
    drop(listener);
}

const CHASSIS: &str =
    r#"{"Members": [{"@odata.id": "/redfish/v1/Chassis/Self"}, {"@odata.id": "/redfish/v1/Chassis/Enclosure"}]}"#;
const SELF: &str = r#"{"Id": "Self", "Power": {"@odata.id": "/redfish/v1/Chassis/Self/Power"}, "Thermal": {}}"#;
const POWER: &str = r#"{"PowerControl": [{"Name": "System", "PowerConsumedWatts": 344, "PowerMetrics": {"AverageConsumedWatts": 319}}]}"#;
/// No power reading, and a broken link.
const ENCLOSURE: &str =
    r#"{"Id": "Enclosure", "EnvironmentMetrics": {"@odata.id": "/redfish/v1/Chassis/Enclosure/EnvironmentMetrics"}}"#;

fn redfish(endpoint: Endpoint, chassis: Option<&str>) -> Result<Box<dyn Sensor>, Missing> {
    Config::Redfish(redfish::Options { endpoint, chassis: chassis.map(Into::into) }).open(&Roots::default())
}

#[test]
fn redfish_finds_the_chassis_with_power() {
    let pages = [
        ("/redfish/v1/Chassis", CHASSIS),
        ("/redfish/v1/Chassis/Self", SELF),
        ("/redfish/v1/Chassis/Self/Power", POWER),
        ("/redfish/v1/Chassis/Enclosure", ENCLOSURE),
    ];
    // "user:secret" in base64.
    let (url, pages) = serve(&pages, Some("Basic dXNlcjpzZWNyZXQ="));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let endpoint =
        Endpoint { url, user: Some("user".into()), password_file: Some(file.clone()), ..Endpoint::default() };
    let mut sensor = redfish(endpoint.clone(), None).unwrap();
    assert_eq!((values(&mut *sensor), sensor.domains()[0].part.clone()), (vec![344_000_000], Part::System));
    assert_eq!(sensor.domains()[0].name, "Self");
    // The newer resource has precedence if it has a reading.
    let metrics = r#"{"PowerWatts": {"Reading": 120.5}}"#;
    pages.lock().unwrap().insert("/redfish/v1/Chassis/Enclosure/EnvironmentMetrics".into(), metrics.into());
    let mut two = redfish(endpoint.clone(), None).unwrap();
    assert_eq!(values(&mut *two), [344_000_000, 120_500_000]);
    let unknown = |domain: &pilotlight_sensors::Domain| matches!(domain.part, Part::Unknown(_));
    assert!(two.domains().iter().all(unknown), "neither is known to be all, nor to be beside a CPU");
    let mut chosen = redfish(endpoint.clone(), Some("Enclosure")).unwrap();
    assert_eq!(values(&mut *chosen), [120_500_000]);
    // A BMC that restarts returns null, which is not 0 W.
    let null = r#"{"PowerWatts": {"Reading": null}}"#;
    pages.lock().unwrap().insert("/redfish/v1/Chassis/Enclosure/EnvironmentMetrics".into(), null.into());
    assert!(failure(&mut *chosen).contains("no power above 0"));
    let zero = r#"{"PowerWatts": {"Reading": 0}}"#;
    pages.lock().unwrap().insert("/redfish/v1/Chassis/Enclosure/EnvironmentMetrics".into(), zero.into());
    assert!(failure(&mut *chosen).contains("no power above 0"), "a machine that answers draws some");
    std::fs::write(&file, "wrong\n").unwrap();
    let refused = redfish(endpoint.clone(), None).err().unwrap();
    assert!(
        refused.to_string().contains("401") && refused.to_string().contains("check user and password_file"),
        "{refused}"
    );
    let unreadable = redfish(Endpoint { password_file: Some("/no/such/file".into()), ..endpoint }, None).err().unwrap();
    assert_eq!(unreadable.why, Why::NotConfigured);
}

#[test]
fn a_chassis_that_fails_does_not_hide_the_others() {
    let metrics = "/redfish/v1/Chassis/Enclosure/EnvironmentMetrics";
    let pages = [
        ("/redfish/v1/Chassis", CHASSIS),
        ("/redfish/v1/Chassis/Self", SELF),
        ("/redfish/v1/Chassis/Self/Power", POWER),
        ("/redfish/v1/Chassis/Enclosure", ENCLOSURE),
        (metrics, r#"{"PowerWatts": {"Reading": 120.5}}"#),
    ];
    let (url, pages) = serve(&pages, None);
    let open = || redfish(Endpoint { url: url.clone(), ..Endpoint::default() }, None);
    let mut sensor = open().unwrap();
    pages.lock().unwrap().remove(metrics);
    assert_eq!(values(&mut *sensor), [344_000_000]);
    assert!(sensor.failed()[0].domain == 1 && sensor.failed()[0].why.contains("404"), "{:?}", sensor.failed());
    pages.lock().unwrap().remove("/redfish/v1/Chassis/Enclosure");
    let mut sensor = open().unwrap();
    assert_eq!(values(&mut *sensor), [344_000_000]);
    assert!(sensor.info().notes[0].contains("chassis Enclosure is not read") && sensor.info().notes[0].contains("404"));
    assert!(matches!(sensor.domains()[0].part, Part::Unknown(_)), "the other one may be what contains it");
    pages.lock().unwrap().remove("/redfish/v1/Chassis/Self");
    assert!(open().err().unwrap().what.contains("404"));
}

#[test]
fn a_bmc_without_power_is_reported() {
    let (url, _) = serve(
        &[
            ("/redfish/v1/Chassis", CHASSIS),
            ("/redfish/v1/Chassis/Self", "{}"),
            ("/redfish/v1/Chassis/Enclosure", ENCLOSURE),
        ],
        None,
    );
    let missing = redfish(Endpoint { url, ..Endpoint::default() }, None).err().unwrap();
    assert_eq!((missing.why, missing.what.as_str()), (Why::Absent, "no chassis reports power"));
}

/// Ends with the test.
#[cfg(feature = "tls")]
struct Server(std::process::Child);

#[cfg(feature = "tls")]
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `openssl s_server` that serves the files of `folder`, with its own certificate for 127.0.0.1.
#[cfg(feature = "tls")]
fn serve_https(folder: &std::path::Path) -> Option<(Server, String)> {
    use std::process::{Command, Stdio};
    let quiet = |command: &mut Command| {
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
    };
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out certificate.pem -days 2 \
                 -subj /CN=bmc -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let made = quiet(Command::new("openssl").args(words.split_whitespace()))?.wait().ok()?;
    let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
    let words = format!("s_server -WWW -accept 127.0.0.1:{port} -cert certificate.pem -key key.pem");
    let server = Server(quiet(Command::new("openssl").args(words.split_whitespace()))?);
    let up = (0..200).any(|_| {
        thread::sleep(std::time::Duration::from_millis(20));
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    (made.success() && up).then_some((server, format!("https://127.0.0.1:{port}")))
}

#[test]
#[cfg(feature = "tls")]
fn https_is_trusted_only_with_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("netio.json"), NETIO).unwrap();
    let Some((_server, url)) = serve_https(folder.path()) else {
        println!("skipped: there is no openssl that could serve https");
        return;
    };
    let open = |endpoint: Endpoint| {
        Config::Netio(netio::Options { endpoint, outputs: vec!["1".into()] }).open(&Roots::default())
    };
    let plain = Endpoint { url, ..Endpoint::default() };
    let untrusted = open(plain.clone()).err().unwrap();
    assert_eq!(untrusted.why, Why::Unreachable);
    assert!(untrusted.to_string().to_lowercase().contains("certificate"), "{untrusted}");
    let certificate = folder.path().join("certificate.pem");
    let mut trusted = open(Endpoint { ca_file: Some(certificate), ..plain.clone() }).unwrap();
    assert_eq!(values(&mut *trusted), [61_000_000]);
    assert!(open(Endpoint { insecure: true, ..plain.clone() }).is_ok());
    let missing = open(Endpoint { ca_file: Some("/no/such/file".into()), ..plain }).err().unwrap();
    assert_eq!(missing.why, Why::NotConfigured);
}
