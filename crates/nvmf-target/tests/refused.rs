//! What the log says of a Connect that is refused.
//!
//! Alone in its process: tracing remembers for the whole process whether anybody listens, and asks only one thread.

#[path = "waiting/host.rs"]
mod host;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use host::{Host, capsule, connect_cmd, connect_data, memory};
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData};
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::testing::{Bench, NQN};

/// What a tracing subscriber gets to hear: the fields of every event, as text.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

struct Line(String);

impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("not poisoned").push(line.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn the_log_names_the_parameter_of_a_connect_that_is_refused_and_the_host() {
    let events = Events::default();
    let lines = Arc::clone(&events.0);
    tracing::subscriber::with_default(events, || {
        let limits = Limits { max_host_queues: 2, ..Limits::default() };
        let mut bench = Bench::new(&memory(), limits, 4 << 20).expect("a bench");
        let (_admin, cntlid) = Host::admin(&mut bench, 1, 0);
        let _queue = Host::both(&mut bench, 3, false);
        let mut refused = |name: &str, command, data: &ConnectData| {
            let mut peer = Host::shaken(&mut bench, false);
            let status = peer.try_connect(&mut bench, command, data).status();
            assert!(!status.is_success());
            let line = lines.lock().expect("not poisoned").pop().unwrap_or_default();
            assert!(line.contains("Connect refused"), "{line}");
            assert!(line.contains(&format!("reason=\"{name}")), "{name} is not named in: {line}");
            assert!(line.contains("peer=127.0.0.1:1 ") && line.contains(&status.to_string()), "{line}");
        };
        let admin = connect_data(1, CNTLID_DYNAMIC);
        let io = connect_data(1, cntlid);
        let recfmt = ConnectCmd { recfmt: 1, ..connect_cmd(0, 32) };
        refused("RECFMT", recfmt, &admin);
        refused("SQSIZE", connect_cmd(0, 129), &admin);
        refused("CNTLID", connect_cmd(0, 32), &io);
        refused("CNTLID", connect_cmd(1, 32), &connect_data(1, 77));
        refused("SUBNQN", connect_cmd(0, 32), &ConnectData::new([1; 16], CNTLID_DYNAMIC, "nqn.2026-01.test:no", "h"));
        refused("HOSTNQN", connect_cmd(0, 32), &ConnectData { hostnqn: [b'x'; 256], ..admin });
        refused("HOSTNQN", connect_cmd(1, 32), &ConnectData::new([1; 16], cntlid, NQN, "nqn.2026-01.test:other"));
        refused("HOSTID", connect_cmd(1, 32), &ConnectData { hostid: [9; 16], ..io });
        refused("QID", connect_cmd(129, 32), &io);
        refused("the host has reached its limit of queues", connect_cmd(2, 32), &connect_data(3, cntlid + 1));
        let mut peer = Host::shaken(&mut bench, false);
        peer.send(&capsule(0, connect_cmd(0, 32).encode(), &[0; 1000]));
        assert!(!peer.response(&mut bench).status().is_success());
        let line = lines.lock().expect("not poisoned").pop().unwrap_or_default();
        assert!(line.contains("reason=\"SGL1: the data of Connect must be 1,024 bytes"), "{line}");
    });
}
