//! Requests as JSON, and the refusals of invalid ones.

use std::fs;
use std::path::Path;

use super::*;

#[expect(unreachable_pub, reason = "it is the library of the fuzz targets that exports it")]
#[path = "../../../../../fuzz/src/control.rs"]
mod control;

/// Replays the corpus of the fuzz target `control`: `fuzz/README.md`.
#[test]
fn the_corpus_passes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/control");
    let inputs = fs::read_dir(directory).expect("the corpus is part of the repository");
    let checked = inputs.map(|input| control::check(&fs::read(input.unwrap().path()).unwrap())).count();
    assert!(checked >= 20, "only {checked} inputs found");
}

#[test]
fn requests_survive_a_round_trip() {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let parameters = vec![pair("guards", "recommended"), pair("min_requests", "3")];
    let nqn = || Some("nqn".to_owned());
    let backend = "mem:1GiB".to_owned();
    let add = NamespaceAdd { nqn: nqn(), backend, block_size: Some(512), ..NamespaceAdd::default() };
    let resize = |size: Option<&str>, shrink| {
        Request::NamespaceResize(NamespaceResize { nqn: None, nsid: 7, size: size.map(str::to_owned), shrink })
    };
    let budget = GoalsRequest {
        budget: Some("300W".to_owned()),
        duration: Some("2h".to_owned()),
        domain: Some("cpu".to_owned()),
        dry_run: true,
        strict: true,
        ..GoalsRequest::default()
    };
    let tolerance = Some("500us p99".to_owned());
    let tolerance = GoalsRequest { tolerance, nsid: Some(7), ..GoalsRequest::default() };
    let hosts = || vec!["a".to_owned(), "b".to_owned()];
    for request in [
        Request::Status {},
        Request::SetPolicy(PolicyChoice { name: "sandman".to_owned(), parameters }),
        Request::SetCap(CapRequest { nsid: Some(7), max_bytes_per_s: "100MB/s".to_owned(), ..CapRequest::default() }),
        Request::SetCap(CapRequest { host: nqn(), max_bytes_per_s: "off".to_owned(), ..CapRequest::default() }),
        Request::SetPriority(PriorityRequest { host: None, nsid: Some(7), nqn: nqn(), priority: "5".to_owned() }),
        Request::SetMinimum(MinimumRequest { priority: 5, min_bytes_per_s: "100MB/s".to_owned() }),
        Request::SetBackground { class: BackgroundClass::Scrub, state: BackgroundState::Pause },
        Request::SetGoals(budget),
        Request::SetLimit(LimitRequest {
            power: "300W".to_owned(),
            until_boottime_ns: 1 << 62,
            then: "120W".to_owned(),
        }),
        Request::Counters { bottleneck: true },
        Request::SetGoals(tolerance),
        Request::NamespaceList { nqn: None },
        Request::NamespaceAdd(add),
        Request::NamespaceRemove { nqn: None, nsid: 7 },
        Request::HostList { nqn: None },
        Request::HostAdd(HostAdd { nqn: nqn(), host: "h".to_owned(), only: true }),
        Request::HostRemove(HostRemove { nqn: None, host: "h".to_owned(), allow_any: false }),
        Request::ConfigSave(SaveRequest { to: Some("/a".to_owned()), force: true }),
        Request::Connections {},
        Request::Disconnect(DisconnectRequest { host: "h".to_owned(), nqn: nqn() }),
        Request::NamespaceShow(NamespaceShow { nsid: 7, all: true, ..NamespaceShow::default() }),
        Request::NamespaceShow(NamespaceShow { nsid: 7, hosts: hosts(), only: true, ..NamespaceShow::default() }),
        Request::NamespaceShow(NamespaceShow { nsid: 7, hosts: hosts(), ..NamespaceShow::default() }),
        Request::NamespaceHide(NamespaceHide { nqn: None, nsid: 7, hosts: hosts() }),
        resize(Some("2GiB"), true),
        Request::ListenerList {},
        Request::ListenerAdd { address: "a".to_owned(), security: ListenerSecurity::Tls },
        Request::ListenerRemove { address: "a".to_owned() },
        Request::SubsystemList {},
        Request::PathList {},
        Request::PathSet { address: "a".to_owned(), state: "change".to_owned(), group: Some(2) },
        Request::SubsystemAdd(SubsystemAdd { nqn: "n".to_owned(), hosts: hosts(), ..SubsystemAdd::default() }),
        Request::SubsystemRemove { nqn: "n".to_owned() },
        Request::SubsystemListen { nqn: "n".to_owned(), listen: hosts() },
        resize(None, false),
    ] {
        let line = request.to_line();
        assert_eq!(Request::parse(line.as_bytes()), Ok(request), "{line}");
    }
}

#[test]
fn refusals_name_the_field() {
    for (line, field, expected) in [
        (r#"{"version":1,"command":"status","x":1}"#, "x", "unknown field `x`"),
        (r#"{"version":2,"command":"status"}"#, "version", "version 1, not 2"),
        (r#"{"version":-1,"command":"status"}"#, "version", "version 1, not -1"),
        (r#"{"command":"status"}"#, "version", "missing field `version`"),
        (r#"{"version":1}"#, "command", "missing field `command`"),
        (r#"{"version":1,"command":"stats"}"#, "command", "unknown command `stats`, expected one of `status`"),
        (r#"{"version":1,"command":["status"]}"#, "command", "invalid type: sequence, expected a string"),
        (r#"{"version":1,"command":"set-policy"}"#, "policy", "missing field `policy`"),
        (r#"{"version":1,"command":"set-policy","policy":null}"#, "policy", "invalid type: null"),
        (r#"{"version":1,"command":"set-policy","policy":"a","parameters":"b"}"#, "parameters", "expected a sequence"),
        (
            r#"{"version":1,"command":"set-policy","policy":"a","parameters":["b=c",1]}"#,
            "parameters[1]",
            "integer `1`, expected a string",
        ),
        (r#"{"version":1,"command":"set-policy","policy":"a","parameters":["b"]}"#, "parameters[0]", "write KEY=VALUE"),
        (r#"{"version":1,"command":"namespace-add","nsid":1.5,"backend":"mem:1GiB"}"#, "nsid", "floating point `1.5`"),
        (r#"{"version":1,"command":"namespace-add","nsdi":1,"backend":"mem:1GiB"}"#, "nsdi", "unknown field `nsdi`"),
        (r#"{"version":1,"command":"namespace-add","nsid":1}"#, "backend", "missing field `backend`"),
        (r#"{"version":1,"command":"host-add"}"#, "host", "missing"),
        (r#"{"version":1,"command":"namespace-show","nsid":1}"#, "hosts", "no host is named"),
        (r#"{"version":1,"command":"namespace-show","nsid":1,"all":true,"only":true}"#, "only", "together with"),
        (r#"{"version":1,"command":"namespace-hide","nsid":1,"hosts":[]}"#, "hosts", "no host is named"),
        (r#"{"version":1,"command":"set-goals"}"#, "budget", "missing field `budget` or `tolerance`"),
        (r#"{"version":1,"command":"set-goals","budget":300}"#, "budget", "expected a string"),
        (r#"{"version":1,"command":"set-goals","budget":"off","nsid":1}"#, "nsid", "needs `tolerance`"),
        (r#"{"version":1,"command":"set-cap","nsid":1}"#, "max_bytes_per_s", "missing"),
        (r#"{"version":1,"command":"set-cap","max_bytes_per_s":"off"}"#, "nsid", "missing"),
        (
            r#"{"version":1,"command":"set-cap","host":"h","nsid":1,"max_bytes_per_s":"off"}"#,
            "nsid",
            "together with `host`",
        ),
        (r#"{"version":1,"command":"namespace-remove","nqn":7}"#, "nqn", "expected a string"),
        (r#"{"version":1,"command":"namespace-remove"}"#, "nsid", "missing field `nsid`"),
        (r#"{"version":1,"command":"namespace-resize","nsid":1,"size":5}"#, "size", "expected a string"),
        (r#"{"version":1,"command":"namespace-resize","nsid":1,"shrink":1}"#, "shrink", "expected a boolean"),
        (r#"{"version":1,"command":"namespace-remove","nsid":99999999999999999999}"#, "nsid", "expected i64"),
    ] {
        let refusal = Request::parse(line.as_bytes()).unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some(field), "{line}: {refusal:?}");
        assert!(refusal.message.contains(expected), "{line}: {refusal:?}");
    }
}

#[test]
fn lines_that_are_not_json_objects_are_refused() {
    for (line, expected) in
        [("", "invalid JSON"), ("status", "invalid JSON"), ("[]", "is a JSON object"), ("7", "is a JSON object")]
    {
        let refusal = Request::parse(line.as_bytes()).unwrap_err();
        assert!(refusal.field.is_none() && refusal.message.contains(expected), "{line}: {refusal:?}");
    }
}
