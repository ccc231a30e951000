//! What the hosts of a round do.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvme::{Sqe, Status};

pub(super) const NQN: &str = "nqn.2024-05.com.example:soak";
const BLOCK: usize = 4096;
const QUEUE: QueueSpec = QueueSpec { qid: 1, depth: 16, max_io: 65_536, buffers: Buffers::PerCommand };
/// RREGA, RACQA and RRELA; Exclusive Access is type 2.
const REGISTER: u32 = 0;
const UNREGISTER: u32 = 1;
const ACQUIRE: u32 = 2 << 8;
const PREEMPT_AND_ABORT: u32 = ACQUIRE | 2;
const RELEASE: u32 = 2 << 8;

/// The hosts, and what they connect to.
pub(super) struct Hosts {
    pub(super) listen: [SocketAddr; 2],
    /// The file of namespace 3.
    pub(super) disk: PathBuf,
}

/// A write and a read of one block of a namespace.
fn use_queue(queue: &mut Connection, nsid: u32) {
    queue.execute("Write", Sqe::block_io(io::WRITE, nsid, 1, 1), &[7; BLOCK], &mut []).unwrap();
    queue.execute("Read", Sqe::block_io(io::READ, nsid, 1, 1), &[], &mut [0; BLOCK]).unwrap();
}

fn status_of(result: Result<u64, HostError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(HostError::Status { status, .. }) => status,
        Err(error) => panic!("{error}"),
    }
}

impl Hosts {
    pub(super) fn options(&self, number: u8) -> ConnectOptions {
        let hostnqn = format!("nqn.2024-05.com.example:host-{number}");
        ConnectOptions { hostid: [number + 1; 16], hostnqn, ..ConnectOptions::new(self.listen[0], NQN) }
    }

    fn connect(&self, number: u8) -> (Controller, Connection) {
        let controller = Controller::connect(self.options(number)).unwrap();
        let queue = controller.open_queue(&QUEUE).unwrap();
        (controller, queue)
    }

    /// All of a round, by five threads at once. They use the first address, as the paths of the second are closed at times.
    pub(super) fn come_and_go(&self) {
        thread::scope(|scope| {
            for number in 1..=4 {
                scope.spawn(move || self.live(number));
            }
            scope.spawn(|| self.reserve());
        });
    }

    fn live(&self, number: u8) {
        for at in 0..8 {
            let (mut controller, mut queue) = self.connect(number);
            use_queue(&mut queue, 2);
            if at < 4 {
                drop(queue);
                controller.disable().unwrap();
                controller.enable().unwrap();
                controller.set_queue_count(1).unwrap();
                use_queue(&mut controller.open_queue(&QUEUE).unwrap(), 2);
            }
            if at % 2 == 0 {
                controller.shutdown().unwrap();
            }
        }
        for _ in 0..2 {
            self.cut(number);
        }
        self.send_garbage();
        self.send_part();
        self.fail_commands(number);
    }

    /// Ends a connection with reads and writes in progress.
    fn cut(&self, number: u8) {
        let (_controller, mut queue) = self.connect(number);
        for lba in 0..8 {
            queue.submit(Sqe::block_io(io::READ, 2, lba * 16, 16), &[], 16 * BLOCK as u32).unwrap();
            queue.submit(Sqe::block_io(io::WRITE, 2, lba * 16, 4), &[9; 4 * BLOCK], 0).unwrap();
        }
        queue.flush().unwrap();
    }

    fn send_garbage(&self) {
        let mut stream = TcpStream::connect(self.listen[0]).unwrap();
        let _ = stream.write_all(&[0xff; 256]); // the server may have closed the connection
        let _ = stream.read_to_end(&mut Vec::new());
    }

    /// The first part of a PDU.
    fn send_part(&self) {
        let mut stream = TcpStream::connect(self.listen[0]).unwrap();
        stream.write_all(&[0, 0, 128, 0, 128]).unwrap();
    }

    /// Commands that are refused, and a read that the medium fails: another program has cut the file short.
    fn fail_commands(&self, number: u8) {
        let (_controller, mut queue) = self.connect(number);
        let beyond = Sqe::block_io(io::READ, 2, 1 << 40, 1);
        assert_eq!(status_of(queue.execute("Read", beyond, &[], &mut [0; BLOCK])), Status::LBA_OUT_OF_RANGE.dnr());
        assert_ne!(status_of(queue.execute("unknown", Sqe::new(0x7f, 2), &[], &mut [])), Status::SUCCESS);
        if number == 1 {
            let file = OpenOptions::new().write(true).open(&self.disk).unwrap();
            let bytes = file.metadata().unwrap().len();
            file.set_len(0).unwrap();
            let read = Sqe::block_io(io::READ, 3, 1, 1);
            assert_ne!(status_of(queue.execute("Read", read, &[], &mut [0; BLOCK])), Status::SUCCESS);
            file.set_len(bytes).unwrap();
            use_queue(&mut queue, 3);
        }
    }

    /// Two hosts, of which the second takes the reservation of the first, which outlives a power loss.
    fn reserve(&self) {
        let keys = |first: u64, second: u64| [first.to_le_bytes(), second.to_le_bytes()].concat();
        for _ in 0..4 {
            let (_one, mut first) = self.connect(5);
            let (_other, mut second) = self.connect(6);
            let persist = 3 << 30; // CPTPL
            let run = |queue: &mut Connection, opcode: u8, cdw10: u32, data: &[u8]| {
                status_of(queue.execute("a reservation", Sqe::new(opcode, 4).with_cdw(10, cdw10), data, &mut []))
            };
            for (queue, key) in [(&mut first, 0xa), (&mut second, 0xb)] {
                let registered = run(queue, io::RESERVATION_REGISTER, REGISTER | persist, &keys(0, key));
                assert_eq!(registered, Status::SUCCESS);
            }
            assert_eq!(run(&mut first, io::RESERVATION_ACQUIRE, ACQUIRE, &keys(0xa, 0)), Status::SUCCESS);
            assert_eq!(run(&mut second, io::RESERVATION_ACQUIRE, PREEMPT_AND_ABORT, &keys(0xb, 0xa)), Status::SUCCESS);
            assert_eq!(run(&mut second, io::RESERVATION_RELEASE, RELEASE, &keys(0xb, 0)), Status::SUCCESS);
            assert_eq!(run(&mut second, io::RESERVATION_REGISTER, UNREGISTER, &keys(0xb, 0)), Status::SUCCESS);
        }
    }
}
