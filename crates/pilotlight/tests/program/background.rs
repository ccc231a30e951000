//! Scrubbing in the program: its status, pausing it, and no reports of blocks that a killed server was writing.

use std::fs::File;

use serde_json::Value;

use crate::process::{Server, run, spawn, text};

const BYTES: u64 = 4 << 20;

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        File::create(folder.path().join("disk")).unwrap().set_len(BYTES).unwrap();
        Self { folder }
    }

    /// Serves the file with checksums, scrubbed at the maximum rate.
    fn serve(&self) -> Server {
        let config = self.folder.path().join("server.toml");
        let (socket, disk) = (self.folder.path().join("socket"), self.folder.path().join("disk"));
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nsocket = {socket:?}\n\
             [background]\nscrub = \"checked\"\nscrub_rate = \"10GB/s\"\nscrub_days = 1\n\
             [[subsystem]]\nnqn = \"nqn.2024-05.com.example:disks\"\n\
             [[subsystem.namespace]]\nnsid = 1\nbackend = \"file:{}\"\nchecksums = true\ntrim = \"background\"\n",
            disk.display()
        );
        std::fs::write(&config, text).unwrap();
        Server::start(&["--config", config.to_str().unwrap()])
    }
}

fn of(status: &Value) -> &Value {
    &status["background"]["namespaces"][0]
}

#[test]
fn blocks_written_during_a_kill_cause_no_checksum_mismatch() {
    let case = Case::new();
    for round in 0..3 {
        let mut server = case.serve();
        server.status_until("some ranges summed", |status| of(status)["read_bytes"].as_u64() > Some(round << 16));
        let address = server.address().to_string();
        let args = ["load", "--yield", "--target", &address, "--rw", "randwrite", "--iodepth", "8", "--runtime", "600"];
        let load = spawn(&args);
        server.status_until("writes", |status| status["io"]["write_iops"].as_f64().unwrap_or(0.0) > 0.0);
        server.kill();
        drop(server);
        let _ = load.wait_with_output().unwrap();
    }
    let server = case.serve();
    let status = server.status_until("everything summed", |status| {
        of(status)["dirty_bytes"] == 0 && of(status)["scrubbed_bytes"] == of(status)["bytes"]
    });
    assert_eq!((&of(&status)["mismatches"], &of(&status)["bad_blocks"]), (&0.into(), &0.into()), "{status:#}");
    assert_eq!((&of(&status)["bytes"], &of(&status)["checksums"]), (&BYTES.into(), &true.into()), "{status:#}");
    let address = server.address().to_string();
    let verified =
        run(&["load", "--yield", "--target", &address, "--verify", "--rw", "randrw", "--number_ios", "2000"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stderr));
}

#[test]
fn scrubbing_is_paused_and_resumed_manually() {
    let case = Case::new();
    let server = case.serve();
    let paused = server.request(&["set", "scrub", "pause"]);
    assert_eq!(paused["classes"][0]["paused"], true, "{paused:#}");
    let printed = text(&server.admin(&["status"]).stdout);
    assert!(printed.contains("scrub                 paused; ") && printed.contains("  namespace 1"), "{printed}");
    assert_eq!(server.request(&["set", "scrub", "resume"])["classes"][0]["paused"], false);
    server.status_until("a pass", |status| of(status)["passes"].as_u64() > Some(0));
    let refused = server.admin(&["set", "scrub", "stop"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn pause_without_background_work_is_refused() {
    let server = Server::start(&["--listen", "127.0.0.1:0"]);
    let refused = server.admin(&["set", "trim", "pause"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("no namespace"), "{}", text(&refused.stderr));
}
