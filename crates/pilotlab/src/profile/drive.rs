//! Random direct I/O to a drive of this machine, or a file on one, at a given rate with measurement of its power.
//!
//! Without a sensor of the drive, power is interpolated from its specification by bandwidth, as in section 3.2.1.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use pilotlight_input::quantity::{self, POWERS};
use pilotlight_lab::run::StopFlag;
use pilotlight_sim::rng::{Purpose, Stream};

use super::meter::Meter;
use super::subject::{DriveMeasured, DriveSubject, Load, POLL_INTERVAL, Stopped, sleep};

/// Size of a request: drives reach their bandwidth with a few in flight.
const BYTES: u64 = 128 << 10;
/// Alignment of direct I/O.
const ALIGN: usize = 4096;
const WINDOW: Duration = Duration::from_secs(1);

/// Power in a drive's specification, in microwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Specification {
    idle_uw: u64,
    read_uw: u64,
    written_uw: u64,
}

impl Specification {
    /// Parses `idle=5W,read=12W,write=15W`: a list of options, not CSV.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        const FORM: &str = "give the powers of the specification as idle=5W,read=12W,write=15W";
        let parts: Vec<(&str, &str)> = text.split(',').filter_map(|part| part.split_once('=')).collect();
        let of = |key: &str| {
            let (_, value) = parts.iter().find(|(known, _)| known.trim() == key).context(FORM)?;
            quantity::parse(value.trim(), POWERS).map_err(|error| anyhow!("{key}: {error}; {FORM}"))
        };
        let own = Self { idle_uw: of("idle")?, read_uw: of("read")?, written_uw: of("write")? };
        let takes_more = own.read_uw > own.idle_uw && own.written_uw > own.idle_uw;
        anyhow::ensure!(parts.len() == 3 && takes_more, "reading and writing take more power than idling; {FORM}");
        Ok(own)
    }

    /// Power of a drive by its specification, which applies at the maximum measured bandwidth of each direction.
    pub(super) fn fill(&self, measured: &mut [DriveMeasured]) {
        for writes in [false, true] {
            let full_uw = if writes { self.written_uw } else { self.read_uw };
            let of_direction = || measured.iter().filter(|one| one.load.writes == writes);
            let most = of_direction().map(|one| one.read + one.written).fold(1.0, f64::max);
            for one in measured.iter_mut().filter(|one| one.load.writes == writes) {
                let share = (one.read + one.written) / most;
                one.watts = vec![(self.idle_uw as f64 + (full_uw - self.idle_uw) as f64 * share) / 1e6];
            }
        }
    }
}

/// A drive.
pub(super) struct Drive {
    path: PathBuf,
    bytes: u64,
    jobs: u32,
    meter: Option<Meter>,
    settle: Duration,
    measured: Duration,
    stop: StopFlag,
}

impl Drive {
    /// Opens a device or file. It is written only by loads that write.
    ///
    /// # Errors
    /// If it cannot be opened or is too small.
    pub(super) fn open(
        path: &Path,
        jobs: u32,
        meter: Option<Meter>,
        each: Duration,
        (writes, stop): (bool, StopFlag),
    ) -> anyhow::Result<Self> {
        let bytes = open(path, writes)?.seek(SeekFrom::End(0))?;
        anyhow::ensure!(
            bytes >= BYTES * u64::from(jobs),
            "{} is smaller than {jobs} requests of 128 KiB",
            path.display()
        );
        let settle = each / 5;
        Ok(Self { path: path.to_owned(), bytes, jobs, meter, settle, measured: each - settle, stop })
    }

    /// Bytes transferred in the measured time, that time in seconds, and power if there is a sensor.
    fn run(&mut self, load: Load) -> Result<(u64, f64, Vec<f64>), Stopped> {
        let (moved, end) = (AtomicU64::new(0), AtomicBool::new(false));
        let jobs = if load.bytes_per_s == Some(0) { 0 } else { self.jobs };
        let (path, bytes) = (self.path.clone(), self.bytes);
        std::thread::scope(|scope| {
            let start = |job: u32| {
                let (path, moved, end) = (&path, &moved, &end);
                scope.spawn(move || {
                    let job = Job { seed: u64::from(job), of: jobs, load, blocks: bytes / BYTES };
                    job.run(path, moved, end)
                })
            };
            let threads: Vec<_> = (0..jobs).map(start).collect();
            let measured = self.measure(&moved);
            end.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked")))?;
            }
            measured
        })
    }

    fn measure(&mut self, moved: &AtomicU64) -> Result<(u64, f64, Vec<f64>), Stopped> {
        sleep(&self.stop, self.settle)?;
        let (before, began) = (moved.load(Ordering::Relaxed), Instant::now());
        let mut watts = Vec::new();
        if let Some(meter) = &mut self.meter {
            meter.watts()?;
        }
        let mut left = self.measured;
        while !left.is_zero() {
            let window = if left < WINDOW * 2 { left } else { WINDOW };
            sleep(&self.stop, window)?;
            left -= window;
            if let Some(meter) = &mut self.meter {
                watts.extend(meter.watts()?);
            }
        }
        Ok((moved.load(Ordering::Relaxed) - before, began.elapsed().as_secs_f64(), watts))
    }
}

impl DriveSubject for Drive {
    fn drives(&self) -> u32 {
        1
    }

    fn measure(&mut self, load: Load) -> Result<DriveMeasured, Stopped> {
        let (moved, took_s, watts) = self.run(load)?;
        let bytes_per_s = moved as f64 / took_s;
        let (read, written) = if load.writes { (0.0, bytes_per_s) } else { (bytes_per_s, 0.0) };
        Ok(DriveMeasured { load, read, written, watts })
    }
}

fn open(path: &Path, writes: bool) -> anyhow::Result<File> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).write(writes).custom_flags(direct).open(path);
    file.with_context(|| {
        format!("cannot open {} past the page cache: it takes a block device, or a file on a disk (not tmpfs), and the right to it", path.display())
    })
}

/// A load thread with one request in flight.
struct Job {
    seed: u64,
    of: u32,
    load: Load,
    blocks: u64,
}

impl Job {
    fn run(&self, path: &Path, moved: &AtomicU64, end: &AtomicBool) -> anyhow::Result<()> {
        let file = open(path, self.load.writes)?;
        let mut memory = vec![0_u8; BYTES as usize + ALIGN];
        let from = memory.as_ptr().align_offset(ALIGN);
        let block = &mut memory[from..from + BYTES as usize];
        let places = Stream::new(self.seed, Purpose::Arrivals, 0);
        let began = Instant::now();
        for request in 0.. {
            if let Some(bytes_per_s) = self.load.bytes_per_s {
                let each_s = BYTES as f64 * f64::from(self.of) / bytes_per_s as f64;
                wait_until(began + Duration::from_secs_f64(each_s * request as f64), end);
            }
            if end.load(Ordering::Relaxed) {
                return Ok(());
            }
            let at = places.at(request) % self.blocks * BYTES;
            let done = if self.load.writes { file.write_all_at(block, at) } else { file.read_exact_at(block, at) };
            done.with_context(|| format!("{} at {at}", path.display()))?;
            moved.fetch_add(BYTES, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Waits until a time or the end.
fn wait_until(due: Instant, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_has_three_values() {
        let own = Specification::parse("idle=5W, read=12W, write=15.5W").unwrap();
        assert_eq!((own.idle_uw, own.read_uw, own.written_uw), (5_000_000, 12_000_000, 15_500_000));
        for wrong in ["", "idle=5W", "idle=5,read=12W,write=15W", "idle=15W,read=12W,write=15W"] {
            assert!(
                Specification::parse(wrong).unwrap_err().to_string().contains("idle=5W,read=12W,write=15W"),
                "{wrong}"
            );
        }
    }
}
