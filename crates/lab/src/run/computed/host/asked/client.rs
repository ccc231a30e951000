//! The clients of an application as jobs: each makes synchronous calls, and each thread of a background is a job with a part of the backlog.

use super::{number, settings, timed, writes, wrong};
use crate::run::computed::Ask;
use crate::simulated::host::{Host, Load};
use pilotlight_sim::jobs::{IoMethod, Job};
use pilotlight_workloads::Problem;
use pilotlight_workloads::client::{Background, Client, Miss, Mix};

/// What a point asks.
pub(super) fn load(host: &Host, ask: &Ask<'_>, client: &Client) -> Result<Load, Problem> {
    let mix = client.mix(ask.point)?;
    let mut load = settings(host, ask.machine)?;
    load.jobs = number(ask.point, "threads")?;
    let plain = Job { method: IoMethod::Interrupt, ..load.job };
    load.job = job(plain, mix);
    if load.job.adds > 0 {
        load.beside = client.background(mix).flat_map(|background| threads(plain, background)).collect();
        load.job.stalls_bytes = if load.beside.is_empty() { 0 } else { client.stall_bytes() };
    }
    if !load.job.is_client() && load.beside.is_empty() {
        let what = "an operation that always needs a request, and leaves nothing, is what kind = \"fio\" does: say hits, write_hits or leaves_bytes";
        return Err(wrong("workload.mixes", what.to_owned()));
    }
    if load.job.writes_ppm > 0 {
        writes(host, "workload.mixes")?;
    }
    let least = |job: &Job| u128::from(job.bytes) * 1_000_000 / u128::from(job.backlog_ppm);
    let least = load.beside.iter().map(least).max().unwrap_or(0);
    if load.job.stalls_bytes > 0 && u128::from(load.job.stalls_bytes) <= least {
        return Err(wrong("workload.stall_bytes", format!("has to be more than {least}: a request of a background")));
    }
    timed(host, ask, &mut load);
    Ok(load)
}

/// What a client does.
fn job(plain: Job, mix: &Mix) -> Job {
    let writes_ppm = 1_000_000 - millionths(mix.reads);
    Job {
        bytes: mix.bytes,
        writes_ppm,
        cpu_ns: ns(mix.read_cpu_us),
        write_cpu_ns: (writes_ppm > 0).then(|| ns(mix.write_cpu_us)),
        hits_ppm: millionths(mix.hits),
        write_hits_ppm: if writes_ppm > 0 { millionths(mix.write_hits) } else { 0 },
        fetches: writes_ppm > 0 && mix.write_miss == Miss::Read,
        adds: if writes_ppm > 0 { mix.leaves_bytes } else { 0 },
        ..plain
    }
}

/// The threads of a background.
fn threads(plain: Job, background: &Background) -> impl Iterator<Item = Job> {
    let all = background.reads + background.writes;
    let job = Job {
        bytes: background.bytes,
        sequential: true,
        writes_ppm: millionths(background.writes / all),
        cpu_ns: ns(background.cpu_us),
        backlog_ppm: millionths(background.bytes_per_backlog_byte()),
        ..plain
    };
    std::iter::repeat_n(job, usize::from(background.threads))
}

fn millionths(share: f64) -> u32 {
    (share * 1e6).round() as u32
}

fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}
