//! Failed I/O: counted, displayed and logged; and a file that another process has truncated.

use std::fs::File;

use pilotlight_host::{Buffers, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode;
use serde_json::json;

use crate::process::{Server, text};

const MIB: u64 = 1 << 20;

#[test]
fn failures_beyond_a_truncated_file_are_reported_and_shrink_is_opt_in() {
    const FAILED: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    let backend = format!("file:{}", path.display());
    let server = Server::start(&["--listen", "127.0.0.1:0", "--namespace", &backend, "--block-size", "4096"]);
    let mut host = server.connect();
    host.set_queue_count(1).unwrap();
    let mut queue =
        host.open_queue(&QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand }).unwrap();
    assert_eq!(server.request(&["status"])["failures"], json!([]));
    File::options().write(true).open(&path).unwrap().set_len(4 * MIB).unwrap();
    let lba = 5 * MIB / 4096;
    for number in 0..FAILED {
        let read = Sqe::block_io(opcode::io::READ, 1, lba + number, 1);
        let error = queue.execute("a read", read, &[], &mut [0; 4096]).unwrap_err().to_string();
        assert!(error.contains("LBA Out of Range"), "{error}");
    }
    let status =
        server.status_until("the failures", |status| status["failures"][0]["commands"]["since_start"] == FAILED);
    let failed = &status["failures"][0];
    assert_eq!((&failed["nsid"], &failed["status"]), (&json!(1), &json!("LBA Out of Range")));
    assert_eq!(failed["cause"], "the file or device is shorter than the namespace");
    let printed = text(&server.admin(&["status"]).stdout);
    assert!(printed.contains("failed commands  ") && printed.contains("(100 since start)"), "{printed}");
    let line = server.expect_log("commands failed");
    for field in ["nsid=1", "status=\"LBA Out of Range\"", "shorter than the namespace", "first_lba=1280"] {
        assert!(line.contains(field), "{field}: {line}");
    }

    let refused = server.admin(&["namespace", "resize", "1"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let printed = text(&refused.stderr);
    assert!(printed.contains("holds 4MiB, less than the 8MiB") && printed.contains("--shrink"), "{printed}");
    assert_eq!(host.namespace(1).unwrap().bytes(), 8 * MIB);
    server.request(&["namespace", "resize", "1", "--shrink"]);
    assert_eq!(host.namespace(1).unwrap().bytes(), 4 * MIB);
}
