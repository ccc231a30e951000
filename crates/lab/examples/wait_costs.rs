//! CPU time of a wait in the kernel with and without a time limit: `cargo run --release -p pilotlight-lab --example wait_costs`.
//!
//! `sockets.timer_ns` of `profiles/calibration/live-16cpu.toml` is the difference. One thread rings a bell after each gap, another waits for it with
//! `ppoll(2)`. A limit that is the next timer of the CPU has its timer hardware set at each wait. Medians of the rounds. Needs two idle CPUs.

use std::io::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(500);
const GAPS_US: [u64; 3] = [15, 25, 100];
const LIMITS_US: [Option<u64>; 3] = [None, Some(150), Some(10_000)];

fn main() -> Result<()> {
    println!("{:>6} {:>9} {:>16}", "gap us", "limit us", "CPU us of a wait");
    for gap_us in GAPS_US {
        for limit_us in LIMITS_US {
            let mut costs = (0..ROUNDS).map(|_| round(gap_us, limit_us)).collect::<Result<Vec<f64>>>()?;
            costs.sort_by(f64::total_cmp);
            let limit = limit_us.map_or("none".to_owned(), |us| us.to_string());
            println!("{gap_us:6} {limit:>9} {:16.2}", costs[ROUNDS / 2]);
        }
    }
    Ok(())
}

/// Microseconds of CPU time a wait.
fn round(gap_us: u64, limit_us: Option<u64>) -> Result<f64> {
    let bell = eventfd(0, EventfdFlags::NONBLOCK)?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (began, mut number) = (Instant::now(), 0);
            while !ends.load(Ordering::Relaxed) {
                number += 1;
                while began.elapsed() < Duration::from_micros(gap_us * number) {}
                let _ = write(&bell, &1_u64.to_ne_bytes());
            }
        });
        let limit = limit_us.map(|us| Timespec { tv_sec: 0, tv_nsec: (us * 1_000).cast_signed() });
        let (began, before, mut waits) = (Instant::now(), cpu_time(), 0_u32);
        while began.elapsed() < ROUND {
            poll(&mut [PollFd::new(&bell, PollFlags::IN)], limit.as_ref())?;
            waits += u32::from(read(&bell, &mut [0; 8]).is_ok());
        }
        let spent = cpu_time() - before;
        ends.store(true, Ordering::Relaxed);
        Ok(spent.as_secs_f64() * 1e6 / f64::from(waits.max(1)))
    })
}

/// That of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}
