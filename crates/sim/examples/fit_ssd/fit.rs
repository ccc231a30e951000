//! Fit of a model to curves: searched parameters, starting values and loss.
//!
//! In three steps, each with the parameters of earlier steps fixed: reads alone, writes alone, the mix; then all together. The loss is the mean of
//! `|ln(simulated / measured)|` over points and quantiles, so that a factor of two in either direction counts equally, and one bad point of a noisy
//! measurement does not dominate.

use crate::curves::{Drive, Point};
use crate::load::latency_us;
use crate::search::{Axis, search};
use pilotlight_sim::rng::{Purpose, Stream, unit};
use pilotlight_sim::ssd::{Flash, Front, Placement, Program, Service, SsdModel};

/// Write shares that models are fitted on, in permille.
pub(crate) const FITTED: [u32; 3] = [0, 500, 1000];
const POINTS: usize = 8;
/// Simulated requests per point, during screening and at the end.
const ROUGH: usize = 20_000;
const FINE: usize = 60_000;
const SCREENED: u64 = 1_600;
const KEPT: usize = 6;
const POLISHED: usize = 2;
const ROUNDS: usize = 8;
/// Indices in `NAMES` of the parameters of reads, writes and their interference.
const READS: [usize; 5] = [0, 1, 2, 3, 15];
const WRITES: [usize; 4] = [4, 5, 6, 16];
const MIXES: [usize; 9] = [7, 8, 9, 10, 11, 12, 13, 14, 17];

/// Searched parameters, in the units of the profile.
const NAMES: [&str; 18] = [
    "read_latency_ns",
    "read_ns",
    "read_spread_ns",
    "dies",
    "write_latency_ns",
    "write_lanes",
    "write_lane_ns",
    "program_ns",
    "program_spread_share",
    "program_bytes",
    "buffer_share",
    "erase_ns",
    "programs_per_erase",
    "queues",
    "window",
    "max_iops",
    "max_write_iops",
    "suspend_ns",
];
const AXES: [Axis; 18] = [
    axis(20e3, 1e3, 100e3),
    axis(56e3, 20e3, 100e3),
    axis(9e3, 1.0, 25e3),
    axis(56.0, 8.0, 256.0),
    axis(3e3, 100.0, 20e3),
    axis(9.0, 1.0, 64.0),
    axis(14e3, 1e3, 40e3),
    axis(1.5e6, 0.2e6, 5e6),
    axis(0.4, 0.02, 1.0),
    axis(64e3, 8192.0, 600e3),
    axis(3.0, 0.02, 60.0),
    axis(3e6, 0.3e6, 12e6),
    axis(60.0, 8.0, 2000.0),
    axis(8.0, 1.0, 32.0),
    axis(900.0, 200.0, 20000.0),
    axis(1.1e6, 0.3e6, 10e6),
    axis(0.6e6, 0.2e6, 10e6),
    axis(100e3, 20e3, 1e6),
];

const fn axis(start: f64, low: f64, high: f64) -> Axis {
    Axis { start, low, high }
}

/// Points to fit, with their write share.
type Wanted = Vec<(u32, Point)>;

/// The model with these values. `suspends`: whether the last of them is used.
fn model(name: &str, values: &[f64], suspends: bool) -> SsdModel {
    let at = |wanted: &str| values[NAMES.iter().position(|name| *name == wanted).expect("one of NAMES")];
    let ns = |wanted: &str| at(wanted).round() as u64;
    let program_ns = ns("program_ns");
    let (dies, program_bytes) = (at("dies").round(), at("program_bytes").round());
    SsdModel {
        name: name.to_owned(),
        source: String::new(),
        front: Front {
            read_latency_ns: ns("read_latency_ns"),
            write_latency_ns: ns("write_latency_ns"),
            max_iops: ns("max_iops"),
            max_write_iops: ns("max_write_iops"),
            max_bytes_per_s: 0,
            queues: at("queues").round() as u32,
            reorder_window: (at("window") / at("queues").round()).round() as u32,
            write_lanes: at("write_lanes").round() as u32,
            write_lane_ns: ns("write_lane_ns"),
        },
        flash: Flash {
            dies: dies as u32,
            page_bytes: 4096,
            read_ns: ns("read_ns"),
            read_spread_ns: ns("read_spread_ns").min(ns("read_ns")),
            read_ns_per_kib: 0,
            service: Service::Uniform,
            placement: Placement::Random,
        },
        program: Some(Program {
            program_ns,
            program_spread_ns: (at("program_spread_share") * program_ns as f64) as u64,
            program_bytes: program_bytes as u32,
            buffer_bytes: ((1.0 + at("buffer_share")) * dies * program_bytes).ceil() as u64,
            erase_ns: ns("erase_ns"),
            programs_per_erase: at("programs_per_erase").round() as u32,
            suspend_ns: suspends.then(|| ns("suspend_ns")),
        }),
        gc: None,
        power: None,
        controller: None,
        cache: None,
        state: Vec::new(),
        rest: None,
        idle: Vec::new(),
        slow: None,
        energy: None,
    }
}

/// Mean of `|ln(simulated / measured)|` over points and quantiles.
pub(crate) fn loss(model: &SsdModel, wanted: &Wanted, requests: usize) -> f64 {
    let of_point = |(writes, point): &(u32, Point)| {
        error(&latency_us(model, *writes, point.rate, requests), &point.latency_us, usize::from(*writes == 500))
    };
    wanted.iter().map(of_point).sum::<f64>() / (4 * wanted.len()) as f64
}

/// The sum of `|ln(simulated / measured)|` over the quantiles from the one with index `from`.
fn error(simulated: &[f64; 4], measured: &[f64; 4], from: usize) -> f64 {
    let errors = simulated.iter().zip(measured).map(|(ours, theirs)| (ours / theirs).ln().abs().min(1.5));
    errors.skip(from).sum()
}

fn wanted(drive: &Drive, shares: &[u32], points: usize) -> Wanted {
    let mut wanted = Wanted::new();
    for share in shares {
        let points = drive.get(share).map(|curve| curve.sample(0.05, 0.95, points)).unwrap_or_default();
        wanted.extend(points.into_iter().map(|point| (*share, point)));
    }
    wanted
}

/// A step of the fit: searches the values at `chosen`; the rest is fixed.
fn step(values: &mut [f64], chosen: &[usize], rounds: usize, suspends: bool, wanted: &Wanted, requests: usize) -> f64 {
    let axes: Vec<Axis> = chosen.iter().map(|&index| Axis { start: values[index], ..AXES[index] }).collect();
    let with = |tried: &[f64]| {
        let mut all = values.to_vec();
        chosen.iter().zip(tried).for_each(|(&index, &value)| all[index] = value);
        all
    };
    let (found, least) = search(&axes, rounds, |tried| loss(&model("", &with(tried), suspends), wanted, requests));
    let all = with(&found);
    values.copy_from_slice(&all);
    least
}

/// A candidate: loss, values, and whether programs can be suspended.
type Found = (f64, Vec<f64>, bool);

/// Fits the full model to the curves of a drive at `FITTED`.
pub(crate) fn full(name: &str, drive: &Drive) -> SsdModel {
    let mut values: Vec<f64> = AXES.iter().map(|axis| axis.start).collect();
    step(&mut values, &READS, 14, false, &wanted(drive, &[0], POINTS), FINE);
    step(&mut values, &WRITES, 10, false, &wanted(drive, &[1000], POINTS), ROUGH);
    let mixes = wanted(drive, &[500, 1000], POINTS);
    let near = screened(drive, &values).into_iter().map(|one| searched(one, &MIXES, &mixes, ROUGH));
    let all: Vec<usize> = (0..AXES.len()).collect();
    let curves = wanted(drive, &FITTED, POINTS);
    let polished = best(near.collect(), POLISHED).into_iter().map(|one| searched(one, &all, &curves, FINE));
    let (least, values, suspends) = searched(best(polished.collect(), 1).remove(0), &all, &curves, FINE);
    eprintln!("{name}: loss {least:.4}, suspends {suspends}");
    model(name, &values, suspends)
}

/// The best random draws of the mix parameters over their whole range.
fn screened(drive: &Drive, values: &[f64]) -> Vec<Found> {
    let few = wanted(drive, &[500, 1000], POINTS / 2);
    let stream = Stream::new(3, Purpose::Constants, 0);
    let one = |index| {
        let (values, suspends) = (draw(values, &stream, index), index % 4 == 3);
        (loss(&model("", &values, suspends), &few, ROUGH), values, suspends)
    };
    best((0..SCREENED).map(one).collect(), KEPT)
}

fn best(mut found: Vec<Found>, count: usize) -> Vec<Found> {
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found.truncate(count);
    found
}

/// Continues the search from a candidate, among the parameters `chosen`.
fn searched((_, mut values, suspends): Found, chosen: &[usize], wanted: &Wanted, requests: usize) -> Found {
    let unused = if suspends { AXES.len() } else { AXES.len() - 1 };
    let chosen: Vec<usize> = chosen.iter().copied().filter(|&index| index < unused).collect();
    let least = step(&mut values, &chosen, ROUNDS, suspends, wanted, requests);
    eprintln!("  loss {least:.4}, suspends {suspends}: {values:.0?}");
    (least, values, suspends)
}

/// `values` with log-uniform draws of the mix parameters.
fn draw(values: &[f64], stream: &Stream, index: u64) -> Vec<f64> {
    let mut drawn = values.to_vec();
    for (nth, &at) in MIXES.iter().enumerate() {
        let (low, high) = (AXES[at].low.ln(), AXES[at].high.ln());
        drawn[at] = (low + (high - low) * unit(stream.at(index * 100 + nth as u64))).exp();
    }
    drawn
}

/// The baseline: uniform random dies, an M/D/1 each, with three parameters, fitted to p99 and p99.9 of reads alone over the loads of the table.
pub(crate) fn baseline(drive: &Drive) -> SsdModel {
    let chosen = [0, 1, 3];
    let dies = |tried: &[f64]| {
        let mut values: Vec<f64> = AXES.iter().map(|axis| axis.start).collect();
        values[2] = 0.0;
        (values[13], values[14], values[15]) = (1.0, 0.0, 1e12);
        chosen.iter().zip(tried).for_each(|(&index, &value)| values[index] = value);
        SsdModel { program: None, ..model("", &values, false) }
    };
    let points = drive.get(&0).map(|curve| curve.sample(0.25, 0.95, POINTS)).unwrap_or_default();
    let tail_loss = |tried: &[f64]| {
        let model = dies(tried);
        let of_point = |point: &Point| error(&latency_us(&model, 0, point.rate, FINE), &point.latency_us, 2);
        points.iter().map(of_point).sum::<f64>()
    };
    let (found, _) = search(&chosen.map(|index| AXES[index]), 16, tail_loss);
    dies(&found)
}
