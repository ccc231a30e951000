//! Background work over real connections: damaged blocks are reported, a verified load is not disturbed, requests have
//! priority, a pause and a rate of zero take effect, and freed ranges are trimmed.

#[path = "support/servers.rs"]
mod servers;

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pilotlight_host::load::{LoadSpec, run};
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, QueueSpec};
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::{Server, ServerConfig};
use pilotlight_plant::{Command, Kind, KnobId, Next, Policy, Quantity, Scope, Start, Unsupported, Wants};
use pilotlight_storage::background::control::{BackgroundConfig, Class, Scrubbed};
use pilotlight_storage::background::sums::format::Pass;
use pilotlight_storage::background::upkeep::UpkeepStats;

const NQN: &str = "nqn.2026-01.test:background";
const TIMEOUT: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const BYTES: u64 = 8 << 20;

/// Without a rate limit.
fn fast() -> BackgroundConfig {
    BackgroundConfig { scrub_bytes_per_s: 10_000_000_000, ..BackgroundConfig::default() }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// A server with the file `disk` of `folder`, on two reactors that share CPUs.
fn server(folder: &Path, kind: &str, background: BackgroundConfig) -> Server {
    let backend = format!("{kind}file:{}?size=8MiB", folder.join("disk").display()).parse().expect("valid");
    let namespaces = vec![servers::namespace(1, backend)];
    let subsystem = servers::subsystem(NQN, namespaces);
    let config = ServerConfig { io_threads: 2, background, ..servers::config(vec![subsystem]) };
    servers::start(config, 2)
}

fn stop(server: Server) {
    server.stop(TIMEOUT).expect("the server stops in time");
}

fn queue(server: &Server) -> (Controller, Connection) {
    let controller = Controller::connect(ConnectOptions::new(server.local_addrs()[0], NQN)).expect("a controller");
    let spec = QueueSpec { qid: 1, depth: 8, max_io: 1 << 17, buffers: Buffers::PerCommand };
    let queue = controller.open_queue(&spec).expect("an I/O queue");
    (controller, queue)
}

/// Reads a block; the status if it fails.
fn read(queue: &mut Connection, lba: u64) -> Result<Vec<u8>, Status> {
    let mut data = vec![0; BLOCK];
    let cid = queue.submit(Sqe::block_io(io::READ, 1, lba, 1), &[], BLOCK as u32).expect("a read");
    let completed = queue.wait(cid, "a read", &mut data).expect("an answer");
    if completed.status == Status::SUCCESS { Ok(data) } else { Err(completed.status.code()) }
}

fn write(queue: &mut Connection, lba: u64, data: &[u8]) {
    let blocks = (data.len() / BLOCK) as u32;
    queue.execute("a write", Sqe::block_io(io::WRITE, 1, lba, blocks), data, &mut []).expect("it is written");
}

fn stats(server: &Server) -> UpkeepStats {
    server.stats().upkeeps.first().expect("a namespace with background work").clone()
}

fn eventually(server: &Server, what: &str, holds: impl Fn(&UpkeepStats) -> bool) -> UpkeepStats {
    let until = Instant::now() + TIMEOUT;
    loop {
        let now = stats(server);
        if holds(&now) {
            return now;
        }
        assert!(Instant::now() < until, "{what}: {now:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Serves until every range has a checksum.
fn sum_all(folder: &Path) {
    let server = server(folder, "checked:", fast());
    let (controller, mut queue) = queue(&server);
    for lba in (0..64).step_by(16) {
        write(&mut queue, lba, &vec![lba as u8 + 1; 16 * BLOCK]);
    }
    drop((queue, controller));
    eventually(&server, "summed", |now| now.dirty_bytes == 0 && now.scrubbed_bytes == now.bytes);
    stop(server);
}

/// Flips bits of a block without a server, as a failing medium would.
fn damage(folder: &Path, lba: u64) {
    let file = File::options().read(true).write(true).open(folder.join("disk")).expect("a file");
    let mut data = [0; 8];
    file.read_exact_at(&mut data, lba * BLOCK as u64 + 100).expect("it is read");
    file.write_all_at(&data.map(|byte| byte ^ 1), lba * BLOCK as u64 + 100).expect("it is written");
    file.sync_all().expect("it is synced");
}

/// Replaces the record of the last pass in the checksum file.
fn note_pass(folder: &Path, pass: Pass) {
    use pilotlight_storage::background::sums::file::{SumsFile, open_file};
    let storage = open_file(&folder.join("disk.sums")).expect("the file of checksums");
    let (file, _) = SumsFile::open(Box::new(storage), BYTES).expect("it opens");
    file.note(pass, true).expect("it is written");
}

/// Makes the next server begin a pass.
fn forget_pass(folder: &Path) {
    note_pass(folder, Pass::default());
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn reads_of_a_damaged_block_fail_until_it_is_written() {
    let folder = folder();
    sum_all(folder.path());
    damage(folder.path(), 20);
    forget_pass(folder.path());
    let server = server(folder.path(), "checked:", fast());
    let found = eventually(&server, "a pass", |now| now.passes == 1);
    assert_eq!((found.mismatches, found.bad_blocks, found.read_errors), (1, 1, 0));
    let (_controller, mut queue) = queue(&server);
    assert_eq!(read(&mut queue, 20).expect_err("it is bad"), Status::UNRECOVERED_READ);
    assert_eq!(read(&mut queue, 21).expect("others are read"), vec![17; BLOCK]);
    let failures = server.stats().failures;
    assert_eq!(failures[0].counts[0].commands, 1, "{failures:?}");
    // A write to a neighbour computes the checksum of the range again, but does not repair the block.
    write(&mut queue, 21, &vec![9; BLOCK]);
    eventually(&server, "summed", |now| now.dirty_bytes == 0);
    assert_eq!(read(&mut queue, 20).expect_err("it is bad"), Status::UNRECOVERED_READ);
    write(&mut queue, 20, &vec![8; BLOCK]);
    assert_eq!(read(&mut queue, 20).expect("it is written again"), vec![8; BLOCK]);
    eventually(&server, "summed", |now| now.dirty_bytes == 0 && now.bad_blocks == 0);
    drop((queue, _controller));
    stop(server);
}

#[test]
fn a_bad_block_stays_bad_after_a_restart_until_it_is_written() {
    let folder = folder();
    sum_all(folder.path());
    damage(folder.path(), 20);
    forget_pass(folder.path());
    let found = server(folder.path(), "checked:", fast());
    eventually(&found, "found", |now| now.bad_blocks == 1);
    stop(found);
    let idle = BackgroundConfig { scrub: Scrubbed::Off, ..fast() };
    for is_written in [false, true] {
        let again = server(folder.path(), "checked:", idle.clone());
        let (controller, mut queue) = queue(&again);
        assert_eq!(read(&mut queue, 20).expect_err("it is bad"), Status::UNRECOVERED_READ);
        assert_eq!(read(&mut queue, 21).expect("others are read"), vec![17; BLOCK]);
        if is_written {
            write(&mut queue, 20, &vec![8; BLOCK]);
        } else {
            write(&mut queue, 22, &vec![9; BLOCK]); // makes its range dirty
        }
        drop((queue, controller));
        stop(again);
    }
    let again = server(folder.path(), "checked:", fast());
    let (controller, mut queue) = queue(&again);
    assert_eq!(read(&mut queue, 20).expect("it was written"), vec![8; BLOCK]);
    let after = eventually(&again, "summed", |now| now.dirty_bytes == 0);
    assert_eq!((after.bad_blocks, after.mismatches), (0, 0));
    drop((queue, controller));
    stop(again);
}

#[test]
fn damage_in_a_dirty_range_is_found() {
    let folder = folder();
    sum_all(folder.path());
    let server = server(folder.path(), "checked:", fast());
    damage(folder.path(), 33);
    let (_controller, mut queue) = queue(&server);
    write(&mut queue, 34, &vec![9; BLOCK]);
    let found = eventually(&server, "summed", |now| now.mismatches > 0);
    assert_eq!((found.mismatches, found.bad_blocks), (1, 1));
    assert_eq!(read(&mut queue, 33).expect_err("it is bad"), Status::UNRECOVERED_READ);
    drop((queue, _controller));
    stop(server);
}

fn verified_load(server: &Server, nsid: u32) {
    let options = ConnectOptions::new(server.local_addrs()[0], NQN);
    let spec = LoadSpec {
        nsid,
        read_percent: 50,
        verify: true,
        depth: 8,
        jobs: 2,
        ios: Some(1000),
        yield_when_idle: true,
        timeout_ms: TIMEOUT.as_millis() as u64,
        ..LoadSpec::default()
    };
    let report = run(&options, &spec, &AtomicBool::new(false), &mut |_| {}).expect("the run ends well");
    assert!(report.is_clean(), "{:?}", report.faults);
}

#[test]
fn a_verified_load_and_scrubbing_do_not_disturb_each_other() {
    for kind in ["checked:", "checked,trim:", "trim:", ""] {
        let folder = folder();
        let server = server(folder.path(), kind, BackgroundConfig { scrub: Scrubbed::All, ..fast() });
        (0..2).for_each(|_| verified_load(&server, 1));
        let done = eventually(&server, "a pass", |now| now.passes > 0 && now.dirty_bytes == 0);
        assert_eq!((done.mismatches, done.read_errors, done.bad_blocks), (0, 0, 0), "{kind}");
        stop(server);
    }
}

/// Sets both rates.
struct Rate(u64);

impl Policy for Rate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let capabilities = start.capabilities;
        let backlogs = capabilities.sources.iter().filter(|source| source.quantity == Quantity::BacklogBytes);
        assert_eq!(
            backlogs.map(|source| source.scope).collect::<Vec<_>>(),
            [Scope::Background(0), Scope::Background(1)]
        );
        let rates = capabilities.knobs.iter().zip(0..).filter(|(knob, _)| knob.kind == Kind::RatePpm);
        out.extend(rates.map(|(_, at)| Command::Set { knob: KnobId(at), value: self.0 }));
        Ok(Next::NEVER)
    }
}

#[test]
fn the_rates_of_a_policy_end_with_it() {
    let folder = folder();
    let server = server(folder.path(), "checked,trim:", fast());
    let rates = || server.stats().background.iter().map(|class| class.rate_ppm).collect::<Vec<_>>();
    server.set_policy(Box::new(Rate(0))).expect("a policy");
    eventually(&server, "a rate of zero", |_| rates().iter().all(|&ppm| ppm == 0));
    server.set_policy(Box::new(Rate(500_000))).expect("a policy");
    eventually(&server, "half the rate", |_| rates().iter().all(|&ppm| ppm == 500_000));
    eventually(&server, "a pass", |now| now.passes > 0);
    stop(server);
}

/// The second namespace is added with a pass that began more than 30 days ago, when the rate is already 0.
#[test]
fn an_overdue_pass_runs_although_a_policy_sets_a_rate_of_zero() {
    let (first, second) = (folder(), folder());
    sum_all(second.path());
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date").as_secs();
    note_pass(second.path(), Pass { began_s: now_s - 31 * 86_400, position: 0 });
    let server = server(first.path(), "checked:", fast());
    server.set_policy(Box::new(Rate(0))).expect("a policy");
    let rates = || server.stats().background.iter().map(|class| class.rate_ppm).collect::<Vec<_>>();
    eventually(&server, "a rate of zero", |_| rates().iter().all(|&ppm| ppm == 0));
    let backend = format!("checked:file:{}?size=8MiB", second.path().join("disk").display()).parse().expect("valid");
    let overdue = servers::namespace(2, backend);
    server.add_namespace(NQN, &overdue).expect("it is added");
    let done = || server.stats().upkeeps.iter().any(|now| now.nsid == 2 && now.passes == 1 && now.read_bytes >= BYTES);
    eventually(&server, "a pass", |_| done());
    assert_eq!(rates()[0], 0);
    stop(server);
}

#[test]
fn no_background_io_starts_while_a_request_is_in_progress() {
    let folder = folder();
    let server = server(folder.path(), "checked:", fast());
    server.set_paused(Class::Scrub, true);
    let backend = "delay:3s-3s:mem:1MiB".parse().expect("valid");
    let slow = servers::namespace(2, backend);
    server.add_namespace(NQN, &slow).expect("it is added");
    let (_controller, mut queue) = queue(&server);
    let long = queue.submit(Sqe::block_io(io::READ, 2, 0, 1), &[], BLOCK as u32).expect("a read");
    let began = Instant::now();
    read(&mut queue, 0).expect("answered after the other has been taken");
    // background I/O that had started before the pause has ended once two readings agree
    let before = eventually(&server, "rest", |now| stats(&server).read_bytes == now.read_bytes);
    server.set_paused(Class::Scrub, false);
    for lba in 0..500 {
        read(&mut queue, lba).expect("it is read");
    }
    let after = stats(&server);
    if began.elapsed() < Duration::from_secs(3) {
        assert_eq!(after.read_bytes, before.read_bytes, "a request is in progress");
    }
    queue.wait(long, "the slow read", &mut vec![0; BLOCK]).expect("an answer");
    eventually(&server, "a pass", |now| now.passes == 1);
    drop((queue, _controller));
    stop(server);
}

#[test]
fn freed_ranges_are_trimmed_in_the_background() {
    let folder = folder();
    let server = server(folder.path(), "trim:", fast());
    let taken = || std::fs::metadata(folder.path().join("disk")).expect("a file").blocks() * 512;
    server.set_paused(Class::Trim, true);
    let (_controller, mut queue) = queue(&server);
    (0..8).for_each(|at| write(&mut queue, at * 32, &vec![7; 32 * BLOCK]));
    let zeroes = Sqe::new(io::WRITE_ZEROES, 1).with_cdw(12, 255 | 1 << 25); // deallocate
    queue.execute("write zeroes", zeroes, &[], &mut []).expect("it is done");
    let freed = stats(&server);
    if !freed.trims {
        return; // this file system does not support it
    }
    assert_eq!((freed.freed_bytes, freed.trimmed_bytes), (1 << 20, 0));
    assert_eq!(read(&mut queue, 100).expect("it is read"), vec![0; BLOCK]);
    let before = taken();
    write(&mut queue, 16, &vec![5; BLOCK]);
    server.set_paused(Class::Trim, false);
    eventually(&server, "trimmed", |now| now.freed_bytes == 0 && now.trimmed_bytes == 15 << 16);
    assert!(taken() + (15 << 16) <= before, "space is freed: {} of {before} bytes remain", taken());
    assert_eq!(read(&mut queue, 16).expect("it is read"), vec![5; BLOCK], "later writes are kept");
    assert_eq!(read(&mut queue, 17).expect("it is read"), vec![0; BLOCK]);
    drop((queue, _controller));
    stop(server);
}
