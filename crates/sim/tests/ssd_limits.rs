//! Limits of a drive's requests: mapping units, programs, mapping reads.

use pilotlight_sim::ssd::{Op, Request, Ssd, SsdModel};

const MS: u64 = 1_000_000;

/// A drive with one controller, page reads of 50 us, and writes that stay in the buffer.
fn drive(more: &str) -> Ssd {
    let text = "name = 'd'\nsource = 'd'\n[flash]\ndies = 64\npage_bytes = 16384\nread_ns = 50000\nplacement = 'scattered'\n\
        [controller]\ncommand_ns = 1000\nbytes_per_s = 4096000000\nmost_bytes = 524288\n";
    let cache = "[cache]\nbuffer_bytes = 1048576\ncache_bytes = 1099511627776\nfull_bytes_per_s = 100000000\n\
        map_reads = false\ngc_after_ns = 10000000\n";
    let (stages, states) = more.split_once('|').unwrap();
    Ssd::new(&SsdModel::parse(&format!("{text}{stages}{cache}[[state]]\nname = 'ps0'\n{states}")).unwrap())
}

const FAST: &str = "write_bytes_per_s = 1000000000\ngc_bytes_per_s = 1000000000\n";

fn write(at_ns: u64, offset: u64, bytes: u32, sequential: bool) -> Request {
    Request { at_ns, op: Op::Write, offset, bytes, draw: at_ns ^ offset << 20, sequential }
}

/// Number of units that each of these consecutive writes reads, and its latency.
fn reads(unit_bytes: u64, writes: &[(u64, u32, bool)]) -> Vec<(u64, u64)> {
    let mut drive = drive(&format!("unit_bytes = {unit_bytes}\n|{FAST}"));
    let one = |(index, &(offset, bytes, sequential)): (usize, &(u64, u32, bool))| {
        let (before, at_ns) = (drive.activity().page_reads, (index as u64 + 1) * MS);
        let took_ns = drive.submit(&write(at_ns, offset, bytes, sequential)) - at_ns;
        (drive.activity().page_reads - before, took_ns)
    };
    writes.iter().enumerate().map(one).collect()
}

#[test]
fn a_write_of_a_part_of_a_unit_reads_it_first() {
    let writes = [(0, 4096, false), (8192, 8192, false), (0, 1024, false), (3072, 1024, false), (2048, 4096, false)];
    let found = reads(4096, &writes);
    assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    assert!(found[0].1 < 10_000 && found[2].1 > 50_000, "{found:?}");
    assert!(found[4].1 < 90_000, "two units are on two dies: {found:?}");
    assert!(reads(0, &writes).iter().all(|one| one.0 == 0 && one.1 < 10_000));
    // A request that the controller splits is one write: only its ends are partial units.
    assert_eq!(reads(4096, &[(1024, 1 << 20, false)])[0].0, 2);
}

#[test]
fn sequential_writes_read_a_unit_once() {
    let writes: Vec<(u64, u32, bool)> = (0..64).map(|at| (at * 1024, 1024, true)).collect();
    let read: Vec<u64> = reads(4096, &writes).iter().map(|one| one.0).collect();
    assert_eq!(read, [1, 0, 0, 0].repeat(16));
    let crossing: Vec<(u64, u32, bool)> = (0..4).map(|at| (at * 3072, 3072, true)).collect();
    assert_eq!(reads(4096, &crossing).iter().map(|one| one.0).collect::<Vec<_>>(), [1, 1, 1, 0]);
}

#[test]
fn random_writes_of_a_part_send_whole_units_to_flash() {
    // 20 MB/s to flash, a quarter of it for 1 KiB writes to units of 4 KiB.
    let slow = "write_bytes_per_s = 20000000\ngc_bytes_per_s = 1000000000\n";
    let mut drive = drive(&format!("unit_bytes = 4096\n|{slow}"));
    let mut at_ns = 0;
    for index in 0..10_000 {
        at_ns = drive.submit(&write(at_ns, index << 20, 1024, false));
    }
    let (quiet_ns, expected_ns) = (drive.quiet_ns(), 10_000 * 4096 * 50);
    assert!(quiet_ns.abs_diff(expected_ns) < expected_ns / 50, "{quiet_ns} {expected_ns}");
}

/// A drive of eight dies whose buffer drains at 100 MB/s, in programs of 64 KiB that take 2 ms.
fn programming(cache: &str, program: &str) -> Ssd {
    let text = format!(
        "name = 'd'\nsource = 'd'\n[flash]\ndies = 8\npage_bytes = 16384\nread_ns = 50000\nplacement = 'scattered'\n\
         [cache]\nbuffer_bytes = 67108864\ncache_bytes = 1099511627776\nfull_bytes_per_s = 100000000\ngc_after_ns = 10000000\n{cache}\n\
         [[state]]\nname = 'ps0'\nwrite_bytes_per_s = 100000000\ngc_bytes_per_s = 1000000000\n{program}"
    );
    Ssd::new(&SsdModel::parse(&text).unwrap())
}

const PROGRAM: &str = "[program]\nprogram_ns = 2000000\nprogram_bytes = 65536\nbuffer_bytes = 67108864\n";

/// Mean and maximum wait of reads, one per 0.1 ms, behind 32 MiB written at once, and the number of programs.
fn reads_behind_writes(cache: &str, program: &str) -> (u64, u64, u64) {
    let mut drive = programming(&format!("map_reads = false\n{cache}"), program);
    for at in 0..512 {
        drive.submit(&write(0, at << 16, 65_536, true));
    }
    let waits: Vec<u64> = (1..3_000_u64)
        .map(|at| {
            let (at_ns, draw) = (at * MS / 10, at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            drive.submit(&Request { at_ns, op: Op::Read, offset: 0, bytes: 16_384, draw, sequential: false }) - at_ns
        })
        .collect();
    drive.advance(1_000 * MS);
    let mean_ns = waits.iter().sum::<u64>() / waits.len() as u64;
    (mean_ns, waits.into_iter().max().unwrap(), drive.activity().host_programs)
}

#[test]
fn reads_wait_behind_programs_of_a_buffer_that_empties() {
    let (none_ns, none_longest_ns, none) = reads_behind_writes("", "");
    assert_eq!((none, none_longest_ns < MS), (0, true));
    let (mean_ns, longest_ns, programs) = reads_behind_writes("programs = true", PROGRAM);
    assert_eq!(programs, 512, "each unit once");
    // A die programs 2 of each 5.24 ms (64 KiB leave in 0.655 ms): a read waits 0.38 times 1 ms.
    assert!((300_000..600_000).contains(&(mean_ns - none_ns)), "{mean_ns} {none_ns}");
    assert!(longest_ns < 4 * MS, "behind what has begun, not behind the whole buffer: {longest_ns}");
    let suspended = format!("{PROGRAM}suspend_ns = 20000\n");
    let (suspended_ns, ..) = reads_behind_writes("programs = true", &suspended);
    assert!(suspended_ns < none_ns + 60_000, "{suspended_ns}");
}

#[test]
fn programs_do_not_depend_on_who_asks() {
    let run = |asks: bool| {
        let mut drive = programming("map_reads = false\nprograms = true", PROGRAM);
        let mut done = Vec::new();
        for at in 1..400_u64 {
            let request = Request {
                op: if at % 3 == 0 { Op::Read } else { Op::Write },
                ..write(at * MS / 3, at << 15, 40_000, false)
            };
            if asks {
                drive.advance(request.at_ns - 100_000);
            }
            done.push(drive.submit(&request));
        }
        (done, drive.activity())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn requests_with_an_uncached_mapping_read_it_first() {
    let reads = |cache: &str, op: Op, sequential: bool| {
        let mut drive = programming(cache, "");
        for at in 1..2_001_u64 {
            let draw = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            drive.submit(&Request { at_ns: at * MS, op, offset: 0, bytes: 16_384, draw, sequential });
        }
        drive.activity().page_reads
    };
    let (all, half) = ("map_reads = true\nmap_of_reads = true\n", "map_cached_ppm = 500000");
    assert_eq!((reads(all, Op::Write, false), reads(all, Op::Write, true)), (2_000, 0));
    assert_eq!((reads(all, Op::Read, false), reads("map_reads = true", Op::Read, false)), (4_000, 2_000));
    let halved = reads(&format!("{all}{half}"), Op::Write, false);
    assert!((900..1_100).contains(&halved), "{halved}");
    assert_eq!(reads(&format!("{all}map_cached_ppm = 1000000"), Op::Read, false), 2_000);
}
