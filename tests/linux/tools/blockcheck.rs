//! The verifier that runs in the guest, on any block device: no dependencies, linked statically. `block.rs` defines the contents of its
//! blocks.
//!
//! ```text
//! blockcheck load DEVICE --blocks N --threads T --seconds S [--until FILE] [--seed X]
//! blockcheck durable DEVICE MARKS --blocks N --steps K [--fua COMMAND] [--seed X]
//! blockcheck reservation DEVICE COMMAND [NUMBER...]
//! ```
//!
//! `load`: each thread owns every T-th run of 16 blocks; it writes and reads runs of 1 to 16 blocks, checks every read against the
//! remembered generations, flushes occasionally, and reads everything again at the end. It stops after S seconds, or, with FILE, as soon as
//! that exists. Any I/O error is a failure.
//!
//! `durable`: one write at a time. After each acknowledged flush (and each write with FUA) it writes a mark: the least generation that each
//! block must have after a power failure from now on. `DEVICE` and `MARKS` are on one recorded disk.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

mod block;
mod reservation;
use block::{BLOCK, MARK_GENERATIONS, MARK_MAGIC, Random, check, fill, put};

const RUN: u64 = 16;
const O_DIRECT: i32 = 0o40000;
/// Bytes at an address that O_DIRECT accepts.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0u8; len + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, start, len }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

fn open(path: &str) -> Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(path)
}

struct Options(Vec<String>);

impl Options {
    fn text(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|a| a == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn number(&self, name: &str, default: u64) -> Result<u64> {
        self.text(name).map_or(Ok(default), |t| t.parse().map_err(|_| Error::other(format!("{name}: '{t}' is no number"))))
    }
}

/// State of a loading thread: the generation of each block that it owns.
struct Loader {
    file: File,
    thread: u64,
    threads: u64,
    generations: Vec<u32>,
    random: Random,
    buffer: Aligned,
    writes: u64,
    reads: u64,
}

impl Loader {
    /// A run of blocks that this thread owns: first block and count.
    fn pick(&mut self) -> (u64, u64) {
        let runs = self.generations.len() as u64 / RUN / self.threads;
        let first = (self.random.below(runs) * self.threads + self.thread) * RUN;
        let skip = self.random.below(RUN);
        (first + skip, 1 + self.random.below(RUN - skip))
    }

    fn write(&mut self, first: u64, count: u64) -> Result<()> {
        for i in 0..count {
            let address = first + i;
            let generation = &mut self.generations[address as usize];
            *generation += 1;
            let at = i as usize * BLOCK;
            fill(&mut self.buffer.get_mut()[at..at + BLOCK], address, u64::from(*generation));
        }
        self.writes += 1;
        self.file.write_all_at(&self.buffer.get()[..count as usize * BLOCK], first * BLOCK as u64)
    }

    fn read(&mut self, first: u64, count: u64) -> Result<()> {
        let len = count as usize * BLOCK;
        self.buffer.get_mut()[..len].fill(0xA5);
        self.file.read_exact_at(&mut self.buffer.get_mut()[..len], first * BLOCK as u64)?;
        self.reads += 1;
        for i in 0..count {
            let at = i as usize * BLOCK;
            let generation = u64::from(self.generations[(first + i) as usize]);
            check(&self.buffer.get()[at..at + BLOCK], first + i, generation).map_err(Error::other)?;
        }
        Ok(())
    }

    fn run(&mut self, end: Instant, until: Option<&str>) -> Result<()> {
        while Instant::now() < end && !until.is_some_and(|f| Path::new(f).exists()) {
            let (first, count) = self.pick();
            match self.random.below(20) {
                0 => self.file.sync_data()?,
                1..10 => self.read(first, count)?,
                _ => self.write(first, count)?,
            }
        }
        let runs = self.generations.len() as u64 / RUN / self.threads;
        for run in 0..runs {
            self.read((run * self.threads + self.thread) * RUN, RUN)?;
        }
        Ok(())
    }
}

fn load(device: &str, options: &Options) -> Result<()> {
    let threads = options.number("--threads", 4)?;
    let blocks = options.number("--blocks", 4096)?;
    let end = Instant::now() + Duration::from_secs(options.number("--seconds", 5)?);
    let seed = options.number("--seed", 1)?;
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (device, until) = (device.to_owned(), options.text("--until").map(str::to_owned));
            thread::spawn(move || -> Result<(u64, u64)> {
                let mut loader = Loader {
                    file: open(&device)?,
                    thread,
                    threads,
                    generations: vec![0; blocks as usize],
                    random: Random(seed << 32 | thread),
                    buffer: Aligned::new(RUN as usize * BLOCK),
                    writes: 0,
                    reads: 0,
                };
                loader.run(end, until.as_deref())?;
                Ok((loader.writes, loader.reads))
            })
        })
        .collect();
    let mut totals = (0, 0);
    for worker in workers {
        let (writes, reads) = worker.join().map_err(|_| Error::other("a thread panicked"))??;
        totals = (totals.0 + writes, totals.1 + reads);
    }
    println!("blockcheck: {} writes, {} reads, all as expected", totals.0, totals.1);
    Ok(())
}

/// State of the durability workload: written and durable generations.
struct Durable {
    device: File,
    marks: File,
    written: Vec<u32>,
    promised: Vec<u32>,
    mark: u64,
    block: Aligned,
}

impl Durable {
    fn write(&mut self, address: u64, fua: Option<(&str, &str)>) -> Result<()> {
        let generation = &mut self.written[address as usize];
        *generation += 1;
        fill(self.block.get_mut(), address, u64::from(*generation));
        let Some((command, device)) = fua else {
            return self.device.write_all_at(self.block.get(), address * BLOCK as u64);
        };
        // A block device opened O_DSYNC would send a Flush after each write: FUA alone needs a passthrough command.
        std::fs::write("/tmp/fua-block", self.block.get())?;
        let status = Command::new(command).args([device, "/tmp/fua-block", &address.to_string()]).status()?;
        if !status.success() {
            return Err(Error::other(format!("{command}: {status}")));
        }
        self.promised[address as usize] = self.written[address as usize];
        self.put_mark()
    }

    fn flush(&mut self) -> Result<()> {
        self.device.sync_data()?;
        self.promised.clone_from(&self.written);
        self.put_mark()
    }

    /// Written without a separate flush: only its position in the record after the acknowledgement matters.
    fn put_mark(&mut self) -> Result<()> {
        let block = self.block.get_mut();
        block.fill(0);
        put(block, 0, MARK_MAGIC);
        put(block, 8, self.mark);
        put(block, 16, self.promised.len() as u64);
        for (slot, generation) in block[MARK_GENERATIONS..].chunks_exact_mut(4).zip(&self.promised) {
            slot.copy_from_slice(&generation.to_le_bytes());
        }
        self.marks.write_all_at(self.block.get(), self.mark * BLOCK as u64)?;
        self.mark += 1;
        Ok(())
    }
}

fn durable(device: &str, marks: &str, options: &Options) -> Result<()> {
    let blocks = options.number("--blocks", 256)?;
    if blocks as usize > (BLOCK - MARK_GENERATIONS) / 4 {
        return Err(Error::other("--blocks: a mark has no room for so many"));
    }
    let mut random = Random(options.number("--seed", 1)?);
    let mut state = Durable {
        device: open(device)?,
        marks: open(marks)?,
        written: vec![0; blocks as usize],
        promised: vec![0; blocks as usize],
        mark: 0,
        block: Aligned::new(BLOCK),
    };
    let fua = options.text("--fua");
    for _ in 0..options.number("--steps", 400)? {
        match random.below(16) {
            0 | 1 => state.flush()?,
            2 if fua.is_some() => state.write(random.below(blocks), fua.map(|c| (c, device)))?,
            _ => state.write(random.below(blocks), None)?,
        }
    }
    state.flush()?;
    println!("blockcheck: {} marks", state.mark);
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["load", device, rest @ ..] => load(device, &Options(rest.iter().map(|s| (*s).to_owned()).collect())),
        ["durable", device, marks, rest @ ..] => durable(device, marks, &Options(rest.iter().map(|s| (*s).to_owned()).collect())),
        ["reservation", device, command @ ..] => reservation::run(device, command),
        _ => Err(Error::other("usage: blockcheck load DEVICE ... | durable DEVICE MARKS ... | reservation DEVICE COMMAND ...")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("blockcheck: {error}");
            ExitCode::FAILURE
        }
    }
}
