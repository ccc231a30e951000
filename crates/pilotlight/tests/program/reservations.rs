//! A reservation with Persist Through Power Loss outlives a server that is killed right after the command.

use std::fs;

use pilotlight_host::{Buffers, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io::{RESERVATION_ACQUIRE, RESERVATION_REGISTER, RESERVATION_REPORT};

use crate::process::Server;

const QUEUE: QueueSpec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };

/// RTYPE, number of entries, and PTPLS.
fn report(server: &Server) -> (u8, u8, u8) {
    let controller = server.connect();
    let mut queue = controller.open_queue(&QUEUE).unwrap();
    let mut data = [0; 128];
    let sqe = Sqe::new(RESERVATION_REPORT, 1).with_cdw(10, 31).with_cdw(11, 1);
    queue.execute("Report", sqe, &[], &mut data).unwrap();
    (data[4], data[5], data[9])
}

#[test]
fn a_reservation_outlives_a_killed_server() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let start = || {
        let state = folder.path().to_str().unwrap();
        Server::start_in(&["--listen", "127.0.0.1:0", "--namespace", "mem:1MiB"], &[("STATE_DIRECTORY", state)])
    };
    let mut server = start();
    let controller = server.connect();
    let mut queue = controller.open_queue(&QUEUE).unwrap();
    let keys = [[0; 8], [7, 0, 0, 0, 0, 0, 0, 0]];
    let register = Sqe::new(RESERVATION_REGISTER, 1).with_cdw(10, 3 << 30);
    queue.execute("Register", register, &keys.concat(), &mut []).unwrap();
    let acquire = Sqe::new(RESERVATION_ACQUIRE, 1).with_cdw(10, 4 << 8);
    queue.execute("Acquire", acquire, &[keys[1], keys[0]].concat(), &mut []).unwrap();
    server.kill();
    drop((queue, controller));
    assert_eq!(fs::read_dir(folder.path().join("reservations")).unwrap().count(), 1);
    let server = start();
    assert_eq!(report(&server), (4, 1, 1));
}
