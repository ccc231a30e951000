//! Clients of an application as jobs with synchronous calls; each background thread is a job with a part of the backlog.

use super::{number, settings, timed, writes, wrong};
use crate::run::computed::Request;
use crate::simulated::host::{Host, Load};
use pilotlight_sim::jobs::{Job, Way};
use pilotlight_workloads::Problem;
use pilotlight_workloads::client::{Background, Client, Miss, Mix};

/// The load of a point.
pub(super) fn load(host: &Host, request: &Request<'_>, client: &Client) -> Result<Load, Problem> {
    let mix = client.mix(request.point)?;
    let mut load = settings(host, request.machine)?;
    load.jobs = number(request.point, "threads")?;
    let plain = Job { way: Way::Interrupt, ..load.job };
    load.job = job(plain, mix);
    if load.job.adds > 0 {
        load.beside = client.background(mix).flat_map(|background| threads(plain, background)).collect();
        load.job.stalls_bytes = if load.beside.is_empty() { 0 } else { client.stall_bytes() };
    }
    if !load.job.is_client() && load.beside.is_empty() {
        let why = "without hits, write_hits or leaves_bytes this is a workload of kind = \"fio\": set one of them, or use fio";
        return Err(wrong("workload.mixes", why.to_owned()));
    }
    if load.job.writes_ppm > 0 {
        writes(host, "workload.mixes")?;
    }
    let min_bytes = |job: &Job| u128::from(job.bytes) * 1_000_000 / u128::from(job.backlog_ppm);
    let min_bytes = load.beside.iter().map(min_bytes).max().unwrap_or(0);
    if load.job.stalls_bytes > 0 && u128::from(load.job.stalls_bytes) <= min_bytes {
        return Err(wrong(
            "workload.stall_bytes",
            format!("must be above {min_bytes}, the size of a background request"),
        ));
    }
    timed(host, request, &mut load);
    Ok(load)
}

/// The job of a client.
fn job(plain: Job, mix: &Mix) -> Job {
    let writes_ppm = 1_000_000 - ppm(mix.reads);
    Job {
        bytes: mix.bytes,
        writes_ppm,
        cpu_ns: ns(mix.read_cpu_us),
        write_cpu_ns: (writes_ppm > 0).then(|| ns(mix.write_cpu_us)),
        hits_ppm: ppm(mix.hits),
        write_hits_ppm: if writes_ppm > 0 { ppm(mix.write_hits) } else { 0 },
        fetches: writes_ppm > 0 && mix.write_miss == Miss::Read,
        adds: if writes_ppm > 0 { mix.leaves_bytes } else { 0 },
        ..plain
    }
}

/// The jobs of background threads.
fn threads(plain: Job, background: &Background) -> impl Iterator<Item = Job> {
    let all = background.reads + background.writes;
    let job = Job {
        bytes: background.bytes,
        sequential: true,
        writes_ppm: ppm(background.writes / all),
        cpu_ns: ns(background.cpu_us),
        backlog_ppm: ppm(background.bytes_per_backlog_byte()),
        ..plain
    };
    std::iter::repeat_n(job, usize::from(background.threads))
}

fn ppm(share: f64) -> u32 {
    (share * 1e6).round() as u32
}

fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}
