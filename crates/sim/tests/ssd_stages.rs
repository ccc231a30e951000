//! What a drive's stages do: nothing where they limit nothing, and else what their figures say.

use pilotlight_sim::rng::{Purpose, Stream};
use pilotlight_sim::ssd::{Doing, Op, Request, Span, Ssd, SsdModel};
use proptest::prelude::*;

const DIES: &str = "name = 'p'\nsource = 'p'\n[front]\nread_latency_ns = 9000\nwrite_latency_ns = 7000\nmax_iops = 900000\n\
    write_lanes = 3\nwrite_lane_ns = 5000\nqueues = 2\nreorder_window = 3\n\
    [flash]\ndies = 8\npage_bytes = 4096\nread_ns = 50000\nread_spread_ns = 10000\n\
    [program]\nprogram_ns = 400000\nprogram_spread_ns = 100000\nprogram_bytes = 16384\nbuffer_bytes = 524288\n\
    suspend_ns = 20000\n[gc]\nspare_permille = 90\npool_bytes = 655360\nstart_permille = 1000\nduty_permille = 300\n";

fn drive(text: &str) -> Ssd {
    Ssd::new(&SsdModel::parse(text).unwrap())
}

/// A drive of one die that takes no time by itself.
fn bare(stages: &str) -> Ssd {
    drive(&format!("name = 'b'\nsource = 'b'\n[flash]\ndies = 1\npage_bytes = 4096\nread_ns = 0\n{stages}"))
}

fn request(at_ns: u64, op: Op, bytes: u32) -> Request {
    Request { at_ns, op, offset: 0, bytes, draw: at_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15), sequential: false }
}

fn loads() -> impl Strategy<Value = Vec<Request>> {
    let gap = prop_oneof![4 => 0..20_000_u64, 1 => 0..3_000_000_u64];
    prop::collection::vec((gap, any::<bool>(), 0..1_u64 << 30, 1..100_000_u32, any::<u64>()), 1..150).prop_map(|all| {
        let mut at_ns = 0;
        let one = |(gap, reads, offset, bytes, draw)| {
            at_ns += gap;
            Request { at_ns, op: if reads { Op::Read } else { Op::Write }, offset, bytes, draw, sequential: false }
        };
        all.into_iter().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stages_that_limit_nothing_change_nothing(load in loads(), placement in prop_oneof![Just("random"), Just("striped"), Just("first-free")]) {
        let plain = DIES.replace("read_spread_ns", &format!("placement = '{placement}'\nread_spread_ns"));
        let staged = format!("{plain}[[state]]\nname = 'ps0'\n");
        let (mut plain, mut staged) = (drive(&plain), drive(&staged));
        for request in &load {
            prop_assert_eq!(plain.submit(request), staged.submit(request), "{:?}", request);
        }
        prop_assert_eq!(plain.activity(), staged.activity());
    }

    /// However often somebody asks, what the drive did when left alone is the same, and never two things at once.
    #[test]
    fn spans_do_not_depend_on_who_asks(load in loads(), asks in prop::collection::vec(0..200_u64, 0..150)) {
        let stages = "[cache]\nbuffer_bytes = 65536\ncache_bytes = 1000000\nfull_bytes_per_s = 300000000\nmap_reads = false\n\
            gc_after_ns = 50000\n[rest]\nafter_ns = 300000\nwake_ns = 90000\nasleep_after_ns = 700000\n\
            [[state]]\nname = 'ps0'\nwrite_bytes_per_s = 1000000000\ngc_bytes_per_s = 400000000\n";
        let run = |asks: &[u64]| {
            let mut drive = bare(stages);
            drive.set_autonomous(true);
            let mut spans = Vec::new();
            for (index, request) in load.iter().enumerate() {
                let before_ns = load[index.saturating_sub(1)].at_ns;
                let between = asks.get(index).map_or(0, |share| (request.at_ns - before_ns) * share / 200);
                if asks.len() > index {
                    drive.advance(before_ns + between);
                }
                drive.submit(request);
                spans.extend(drive.spans());
            }
            spans
        };
        let (asked, alone) = (run(&asks), run(&[]));
        prop_assert!(asked.windows(2).all(|two| two[0].to_ns <= two[1].from_ns), "{asked:?}");
        let sum = |spans: &[Span], doing| -> u64 {
            spans.iter().filter(|span| span.doing == doing).map(|span| span.to_ns - span.from_ns).sum()
        };
        for doing in [Doing::Moves, Doing::Rests, Doing::Sleeps] {
            prop_assert_eq!(sum(&asked, doing), sum(&alone, doing), "{:?}", doing);
        }
    }
}

#[test]
fn a_duty_cycle_lets_commands_begin_in_its_part_of_a_period() {
    let mut drive =
        bare("[[state]]\nname = 'ps0'\n[[state]]\nname = 'ps1'\nduty = { period_ns = 1000000, on_ns = 250000 }\n");
    assert_eq!(drive.submit(&request(600_000, Op::Read, 4096)), 600_000);
    drive.set_state(1);
    assert_eq!(drive.submit(&request(1_249_999, Op::Read, 4096)), 1_249_999);
    assert_eq!(drive.submit(&request(1_250_000, Op::Read, 4096)), 2_000_000);
    drive.set_state(7);
    assert_eq!(drive.submit(&request(2_600_000, Op::Read, 4096)), 3_000_000, "there is no such state");
}

#[test]
fn writes_that_programs_hold_up_are_limited_by_the_state_too() {
    let text =
        format!("{DIES}[[state]]\nname = 'ps0'\nwrite_bytes_per_s = 50000000\n").replace("max_iops = 900000\n", "");
    let mut drive = drive(&text);
    let write = |draw: u64| Request { draw: draw << 32 | draw, ..request(0, Op::Write, 4096) };
    let last = (0..2_000).map(|draw| drive.submit(&write(draw))).last().unwrap();
    let rate = 2_000.0 * 4096.0 / (last as f64 / 1e9);
    assert!((rate / 50e6 - 1.0).abs() < 0.1, "{rate}");
}

/// The p99 over the median of reads that nobody else is in the way of.
fn tail(stages: &str) -> f64 {
    let profile = include_str!("../../../profiles/ssd/pm1743.toml");
    let mut drive = drive(&format!("{profile}\n{stages}"));
    let draws = Stream::new(3, Purpose::Devices, 0);
    let mut took: Vec<u64> = (0..50_000)
        .map(|index| {
            let at_ns = index * 1_000_000;
            drive.submit(&Request { draw: draws.at(index), ..request(at_ns, Op::Read, 4096) }) - at_ns
        })
        .collect();
    took.sort_unstable();
    took[took.len() * 99 / 100] as f64 / took[took.len() / 2] as f64
}

#[test]
fn slow_pages_make_the_tail_of_a_drive_that_is_otherwise_idle() {
    let (none, few, some) = (
        tail(""),
        tail("[slow]\npages_ppm = 20000\nmean_ns = 30000"),
        tail("[slow]\npages_ppm = 30000\nmean_ns = 30000"),
    );
    assert!((1.05..1.2).contains(&none), "{none}");
    // Measured drives: 1.3 to 1.6.
    assert!((1.25..1.5).contains(&few) && (1.4..1.75).contains(&some), "{few} {some}");
    assert_eq!(tail("[slow]\npages_ppm = 0\nmean_ns = 30000"), none);
}

#[test]
fn a_wrong_stage_names_the_key() {
    let wrong = |stages: &str| {
        SsdModel::parse(&format!(
            "name = 'b'\nsource = 'b'\n[flash]\ndies = 1\npage_bytes = 4096\nread_ns = 0\n{stages}"
        ))
        .unwrap_err()
        .to_string()
    };
    assert!(wrong("[slow]\npages_ppm = 1000001\nmean_ns = 1").contains("slow.pages_ppm"));
    assert!(wrong("[controller]\ncommand_ns = 1\nbytes_per_s = 1\nmost_bytes = 0").contains("controller.most_bytes"));
    assert!(wrong("[[state]]\nname = 's'\nduty = { period_ns = 5, on_ns = 6 }").contains("state.duty.on_ns"));
}
