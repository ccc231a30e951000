//! The shipped drive against closed forms of queueing theory: mean waits within 2 %.
//!
//! The drives are configurations of the real code: dies, lanes or the controller alone, with service times that have closed
//! forms.

use pilotlight_sim::rng::{Purpose, Stream};
use pilotlight_sim::ssd::{Op, Request, Ssd, SsdModel};

const SERVICE_NS: f64 = 100_000.0;

fn drive(dies: u32, more: &str) -> Ssd {
    let flash = format!("[flash]\ndies = {dies}\npage_bytes = 4096\nread_ns = 100000\n{more}");
    Ssd::new(&SsdModel::parse(&format!("name = 'law'\nsource = 'closed forms'\n{flash}")).unwrap())
}

/// Mean time in the drive, in units of 100 us, of Poisson arrivals that load `servers` of 100 us each to `load`.
fn mean_time(ssd: &mut Ssd, op: Op, servers: u32, load: f64, requests: u64) -> f64 {
    let mut arrivals = Stream::new(11, Purpose::Arrivals, 0);
    let draws = Stream::new(11, Purpose::Devices, 0);
    let gap_ns = SERVICE_NS / f64::from(servers) / load;
    let (mut at, mut spent) = (0.0, 0.0);
    for index in 0..requests {
        at += arrivals.exponential(gap_ns);
        let request =
            Request { at_ns: at as u64, op, offset: 0, bytes: 4096, draw: draws.at(index), sequential: false };
        spent += (ssd.submit(&request) - request.at_ns) as f64;
    }
    spent / requests as f64 / SERVICE_NS
}

/// Mean wait of reads before their die.
fn mean_wait(mut ssd: Ssd, dies: u32, load: f64, requests: u64) -> f64 {
    let time = mean_time(&mut ssd, Op::Read, dies, load, requests);
    time - ssd.activity().die_busy_ns as f64 / requests as f64 / SERVICE_NS
}

fn assert_within_2_percent(what: &str, measured: f64, law: f64) {
    assert!((measured / law - 1.0).abs() < 0.02, "{what}: mean {measured:.4}, the law says {law:.4} service times");
}

/// Pollaczek and Khinchine: the mean wait of M/G/1 in mean service times, for a squared coefficient of variation.
fn m_g_1(load: f64, variation: f64) -> f64 {
    load * (1.0 + variation) / 2.0 / (1.0 - load)
}

/// Erlang C: the mean wait of M/M/c in mean service times.
fn m_m_c(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let lost = (1..=servers).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    let waiting = lost / (1.0 - load * (1.0 - lost));
    waiting / (f64::from(servers) * (1.0 - load))
}

#[test]
fn m_m_1() {
    let measured = mean_wait(drive(1, "service = 'exponential'"), 1, 0.7, 4_000_000);
    assert_within_2_percent("M/M/1 at 70 %", measured, m_g_1(0.7, 1.0));
}

#[test]
fn m_d_1() {
    let measured = mean_wait(drive(1, ""), 1, 0.8, 4_000_000);
    assert_within_2_percent("M/D/1 at 80 %", measured, m_g_1(0.8, 0.0));
}

#[test]
fn m_g_1_with_uniform_service() {
    let measured = mean_wait(drive(1, "read_spread_ns = 90000"), 1, 0.7, 4_000_000);
    assert_within_2_percent("M/G/1 at 70 %", measured, m_g_1(0.7, 0.81 / 3.0));
}

#[test]
fn m_m_c_with_eight_servers() {
    let measured = mean_wait(drive(8, "service = 'exponential'\nplacement = 'first-free'"), 8, 0.8, 4_000_000);
    assert_within_2_percent("M/M/8 at 80 %", measured, m_m_c(8, 0.8));
}

#[test]
fn random_dies_are_one_m_d_1_each() {
    let measured = mean_wait(drive(32, ""), 32, 0.8, 4_000_000);
    assert_within_2_percent("32 x M/D/1 at 80 %", measured, m_g_1(0.8, 0.0));
}

#[test]
fn write_lanes_are_one_m_d_1_each() {
    let mut ssd = drive(1, "[front]\nwrite_lanes = 8\nwrite_lane_ns = 100000");
    let measured = mean_time(&mut ssd, Op::Write, 8, 0.8, 4_000_000) - 1.0;
    assert_within_2_percent("8 lanes of M/D/1 at 80 %", measured, m_g_1(0.8, 0.0));
}

#[test]
fn a_limit_on_commands_is_one_m_d_1() {
    let mut ssd = drive(1, "[front]\nmax_iops = 10000");
    let measured = mean_time(&mut ssd, Op::Write, 1, 0.8, 4_000_000) - 1.0;
    assert_within_2_percent("a controller of 10,000 IOPS at 80 %", measured, m_g_1(0.8, 0.0));
}
