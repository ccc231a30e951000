//! Properties of a simulated drive for any profile and load.

use pilotlight_sim::rng::{Purpose, Stream};
use pilotlight_sim::ssd::{Activity, Op, Request, Ssd, SsdModel};
use proptest::prelude::*;

/// A drive with every stage, small enough that its edges are reached.
#[derive(Clone, Debug)]
struct Drive {
    dies: u32,
    placement: &'static str,
    max_iops: u32,
    window: u32,
    lanes: u32,
    buffer_units: u32,
    suspend: bool,
    spare_permille: u32,
}

const READ_NS: u64 = 50_000;
const UNIT: u64 = 16_384;

impl Drive {
    fn model(&self) -> SsdModel {
        let suspend = if self.suspend { "suspend_ns = 20000" } else { "" };
        let text = format!(
            "name = 'p'\nsource = 'p'\n\
             [front]\nread_latency_ns = 9000\nwrite_latency_ns = 7000\nmax_iops = {}\nmax_bytes_per_s = 2000000000\n\
             queues = 3\nreorder_window = {}\nwrite_lanes = {}\nwrite_lane_ns = 5000\n\
             [flash]\ndies = {}\npage_bytes = 4096\nread_ns = {READ_NS}\nread_spread_ns = 10000\nplacement = '{}'\n\
             [program]\nprogram_ns = 400000\nprogram_spread_ns = 100000\nprogram_bytes = {UNIT}\nbuffer_bytes = {}\n\
             erase_ns = 2000000\nprograms_per_erase = 5\n{suspend}\n\
             [gc]\nspare_permille = {}\npool_bytes = 655360\nstart_permille = 1000\nduty_permille = 300\n",
            self.max_iops,
            self.window,
            self.lanes,
            self.dies,
            self.placement,
            u64::from(self.buffer_units * self.dies) * UNIT,
            self.spare_permille
        );
        SsdModel::parse(&text).unwrap()
    }
}

fn drives() -> impl Strategy<Value = Drive> {
    let front = (prop_oneof![Just(0), 1_000..1_000_000_u32], 0..8_u32, 0..4_u32);
    let placement = prop_oneof![Just("random"), Just("striped"), Just("first-free")];
    (1..9_u32, placement, front, 1..30_u32, any::<bool>(), 20..1500_u32).prop_map(
        |(dies, placement, (max_iops, window, lanes), buffer_units, suspend, spare_permille)| Drive {
            dies,
            placement,
            max_iops,
            window,
            lanes,
            buffer_units,
            suspend,
            spare_permille,
        },
    )
}

/// Requests in order of time: gaps from nothing to far longer than any service.
fn loads() -> impl Strategy<Value = Vec<Request>> {
    let gap = prop_oneof![4 => 0..20_000_u64, 2 => Just(0), 1 => 0..5_000_000_u64];
    let one = (gap, any::<bool>(), 0..1_u64 << 40, 1..300_000_u32, any::<u64>());
    prop::collection::vec(one, 1..200).prop_map(|all| {
        let mut at_ns = 0;
        all.into_iter()
            .map(|(gap, reads, offset, bytes, draw)| {
                at_ns += gap;
                Request { at_ns, op: if reads { Op::Read } else { Op::Write }, offset, bytes, draw, sequential: false }
            })
            .collect()
    })
}

fn run(model: &SsdModel, load: &[Request]) -> (Vec<u64>, Activity, u64) {
    let mut ssd = Ssd::new(model);
    let done = load.iter().map(|request| ssd.submit(request)).collect();
    (done, ssd.activity(), ssd.idle_at_ns())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_request_is_faster_than_the_minimum_latency(drive in drives(), load in loads()) {
        let model = drive.model();
        let least = Ssd::new(&model).least_latency_ns();
        prop_assert!(least >= 7000);
        for (request, done) in load.iter().zip(run(&model, &load).0) {
            prop_assert!(done >= request.at_ns + least, "{request:?} is done at {done}");
        }
    }

    #[test]
    fn equal_requests_give_equal_completions(drive in drives(), load in loads()) {
        prop_assert_eq!(run(&drive.model(), &load), run(&drive.model(), &load));
    }

    #[test]
    fn requests_are_counted_and_writes_are_programmed(drive in drives(), load in loads()) {
        let (_, activity, _) = run(&drive.model(), &load);
        let bytes = |op| load.iter().filter(|one| one.op == op).map(|one| u64::from(one.bytes)).sum::<u64>();
        let pages = |one: &Request| (one.offset + u64::from(one.bytes)).div_ceil(4096) - one.offset / 4096;
        prop_assert_eq!((activity.read_bytes, activity.written_bytes), (bytes(Op::Read), bytes(Op::Write)));
        prop_assert_eq!((activity.reads + activity.writes) as usize, load.len());
        prop_assert_eq!(activity.page_reads, load.iter().filter(|one| one.op == Op::Read).map(pages).sum::<u64>());
        prop_assert_eq!(activity.host_programs, bytes(Op::Write) / UNIT);
        let programs = activity.host_programs + activity.copy_programs;
        prop_assert!(activity.erases <= programs / 5 + u64::from(drive.dies), "{activity:?}");
        prop_assert!(5 * activity.erases + 5 * u64::from(drive.dies) >= programs, "{activity:?}");
    }

    /// The dies' busy time is the sum of their operations.
    #[test]
    fn work_is_conserved(drive in drives(), load in loads()) {
        let (_, activity, idle_at_ns) = run(&drive.model(), &load);
        let extra = if drive.suspend { 20_000 * activity.page_reads } else { 0 };
        // Upper bound of the end: all work starts after the last command, on one die.
        let last = load.last().map_or(0, |request| request.at_ns);
        let entry = 1_000_000_000_u64.checked_div(u64::from(drive.max_iops)).unwrap_or(0).max(150_000) * load.len() as u64;
        prop_assert!(idle_at_ns <= last + entry + activity.die_busy_ns + extra);
        // Lower bound: all work is distributed evenly from the first command on.
        let first = load[0].at_ns;
        prop_assert!(idle_at_ns >= first + activity.die_busy_ns / u64::from(drive.dies) || activity.die_busy_ns == 0);
    }
}

/// One die, no window: reads end in order of arrival, and the die is idle only without work.
#[test]
fn a_die_serves_in_order_and_never_rests_with_work() {
    let text = "name='d'\nsource='d'\n[flash]\ndies=1\npage_bytes=4096\nread_ns=50000\nread_spread_ns=20000";
    let mut ssd = Ssd::new(&SsdModel::parse(text).unwrap());
    let mut before = 0;
    for index in 0..1000_u64 {
        let draw = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let busy = ssd.activity().die_busy_ns;
        let at_ns = index * 45_000;
        let done = ssd.submit(&Request { at_ns, op: Op::Read, offset: 0, bytes: 4096, draw, sequential: false });
        let service = ssd.activity().die_busy_ns - busy;
        assert_eq!(done, before.max(at_ns) + service);
        before = done;
    }
}

fn heavy_writer(gc: &str) -> Ssd {
    let text = format!(
        "name='g'\nsource='g'\n[flash]\ndies=4\npage_bytes=4096\nread_ns=50000\n[program]\nprogram_ns=400000\n\
         program_bytes={UNIT}\nbuffer_bytes=262144\n{gc}"
    );
    Ssd::new(&SsdModel::parse(&text).unwrap())
}

fn write_at(ssd: &mut Ssd, at_ns: u64) -> u64 {
    ssd.submit(&Request { at_ns, op: Op::Write, offset: 0, bytes: 4096, draw: at_ns ^ 0x5555, sequential: false })
}

fn read_at(ssd: &mut Ssd, at_ns: u64, draw: u64) -> u64 {
    ssd.submit(&Request { at_ns, op: Op::Read, offset: 0, bytes: 4096, draw, sequential: false })
}

/// Writes faster than programs fill the buffer, then proceed at the rate of programs.
#[test]
fn a_full_buffer_holds_writes_back_to_the_rate_of_programs() {
    let mut ssd = heavy_writer("");
    let mut done = 0;
    for _ in 0..20_000 {
        done = write_at(&mut ssd, done.max(1)); // depth 1
    }
    let programs = 4.0 * UNIT as f64 / 400_000.0;
    let rate = ssd.activity().written_bytes as f64 / done as f64;
    assert!((rate / programs - 1.0).abs() < 0.02, "{rate} bytes/ns against {programs}");
}

/// Simultaneous writes are acknowledged at once up to the size of the buffer, and no byte more.
#[test]
fn the_buffer_holds_what_the_profile_says() {
    let mut ssd = heavy_writer("");
    let at_once = (0..100).filter(|_| write_at(&mut ssd, 0) == 0).count();
    assert_eq!(at_once * 4096, 262_144);
}

/// With a window of two a completion waits for all but the last two before it.
#[test]
fn completions_wait_for_those_a_window_earlier() {
    let text = "name='w'\nsource='w'\n[front]\nqueues=1\nreorder_window=2\n[flash]\ndies=2\npage_bytes=4096\n\
                read_ns=50000\nplacement='striped'";
    let mut ssd = Ssd::new(&SsdModel::parse(text).unwrap());
    let mut read = |die: u64| {
        ssd.submit(&Request { at_ns: 0, op: Op::Read, offset: die * 4096, bytes: 4096, draw: 0, sequential: false })
    };
    let done: Vec<u64> = [0, 0, 0, 1, 1, 1].map(&mut read).to_vec();
    assert_eq!(done, [50_000, 100_000, 150_000, 100_000, 150_000, 150_000]);
}

const GC: &str = "[gc]\nspare_permille=250\npool_bytes=3276800\nstart_permille=1000\nduty_permille=500";

/// A spare share of 25 % costs 2.5 programs per host program: random writes at two fifths of the rate.
#[test]
fn garbage_collection_slows_writes_by_the_write_amplification() {
    let mut ssd = heavy_writer(GC);
    let mut done = 0;
    for _ in 0..100_000 {
        done = write_at(&mut ssd, done.max(1));
    }
    let activity = ssd.activity();
    let amplification = 1.0 + activity.copy_programs as f64 / activity.host_programs as f64;
    assert!((amplification / 2.5 - 1.0).abs() < 0.02, "{amplification}");
}

/// After a burst of writes, reads still wait for copies, until the pool is full again.
#[test]
fn garbage_collection_continues_after_writes_and_ends() {
    let mut ssd = heavy_writer(GC);
    for index in 0..600 {
        write_at(&mut ssd, index * 50_000);
    }
    let after_writes = ssd.activity().copy_programs;
    ssd.advance(100_000_000);
    let later = ssd.activity().copy_programs;
    ssd.advance(3_600_000_000_000);
    let end = ssd.activity().copy_programs;
    assert!(after_writes < later, "{after_writes} then {later}");
    let owed = (ssd.activity().host_programs as f64 * 1.5) as u64;
    assert!(end.abs_diff(owed) <= 2, "{end} copies where {owed} are owed");
    let read = read_at(&mut ssd, 3_600_100_000_000, 7);
    assert_eq!(read, 3_600_100_050_000);
}

/// A step from overload back to a light load: the backlog drains, and latency returns to its earlier value.
#[test]
fn after_a_step_the_backlog_drains() {
    let mut ssd = heavy_writer("");
    let draw = |index: u64| index.wrapping_mul(0xd6e8_feb8_6659_fd93);
    // 4 dies of 50 us reach 80 k reads/s; load: 8 k/s, then 160 k/s for 10 ms, then 8 k/s.
    let mut slowest = |from: u64, gap: u64, count: u64, salt: u64| {
        let times = (0..count).map(|index| from + index * gap);
        times.map(|at| read_at(&mut ssd, at, draw(at + salt)) - at).max().unwrap_or(0)
    };
    let before = slowest(0, 125_000, 4_000, 1);
    let during = slowest(500_000_000, 6_250, 1_600, 2);
    let backlog_ns = 1_600 * 50_000 / 4 - 10_000_000;
    let draining = slowest(510_000_000, 125_000, 160, 3);
    let after = slowest(540_000_000, 125_000, 4_000, 4);
    assert!(during > 8_000_000 && during < 4 * backlog_ns, "{during}");
    assert!(draining <= during + 50_000, "{draining}");
    assert!(after.abs_diff(before) <= 50_000, "{before} before, {after} after");
}

/// A read during a program waits for the suspension, and the program ends later by the time of the read.
#[test]
fn a_read_suspends_a_program_and_pays_it_back() {
    let text = "name='s'\nsource='s'\n[flash]\ndies=1\npage_bytes=4096\nread_ns=50000\n[program]\nprogram_ns=400000\n\
                program_bytes=4096\nbuffer_bytes=4096\nsuspend_ns=30000";
    let mut ssd = Ssd::new(&SsdModel::parse(text).unwrap());
    assert_eq!(write_at(&mut ssd, 0), 0);
    assert_eq!(read_at(&mut ssd, 100_000, 0), 180_000);
    assert_eq!(read_at(&mut ssd, 150_000, 0), 230_000, "a second read finds the die suspended");
    assert_eq!(ssd.idle_at_ns(), 400_000 + 130_000);
    assert_eq!(write_at(&mut ssd, 300_000), 530_000, "the buffer is full until the program ends");
}

#[test]
fn large_requests_use_many_dies_and_the_interface() {
    let text = "name='l'\nsource='l'\n[front]\nmax_bytes_per_s=1000000000\n[flash]\ndies=8\npage_bytes=16384\n\
                read_ns=50000\nplacement='striped'";
    let mut ssd = Ssd::new(&SsdModel::parse(text).unwrap());
    let one = Request { at_ns: 0, op: Op::Read, offset: 0, bytes: 131_072, draw: 0, sequential: false };
    assert_eq!(ssd.submit(&one), 131_072 + 50_000);
    let next = Request { at_ns: 0, op: Op::Read, offset: 1 << 20, bytes: 262_144, draw: 0, sequential: false };
    assert_eq!(ssd.submit(&next), 131_072 + 262_144 + 100_000, "two pages on each die");
}

#[test]
fn a_wrong_profile_names_the_key() {
    let good = "name='x'\nsource='x'\n[flash]\ndies=8\npage_bytes=16384\nread_ns=50000\n";
    for (more, key) in [
        ("read_spread_ns=60000", "flash.read_spread_ns"),
        ("[program]\nprogram_ns=1\nprogram_bytes=0\nbuffer_bytes=0", "program.program_bytes"),
        ("[program]\nprogram_ns=1\nprogram_bytes=1\nbuffer_bytes=8\nerase_ns=5", "program.programs_per_erase"),
        ("[program]\nprogram_ns=1\nprogram_bytes=4\nbuffer_bytes=31", "program.buffer_bytes"),
        ("colour='red'", "colour"),
    ] {
        let error = SsdModel::parse(&format!("{good}{more}")).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn every_profile_of_the_repository_is_a_drive() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/ssd");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let model = SsdModel::parse(&std::fs::read_to_string(&path).unwrap());
        assert!(model.is_ok(), "{}: {}", path.display(), model.unwrap_err());
    }
}

/// GB/s and requests per second of simultaneous reads.
fn flood(ssd: &mut Ssd, requests: u64, bytes: u32) -> (f64, f64) {
    let read = |index: u64| {
        let draw = Stream::new(1, Purpose::Devices, 0).at(index);
        Request { at_ns: 0, op: Op::Read, offset: index * u64::from(bytes), bytes, draw, sequential: false }
    };
    let last_ns = (0..requests).map(|index| ssd.submit(&read(index))).max().unwrap_or(1) as f64;
    (requests as f64 * f64::from(bytes) / last_ns, requests as f64 / last_ns * 1e9)
}

/// The two figures that SANDMAN prints of its drives (section 1): 2,500 k random reads of 4 KiB, 14 GB/s.
#[test]
fn the_drive_of_sandman_reads_as_printed() {
    let text = include_str!("../../../profiles/ssd/pm1743.toml");
    let model = SsdModel::parse(text).unwrap();
    let (_, iops) = flood(&mut Ssd::new(&model), 1_000_000, 4096);
    assert!((iops / 2_500_000.0 - 1.0).abs() < 0.05, "{iops} reads/s");
    let (gigabytes, _) = flood(&mut Ssd::new(&model), 20_000, 131_072);
    assert!((gigabytes / 14.0 - 1.0).abs() < 0.01, "{gigabytes} GB/s");
}
