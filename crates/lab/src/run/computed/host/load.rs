//! Converts the knobs of a point to a load of the simulator: jobs of fio here, clients of an application in `client`. Unsupported knobs are
//! refused with a list of the supported ones.

mod client;

use crate::run::computed::Request;
use crate::simulated::host::{GRID_NS, Host, Load};
use pilotlight_actuators::Machine;
use pilotlight_sim::jobs::{IoMethod, Job, Scheduler};
use pilotlight_workloads::knob::{self, Named, Pattern};
use pilotlight_workloads::{Point, Problem, Value};

/// Options of fio without effect here: how jobs are created, and direct I/O, which the model always uses.
const WITHOUT_EFFECT: [&str; 6] =
    ["direct", "thread", "group_reporting", "norandommap", "randrepeat", "offset_increment"];

/// The load of a point.
pub(super) fn load(host: &Host, request: &Request<'_>) -> Result<Load, Problem> {
    match (request.workload, request.client) {
        ("fio", _) => fio(host, request),
        (_, Some(client)) => client::load(host, request, client),
        (other, None) => {
            let why = format!("the simulated machine supports fio and client, not {other}");
            Err(wrong("workload.kind", why))
        }
    }
}

fn fio(host: &Host, request: &Request<'_>) -> Result<Load, Problem> {
    let point = request.point;
    let mut load = settings(host, request.machine)?;
    let engine = engine(point)?;
    load.job.method = engine.0;
    let pattern = Pattern::read(knob::at(point, "rw")?, "rw")?;
    (load.job.sequential, load.job.writes_ppm) = pattern_of(&pattern)?;
    if load.job.writes_ppm > 0 {
        writes(host, "rw")?;
    }
    load.job.bytes = bytes(knob::at(point, "bs")?)?;
    load.job.depth = number(point, "iodepth")?;
    load.jobs = number(point, "numjobs")?;
    set_think_time(&mut load.job, point)?;
    unknown(point, &engine.1)?;
    timed(host, request, &mut load);
    Ok(load)
}

/// Refuses writes to a drive whose profile has no write latency.
fn writes(host: &Host, at: &str) -> Result<(), Problem> {
    if host.drive.front.write_latency_ns == 0 {
        return Err(wrong(at, "the profile of the simulated drive has no write latency: it supports reads only"));
    }
    Ok(())
}

/// Sets times and seed of a load.
fn timed(host: &Host, request: &Request<'_>, load: &mut Load) {
    load.seed = request.stage.seed;
    let ns = |seconds: f64| ((seconds * 1e9).round() as u64).next_multiple_of(GRID_NS);
    (load.ramp_ns, load.duration_ns) = (ns(request.stage.ramp_s), ns(request.stage.duration_s));
    load.after_ns = if load.job.writes_ppm > 0 { request.cool_down_ns } else { 0 };
    if !is_whole(load) {
        // Without writes and think time the load is memoryless, so a part represents the whole.
        load.duration_ns = load.duration_ns.min(host.window_ns);
        load.ramp_ns = load.ramp_ns.min(host.window_ns / 10);
    }
}

/// Whether the whole time is simulated.
pub(super) fn is_whole(load: &Load) -> bool {
    load.job.writes_ppm > 0 || load.job.think_after > 0
}

/// An idle machine.
pub(super) fn idle(host: &Host, set: &Machine, length_ns: u64) -> Result<Load, Problem> {
    Ok(Load { jobs: 0, duration_ns: length_ns, ..settings(host, set)? })
}

fn wrong(at: &str, why: impl Into<String>) -> Problem {
    Problem { at: at.to_owned(), why: why.into() }
}

/// The settings of the machine. Unsupported ones are refused.
fn settings(host: &Host, set: &Machine) -> Result<Load, Problem> {
    let without = Machine { scheduler: None, power_state: None, apst: None, drive: None, ..set.clone() };
    if without != Machine::default() {
        return Err(wrong("machine", "the simulated machine supports only scheduler, power_state and apst"));
    }
    let scheduler = match set.scheduler.as_deref() {
        None | Some("none") => Scheduler::None,
        Some("kyber") => Scheduler::Kyber,
        Some("mq-deadline") => Scheduler::Deadline,
        Some(other) => {
            return Err(wrong("machine.scheduler", format!("{other} is not one of none, kyber, mq-deadline")));
        }
    };
    let state = usize::from(set.power_state.unwrap_or(0));
    if state >= host.drive.state.len() {
        let why = format!("the simulated drive has the operational power states 0 to {}", host.drive.state.len() - 1);
        return Err(wrong("machine.power_state", why));
    }
    Ok(Load {
        job: Job { scheduler, ..Job::default() },
        jobs: 1,
        beside: Vec::new(),
        drive_state: state,
        drive_autonomous: set.apst == Some(true),
        ramp_ns: 0,
        duration_ns: 0,
        after_ns: 0,
        seed: 0,
    })
}

/// The I/O method and the options of the engine.
fn engine(point: &Point) -> Result<(IoMethod, Vec<(String, String)>), Problem> {
    if let Some(mechanism) = point.get("mechanism") {
        return Ok((mechanism_of(&mechanism.to_string())?, Vec::new()));
    }
    let engine = Named::read(knob::at(point, "ioengine")?, "ioengine")?;
    let on = |key: &str| {
        let own = engine.options.iter().any(|(name, value)| name == key && value != "0");
        own || point.get(key).is_some_and(|value| !matches!(value.to_string().as_str(), "0" | "false"))
    };
    let way = match (engine.name.as_str(), on("hipri"), on("sqthread_poll")) {
        ("sync" | "psync" | "pvsync" | "pvsync2", false, false) => IoMethod::Interrupt,
        ("pvsync2", true, false) => IoMethod::Classic,
        ("libaio", false, false) => IoMethod::Libaio,
        ("io_uring", false, false) => IoMethod::Uring,
        ("io_uring", true, true) => IoMethod::UringPolled,
        ("posixaio", false, false) => IoMethod::PosixAio,
        ("spdk", _, false) => IoMethod::Bypass,
        (name, ..) => {
            let known = "psync, pvsync2 (hipri), libaio, io_uring (hipri with sqthread_poll), posixaio and spdk";
            return Err(wrong(
                "ioengine",
                format!("the simulated machine supports {known}, not {name} with these options"),
            ));
        }
    };
    Ok((way, engine.options))
}

fn mechanism_of(words: &str) -> Result<IoMethod, Problem> {
    match words {
        "interrupt" => Ok(IoMethod::Interrupt),
        "classic" => Ok(IoMethod::Classic),
        "hybrid" => Ok(IoMethod::Hybrid),
        "uring interrupt" => Ok(IoMethod::Uring),
        other => {
            let known = "interrupt, classic, hybrid and uring interrupt";
            Err(wrong("mechanism", format!("the simulated machine supports {known}, not {other}")))
        }
    }
}

fn pattern_of(pattern: &Pattern) -> Result<(bool, u32), Problem> {
    let mixed = 1_000_000 - u32::from(pattern.read_percent.unwrap_or(50)) * 10_000;
    match pattern.word.as_str() {
        "read" => Ok((true, 0)),
        "write" => Ok((true, 1_000_000)),
        "randread" => Ok((false, 0)),
        "randwrite" => Ok((false, 1_000_000)),
        "rw" | "readwrite" => Ok((true, mixed)),
        "randrw" => Ok((false, mixed)),
        other => Err(wrong("rw", format!("the simulated machine does not support {other}"))),
    }
}

fn set_think_time(job: &mut Job, point: &Point) -> Result<(), Problem> {
    let us = |key: &str| point.get(key).map_or(Ok(0), |value| time_us(value, key));
    job.think_ns = us("thinktime")? * 1_000;
    job.think_spin_ns = us("thinktime_spin")? * 1_000;
    if job.think_ns + job.think_spin_ns > 0 {
        job.think_after = point.get("thinktime_blocks").map_or(Ok(1), |_| number(point, "thinktime_blocks"))?;
    }
    Ok(())
}

/// fio reads times without a unit as microseconds.
fn time_us(value: &Value, key: &str) -> Result<u64, Problem> {
    let text = value.to_string();
    let units = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];
    let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
    let (digits, factor) =
        unit.map_or((text.as_str(), 1), |(unit, factor)| (&text[..text.len() - unit.len()], *factor));
    let number = digits.trim().parse::<u64>().map_err(|_| wrong(key, format!("{text} is not a time")))?;
    Ok(number * factor)
}

fn number<T: TryFrom<u64> + Default + PartialOrd>(point: &Point, key: &str) -> Result<T, Problem> {
    let value = knob::count(point, key)?;
    T::try_from(value)
        .ok()
        .filter(|value| *value > T::default())
        .ok_or_else(|| wrong(key, format!("{value} is 0 or too large")))
}

/// fio reads `4k` as 4096 bytes.
fn bytes(value: &Value) -> Result<u32, Problem> {
    let text = value.to_string().to_ascii_lowercase();
    let text = text.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 10),
        Some('m') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0 && *number < 1 << 24);
    let bytes = number.and_then(|number| u32::try_from(number << shift).ok());
    bytes.ok_or_else(|| wrong("bs", format!("{value} is not a block size")))
}

/// Refuses options that would be ignored.
fn unknown(point: &Point, of_engine: &[(String, String)]) -> Result<(), Problem> {
    const KNOWN: [&str; 11] = [
        "mechanism",
        "ioengine",
        "rw",
        "bs",
        "iodepth",
        "numjobs",
        "hipri",
        "sqthread_poll",
        "thinktime",
        "thinktime_spin",
        "thinktime_blocks",
    ];
    let ignored = |key: &str| !KNOWN.contains(&key) && !WITHOUT_EFFECT.contains(&key);
    let keys = point.keys().map(String::as_str).chain(of_engine.iter().map(|(key, _)| key.as_str()));
    match keys.into_iter().find(|key| ignored(key)) {
        Some(key) => Err(wrong(&format!("workload.options.{key}"), "not supported by the simulated machine")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
