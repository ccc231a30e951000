//! Description of a load run, and its validation.

use std::path::PathBuf;

use crate::info::{ControllerInfo, NamespaceInfo};
use crate::ledger::{Ledger, MAX_BLOCKS};
use crate::load::replay::Space;
use crate::schedule::{Process, Schedule};

/// An open loop.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    /// Rates of all connections together.
    pub schedule: Schedule,
    /// Distribution of arrivals.
    pub process: Process,
}

/// A load run.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// Namespace identifier.
    pub nsid: u32,
    /// Random, not sequential addresses.
    pub random: bool,
    /// Read whole files of this size in random order, `depth` at a time on each connection.
    pub file_bytes: Option<u64>,
    /// Reads, in percent of reads and writes.
    pub read_percent: u8,
    /// Write Zeroes and deallocations (in turn, if supported), in percent of writes.
    pub trim_percent: u8,
    /// Bytes per read or write.
    pub block_bytes: u32,
    /// Commands in flight per connection; the maximum in an open loop.
    pub depth: u16,
    /// Connections, each an I/O queue.
    pub jobs: u16,
    /// Hosts, each with its own association and an equal part of the connections: a controller limits its I/O queues.
    pub hosts: u16,
    /// Threads, each with an equal part of the connections.
    pub threads: u16,
    /// Logical CPUs that threads are pinned to, in turn; empty for no pinning.
    pub cpus: Vec<usize>,
    /// First byte of the namespace to use.
    pub offset_bytes: u64,
    /// Bytes of the namespace to use; `None` for all from the offset on.
    pub size_bytes: Option<u64>,
    /// Duration in nanoseconds; `None` until `ios` are done.
    pub runtime_ns: Option<u64>,
    /// I/Os per connection; `None` for no limit.
    pub ios: Option<u64>,
    /// Time at the start without measurement, in nanoseconds.
    pub ramp_ns: u64,
    /// `None` for a closed loop.
    pub open: Option<OpenLoop>,
    /// Write verifiable blocks, check every block read, and read all written blocks at the end.
    pub verify: bool,
    /// With `verify`: a new file for the ledger. With `verify_only`: the file of an earlier run.
    pub ledger: Option<PathBuf>,
    /// Only read the blocks of the ledger's file, and check that each has the last durable generation or a newer one.
    pub verify_only: bool,
    /// Force Unit Access on every write.
    pub fua: bool,
    /// Writes of a connection between two flushes; 0 for no flushes.
    pub flush_every: u32,
    /// Seed of random choices.
    pub seed: u64,
    /// Continue after a failed command or a bad block.
    pub continue_on_error: bool,
    /// Timeout of commands in milliseconds; it ends the run.
    pub timeout_ms: u64,
    /// Yield the CPU after empty polls, for machines with fewer CPUs than polling threads. Latencies then include the
    /// scheduler's.
    pub yield_when_idle: bool,
}

impl Default for LoadSpec {
    fn default() -> Self {
        Self {
            nsid: 1,
            random: true,
            file_bytes: None,
            read_percent: 100,
            trim_percent: 0,
            block_bytes: 4096,
            depth: 1,
            jobs: 1,
            hosts: 1,
            threads: 1,
            cpus: Vec::new(),
            offset_bytes: 0,
            size_bytes: None,
            runtime_ns: None,
            ios: None,
            ramp_ns: 0,
            open: None,
            verify: false,
            ledger: None,
            verify_only: false,
            fua: false,
            flush_every: 0,
            seed: 1,
            continue_on_error: false,
            timeout_ms: 30_000,
            yield_when_idle: false,
        }
    }
}

/// An invalid run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// An invalid value and a valid one.
    #[error("{0}")]
    Invalid(String),
    /// A command of a trace, by its length and offset in bytes, exceeds the limits.
    #[error("a command of {0} bytes at {1} does not fit {2:?}")]
    Command(u32, u64, Space),
}

/// Most blocks of one command: NLB has 16 bits and starts at 0.
const MAX_BLOCKS_PER_IO: u64 = 1 << 16;

fn invalid<T>(text: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError::Invalid(text.into()))
}

/// The range of a run in blocks of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// First block of the range.
    pub(crate) first_lba: u64,
    /// I/O-sized pieces of the range.
    pub(crate) regions: u64,
    /// Blocks per I/O.
    pub(crate) blocks_per_io: u32,
    /// Bytes per block.
    pub(crate) block_size: u32,
}

impl Layout {
    /// First block and number of blocks.
    pub(crate) fn blocks(&self) -> (u64, u64) {
        (self.first_lba, self.regions * u64::from(self.blocks_per_io))
    }

    /// The part of the range that thread `part` of `parts` verifies on its own.
    pub(crate) fn part(&self, part: u64, parts: u64) -> Self {
        let (from, to) = (self.regions * part / parts, self.regions * (part + 1) / parts);
        let first_lba = self.first_lba + from * u64::from(self.blocks_per_io);
        Self { first_lba, regions: to - from, ..*self }
    }
}

impl LoadSpec {
    /// Checks the values without a target.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.depth == 0 || self.jobs == 0 || self.threads == 0 {
            return invalid("iodepth, numjobs and threads must be at least 1");
        }
        if self.hosts == 0 || self.hosts > self.jobs {
            return invalid(format!(
                "{} hosts for {} connections: use 1 to {} hosts",
                self.hosts, self.jobs, self.jobs
            ));
        }
        if self.threads > self.jobs {
            return invalid(format!(
                "{} threads for {} connections: use 1 to {} threads",
                self.threads, self.jobs, self.jobs
            ));
        }
        if self.read_percent > 100 || self.trim_percent > 100 {
            return invalid("percentages must be from 0 to 100");
        }
        if self.runtime_ns.is_none() && self.ios == Some(0) {
            return invalid("number_ios must be at least 1");
        }
        if self.file_bytes.is_some() && self.read_percent < 100 {
            return invalid("whole files can only be read: use --rw read or randread");
        }
        self.check_ledger()?;
        if self.verify && self.trim_percent == 0 && self.read_percent == 100 {
            return invalid("--verify checks blocks written by the run: use writes, such as --rw randrw");
        }
        Ok(())
    }

    /// The error for a range with fewer I/Os than threads.
    fn too_small(&self, namespace_bytes: u64, regions: u64) -> String {
        let (io, offset, threads) = (self.block_bytes, self.offset_bytes, self.threads);
        let part = match self.size_bytes {
            Some(size) => format!("--size {size} has room for"),
            None if offset == 0 => format!("the namespace has {namespace_bytes} bytes, room for"),
            None => format!("after --offset {offset} the namespace of {namespace_bytes} bytes has room for"),
        };
        format!(
            "{part} {regions} I/Os of --bs {io}, fewer than threads ({threads}): use a smaller --bs or a larger range"
        )
    }

    fn check_ledger(&self) -> Result<(), SpecError> {
        if self.verify_only {
            return match (self.verify, self.threads, &self.ledger) {
                (true, ..) => {
                    invalid("--verify writes blocks, --verify-only reads those of an earlier run: choose one")
                }
                (_, 2.., _) => invalid("--verify-only uses one thread; increase --numjobs and --iodepth instead"),
                (_, _, None) => invalid("--verify-only needs the file of an earlier run: --ledger FILE"),
                _ => Ok(()),
            };
        }
        if self.ledger.is_some() && !self.verify {
            return invalid("--ledger needs --verify (which writes it) or --verify-only (which checks it)");
        }
        if self.ledger.is_some() && !self.fua && self.flush_every == 0 {
            return invalid("--ledger records durable writes: add --fsync COUNT or --fua");
        }
        Ok(())
    }

    /// Checks that the namespace has the blocks of a ledger.
    ///
    /// # Errors
    /// It has not, or none was written.
    pub(crate) fn fits(&self, ledger: &Ledger, ns: &NamespaceInfo) -> Result<(), SpecError> {
        let (from, to, block_size) = (ledger.first(), ledger.first() + ledger.blocks(), ledger.block_size());
        if block_size != ns.block_size {
            let own = ns.block_size;
            return invalid(format!(
                "--ledger: blocks of {block_size} bytes, but namespace {} has blocks of {own}",
                ns.nsid
            ));
        }
        if to > ns.blocks {
            let blocks = ns.blocks;
            return invalid(format!("--ledger: it covers blocks {from} to {to}; namespace {} has {blocks}", ns.nsid));
        }
        if ledger.changed_ranges(1).next().is_none() {
            return invalid("--ledger: it records no write, so there is nothing to check");
        }
        Ok(())
    }

    /// Whether commands carry data of their own.
    pub(crate) fn needs_buffers(&self) -> bool {
        self.verify || self.verify_only || self.trim_percent > 0
    }

    /// The range in blocks of a namespace.
    ///
    /// # Errors
    /// The first value that does not fit.
    pub(crate) fn layout(&self, ns: &NamespaceInfo, controller: &ControllerInfo) -> Result<Layout, SpecError> {
        let (bs, io) = (u64::from(ns.block_size), u64::from(self.block_bytes));
        if io == 0 || io % bs != 0 {
            return invalid(format!("--bs {io} is not a multiple of the namespace's block size, {bs} bytes"));
        }
        if io / bs > MAX_BLOCKS_PER_IO {
            let max_bytes = MAX_BLOCKS_PER_IO * bs;
            return invalid(format!(
                "--bs {io} is too large: a command has at most {max_bytes} bytes in blocks of {bs}"
            ));
        }
        if !self.offset_bytes.is_multiple_of(bs) {
            return invalid(format!("--offset {} is not a multiple of the block size, {bs} bytes", self.offset_bytes));
        }
        let available = ns.bytes().saturating_sub(self.offset_bytes);
        let size = self.size_bytes.unwrap_or(available);
        if size > available {
            return invalid(format!("--size {size}: the namespace has {available} bytes after the offset"));
        }
        let regions = size / io;
        if regions < u64::from(self.threads) {
            return invalid(self.too_small(ns.bytes(), regions));
        }
        if self.verify && size / bs > MAX_BLOCKS {
            return invalid(format!("--verify can check at most {} bytes: set --size", MAX_BLOCKS * bs));
        }
        if self.trim_percent > 0 && !controller.can_write_zeroes() && !controller.can_deallocate() {
            return invalid("--trim-mix: the controller supports neither Write Zeroes nor Dataset Management");
        }
        let first_lba = self.offset_bytes / bs;
        Ok(Layout { first_lba, regions, blocks_per_io: (io / bs) as u32, block_size: ns.block_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace() -> NamespaceInfo {
        NamespaceInfo { nsid: 1, blocks: 1000, block_size: 4096, deallocated_reads_zero: true }
    }

    fn controller() -> ControllerInfo {
        ControllerInfo::decode(&[0; 4096])
    }

    #[test]
    fn a_range_consists_of_whole_ios() {
        let spec = LoadSpec { block_bytes: 16384, offset_bytes: 8192, ..LoadSpec::default() };
        let layout = spec.layout(&namespace(), &controller()).unwrap();
        assert_eq!(layout, Layout { first_lba: 2, regions: 249, blocks_per_io: 4, block_size: 4096 });
        let parts: Vec<_> = (0..3).map(|i| layout.part(i, 3)).collect();
        assert_eq!(parts.iter().map(|p| p.regions).sum::<u64>(), 249);
        assert!(parts.windows(2).all(|w| w[0].first_lba + w[0].regions * 4 == w[1].first_lba));
    }

    #[test]
    fn invalid_specs_are_rejected() {
        let base = LoadSpec::default();
        for spec in [
            LoadSpec { block_bytes: 512, ..base.clone() },
            LoadSpec { block_bytes: 0, ..base.clone() },
            LoadSpec { offset_bytes: 1, ..base.clone() },
            LoadSpec { offset_bytes: 4096, size_bytes: Some(4096 * 1000), ..base.clone() },
            LoadSpec { size_bytes: Some(4095), ..base.clone() },
            LoadSpec { trim_percent: 10, ..base.clone() },
        ] {
            assert!(spec.layout(&namespace(), &controller()).is_err(), "{spec:?}");
        }
        for spec in [
            LoadSpec { depth: 0, ..base.clone() },
            LoadSpec { threads: 2, ..base.clone() },
            LoadSpec { read_percent: 101, ..base.clone() },
            LoadSpec { verify: true, ..base.clone() },
            LoadSpec { file_bytes: Some(1 << 20), read_percent: 70, ..base.clone() },
        ] {
            assert!(spec.check().is_err(), "{spec:?}");
        }
        assert!(base.check().is_ok());
    }

    #[test]
    fn an_io_that_exceeds_a_command_is_rejected() {
        let spec = LoadSpec { block_bytes: 512 << 20, ..LoadSpec::default() };
        let error = spec.layout(&namespace(), &controller()).unwrap_err().to_string();
        assert!(error.contains("at most 268435456 bytes"), "{error}");
    }

    #[test]
    fn the_error_for_a_small_range_names_its_limit() {
        let error = |spec: LoadSpec| spec.layout(&namespace(), &controller()).unwrap_err().to_string();
        let (all, spec) = (1000 * 4096, LoadSpec { block_bytes: 1 << 20, threads: 4, ..LoadSpec::default() });
        let whole = error(spec.clone());
        assert!(
            whole.starts_with("the namespace has 4096000 bytes, room for 3 I/Os") && !whole.contains("--size"),
            "{whole}"
        );
        let after = error(LoadSpec { offset_bytes: all, ..spec.clone() });
        assert!(
            after.contains("--offset 4096000") && after.contains("room for 0") && !after.contains("--size"),
            "{after}"
        );
        let size = error(LoadSpec { size_bytes: Some(1 << 20), ..spec });
        assert!(size.starts_with("--size 1048576 has room for 1 I/Os"), "{size}");
    }
}
