//! Files that hosts cannot change.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use pilotlight_host::{Buffers, HostError, QueueSpec};
use pilotlight_nvme::command::opcode::io::{READ, WRITE};
use pilotlight_nvme::{Sqe, Status};

use crate::process::{Server, text};

const BLOCK: usize = 4096;
const QUEUE: QueueSpec = QueueSpec { qid: 1, depth: 4, max_io: BLOCK as u32, buffers: Buffers::PerCommand };

/// Two servers at once, which a file that is written cannot have.
#[test]
fn servers_share_a_file_that_they_do_not_write() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("image");
    let content: Vec<u8> = (0..16 * BLOCK).map(|at| (at / 100) as u8).collect();
    fs::write(&path, &content).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let namespace = format!("file:{}?read-only", path.display());
    let servers =
        [0, 1].map(|_| Server::start(&["--listen=127.0.0.1:0", "--block-size=4096", "--namespace", &namespace]));
    for server in &servers {
        let mut controller = server.connect();
        assert_eq!(controller.identify(0, 1).unwrap()[99], 1, "NSATTR: write protected");
        let mut queue = controller.open_queue(&QUEUE).unwrap();
        let mut block = [0; BLOCK];
        queue.execute("Read", Sqe::block_io(READ, 1, 3, 1), &[], &mut block).unwrap();
        assert_eq!(block, content[3 * BLOCK..4 * BLOCK]);
        let written = queue.execute("Write", Sqe::block_io(WRITE, 1, 3, 1), &[1; BLOCK], &mut []);
        assert!(matches!(written, Err(HostError::Status { status, .. }) if status == Status::WRITE_PROTECTED.dnr()));
        assert_eq!(server.request(&["namespace", "list"])["namespaces"][0]["backend"], namespace);
    }
    assert_eq!(fs::read(&path).unwrap(), content);
    let other = Server::start(&["--listen=127.0.0.1:0", "--namespace=mem:1MiB"]);
    let refused = other.admin(&["namespace", "add", &format!("file:{}", path.display())]);
    assert!(text(&refused.stderr).contains("locked by another program"), "{refused:?}");
}
