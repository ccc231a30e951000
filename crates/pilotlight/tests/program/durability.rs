//! `load --verify --ledger` and `load --verify-only`: durability after a kill of the server or of the load.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use pilotlight_host::ledger::Ledger;
use pilotlight_host::pattern::{Content, Stamp, fill, inspect};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Server, run, spawn, text};

/// Timeout of each operation, well above the usual time.
const TIMEOUT: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;

/// A folder with a file to serve and a path for a ledger.
struct Case {
    folder: TempDir,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        File::create(folder.path().join("disk")).unwrap().set_len(BLOCKS * BLOCK as u64).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn serve(&self) -> Server {
        let (namespace, size) = (format!("file:{}", self.path("disk")), BLOCK.to_string());
        Server::start(&["--listen", "127.0.0.1:0", "--namespace", &namespace, "--block-size", &size])
    }

    fn args(&self, server: &Server, more: &str) -> Vec<String> {
        let fixed = ["load", "--yield", "--target", &server.address().to_string(), "--ledger", &self.path("ledger")];
        fixed.into_iter().chain(more.split_whitespace()).map(str::to_owned).collect()
    }

    /// Starts a load that ends only when it or the server is killed.
    fn load(&self, server: &Server, more: &str) -> Child {
        let args = self.args(server, &format!("--verify --rw randrw --rwmixread 30 --iodepth 4 --runtime 600 {more}"));
        spawn(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The ledger once it matches `wanted`.
    fn ledger_when(&self, wanted: impl Fn(&Ledger) -> bool) -> Ledger {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            // The file may still be in creation.
            if let Some(ledger) = Ledger::read(Path::new(&self.path("ledger"))).ok().filter(&wanted) {
                return ledger;
            }
            std::thread::yield_now();
        }
        panic!("the ledger never printed what was waited for");
    }

    fn verify(&self, server: &Server) -> Output {
        let args = self.args(server, "--verify-only --numjobs 2 --iodepth 4 --json");
        run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn disk(&self) -> File {
        File::options().read(true).write(true).open(self.path("disk")).unwrap()
    }

    /// Checks with a fresh server; the exit code and the report.
    fn verify_anew(&self) -> (Option<i32>, Value) {
        let output = self.verify(&self.serve());
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        (output.status.code(), report)
    }
}

/// The latest durable generation of a block; 0 for none.
fn durable(ledger: &Ledger, lba: u64) -> u32 {
    let mut floor = [0];
    ledger.min_generations(lba, &mut floor);
    floor[0]
}

fn assert_passes(case: &Case) {
    let (code, report) = case.verify_anew();
    assert_eq!((code, &report["verify"]["mismatches"]), (Some(0), &Value::from(0)), "{report:#}");
    assert_eq!(
        report["verify"]["durable_blocks"],
        Ledger::read(Path::new(&case.path("ledger"))).unwrap().settled_blocks()
    );
    assert!(report["total"]["ios"].as_u64().unwrap() > 0 && report["write"].is_null(), "{report:#}");
}

#[test]
fn blocks_after_a_kill_are_valid_and_damage_is_found() {
    for more in ["--fsync 16 --numjobs 2 --threads 2", "--fua --trim-mix 20"] {
        let case = Case::new();
        let mut server = case.serve();
        let load = case.load(&server, more);
        let all_twice = |ledger: &Ledger| (0..BLOCKS).all(|lba| durable(ledger, lba) >= 2);
        case.ledger_when(all_twice);
        server.kill();
        drop(server);
        let output = load.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert_passes(&case);
        damage(&case);
    }
}

/// Changes bytes and restores an old block, while no server runs that could cache either.
fn damage(case: &Case) {
    let (disk, ledger) = (case.disk(), Ledger::read(Path::new(&case.path("ledger"))).unwrap());
    let block = |lba: u64| {
        let mut data = vec![0; BLOCK];
        disk.read_exact_at(&mut data, lba * BLOCK as u64).unwrap();
        data
    };
    let written = |lba: &u64| matches!(inspect(&block(*lba)), Content::Whole(_));
    let lba = (0..BLOCKS).find(written).expect("a block that is not zeroes");
    let whole = block(lba);
    let mut old = vec![0; BLOCK];
    fill(&mut old, Stamp { lba, run: ledger.run(), generation: durable(&ledger, lba) - 1 });
    let mut flipped = whole.clone();
    flipped[2000] ^= 1;
    for (bad, words) in [(&flipped, "is torn"), (&old, "is stale"), (&vec![7; BLOCK], "never wrote")] {
        disk.write_all_at(bad, lba * BLOCK as u64).unwrap();
        disk.sync_all().unwrap();
        let (code, report) = case.verify_anew();
        assert_eq!((code, &report["verify"]["mismatches"]), (Some(1), &Value::from(1)), "{report:#}");
        let fault = report["faults"][0].as_str().unwrap();
        assert!(fault.contains(&format!("block {lba} ")) && fault.contains(words), "{fault}");
    }
    disk.write_all_at(&whole, lba * BLOCK as u64).unwrap();
    disk.sync_all().unwrap();
    assert_passes(case);
}

#[test]
fn the_ledger_of_a_killed_load_can_be_verified() {
    let case = Case::new();
    let server = case.serve();
    let mut load = case.load(&server, "--fsync 8");
    case.ledger_when(|ledger| ledger.settled_blocks() > BLOCKS / 2);
    load.kill().unwrap();
    load.wait().unwrap();
    let output = case.verify(&server);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let again = case.load(&server, "--fsync 8").wait_with_output().unwrap();
    assert_eq!(again.status.code(), Some(2), "a second run would overwrite what the ledger records");
    assert!(text(&again.stderr).contains("exists"), "{}", text(&again.stderr));
}
