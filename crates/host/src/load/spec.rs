//! The description of a load run, and whether it fits a namespace.

use std::path::PathBuf;

use crate::info::{ControllerInfo, NamespaceInfo};
use crate::ledger::{Ledger, MAX_BLOCKS};
use crate::schedule::{Process, Schedule};

/// Requests that are due at times of their own.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    /// How many a second, over all connections.
    pub schedule: Schedule,
    /// How they are spread.
    pub process: Process,
}

/// What to do to a namespace, for how long.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The namespace.
    pub nsid: u32,
    /// Random addresses rather than one after the other.
    pub random: bool,
    /// Read whole files of this size instead, in random order, as many at a time for each connection as `depth` says.
    pub file_bytes: Option<u64>,
    /// Reads, in percent of reads and writes.
    pub read_percent: u8,
    /// Write zeroes and deallocations (in turn, as far as the target can), in percent of all that would be writes.
    pub trim_percent: u8,
    /// Bytes per read or write.
    pub block_bytes: u32,
    /// Commands in flight per connection; in an open loop the most.
    pub depth: u16,
    /// Connections, each an I/O queue.
    pub jobs: u16,
    /// Hosts that the connections are dealt to, each with an association of its own: a controller has a limited number of
    /// I/O queues.
    pub hosts: u16,
    /// Threads that the connections are dealt to.
    pub threads: u16,
    /// Logical CPUs to pin the threads to, in turn; empty for no pinning.
    pub cpus: Vec<usize>,
    /// First byte of the namespace to use.
    pub offset_bytes: u64,
    /// Bytes of the namespace to use; `None` for all behind the offset.
    pub size_bytes: Option<u64>,
    /// How long to go on, in nanoseconds; `None` until `ios` are done.
    pub runtime_ns: Option<u64>,
    /// I/Os per connection after which to stop; `None` for no such limit.
    pub ios: Option<u64>,
    /// Time at the start that is not counted, in nanoseconds.
    pub ramp_ns: u64,
    /// Due times; `None` for a closed loop.
    pub open: Option<OpenLoop>,
    /// Write blocks that say what they are, check every block read, and read everything written at the end.
    pub verify: bool,
    /// With `verify`: keep the ledger in this file, which must not exist. With `verify_only`: the file of an earlier run.
    pub ledger: Option<PathBuf>,
    /// Write nothing: read every block that the ledger's file names and check that it holds the latest durable generation or a newer one.
    pub verify_only: bool,
    /// Force Unit Access on every write.
    pub fua: bool,
    /// A flush after that many writes of a connection; 0 for none.
    pub flush_every: u32,
    /// Seed of all randomness.
    pub seed: u64,
    /// Go on after a failed command or a bad block.
    pub continue_on_error: bool,
    /// How long a command may take before the run is given up, in milliseconds.
    pub timeout_ms: u64,
    /// Give the CPU away in turns without news, for machines with fewer CPUs than polling threads. Latencies then say
    /// more about the scheduler than about the target.
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

/// Why a run is refused before it starts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A number that makes no sense, with what would.
    #[error("{0}")]
    Impossible(String),
}

/// Most blocks of one command: its count has 16 bits and begins at 0.
const MAX_BLOCKS_PER_IO: u64 = 1 << 16;

fn impossible<T>(text: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError::Impossible(text.into()))
}

/// A run's spec in blocks of the namespace.
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
    /// First block, and how many.
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
    /// Checks what can be checked without a target.
    ///
    /// # Errors
    /// The first impossible value.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.depth == 0 || self.jobs == 0 || self.threads == 0 {
            return impossible("iodepth, numjobs and threads are at least 1");
        }
        if self.hosts == 0 || self.hosts > self.jobs {
            return impossible(format!("{} hosts for {} connections: each needs one", self.hosts, self.jobs));
        }
        if self.threads > self.jobs {
            return impossible(format!("{} threads for {} connections: some would idle", self.threads, self.jobs));
        }
        if self.read_percent > 100 || self.trim_percent > 100 {
            return impossible("percentages lie between 0 and 100");
        }
        if self.runtime_ns.is_none() && self.ios == Some(0) {
            return impossible("number_ios is at least 1");
        }
        if self.file_bytes.is_some() && self.read_percent < 100 {
            return impossible("whole files are read, not written");
        }
        self.check_ledger()?;
        if self.verify && self.trim_percent == 0 && self.read_percent == 100 {
            return impossible("--verify checks what the run wrote: mix in writes, such as --rw randrw");
        }
        Ok(())
    }

    /// Why there are fewer I/Os to choose from than threads; in the words of what the user has set.
    fn too_small(&self, namespace_bytes: u64, regions: u64) -> String {
        let (io, offset, threads) = (self.block_bytes, self.offset_bytes, self.threads);
        let part = match self.size_bytes {
            Some(size) => format!("--size {size} has room for"),
            None if offset == 0 => format!("the namespace has {namespace_bytes} bytes, room for"),
            None => format!("behind --offset {offset} the namespace of {namespace_bytes} bytes has room for"),
        };
        format!(
            "{part} {regions} I/Os of --bs {io}, and each thread ({threads}) needs one: use a smaller --bs or a larger range"
        )
    }

    fn check_ledger(&self) -> Result<(), SpecError> {
        if self.verify_only {
            return match (self.verify, self.threads, &self.ledger) {
                (true, ..) => impossible("--verify writes, --verify-only reads what an earlier run wrote: choose one"),
                (_, 2.., _) => impossible("--verify-only reads with one thread; --numjobs and --iodepth may be more"),
                (_, _, None) => impossible("--verify-only needs the file of an earlier run: --ledger FILE"),
                _ => Ok(()),
            };
        }
        if self.ledger.is_some() && !self.verify {
            return impossible(
                "--ledger goes with --verify (which writes it) or with --verify-only (which checks what it says)",
            );
        }
        if self.ledger.is_some() && !self.fua && self.flush_every == 0 {
            return impossible(
                "--ledger records what is durable, and without flushes nothing is: add --fsync COUNT or --fua",
            );
        }
        Ok(())
    }

    /// Checks that the blocks of a ledger are there.
    ///
    /// # Errors
    /// Where they are not, or none was ever written.
    pub(crate) fn fits(&self, ledger: &Ledger, ns: &NamespaceInfo) -> Result<(), SpecError> {
        let (from, to, block_size) = (ledger.first(), ledger.first() + ledger.blocks(), ledger.block_size());
        if block_size != ns.block_size {
            let own = ns.block_size;
            return impossible(format!(
                "--ledger: its blocks have {block_size} bytes, those of namespace {} {own}",
                ns.nsid
            ));
        }
        if to > ns.blocks {
            let blocks = ns.blocks;
            return impossible(format!(
                "--ledger: it covers blocks {from} to {to}; namespace {} has {blocks}",
                ns.nsid
            ));
        }
        if ledger.touched(1).next().is_none() {
            return impossible("--ledger: it records no write, so there is nothing to check");
        }
        Ok(())
    }

    /// Whether commands carry data of their own.
    pub(crate) fn needs_buffers(&self) -> bool {
        self.verify || self.verify_only || self.trim_percent > 0
    }

    /// Fits the spec to a namespace.
    ///
    /// # Errors
    /// Where it does not fit, saying what would.
    pub(crate) fn layout(&self, ns: &NamespaceInfo, controller: &ControllerInfo) -> Result<Layout, SpecError> {
        let (bs, io) = (u64::from(ns.block_size), u64::from(self.block_bytes));
        if io == 0 || io % bs != 0 {
            return impossible(format!("--bs {io} is no multiple of the namespace's block size, {bs} bytes"));
        }
        if io / bs > MAX_BLOCKS_PER_IO {
            let most = MAX_BLOCKS_PER_IO * bs;
            return impossible(format!(
                "--bs {io} is more than a command can name: at most {most} bytes in blocks of {bs}"
            ));
        }
        if !self.offset_bytes.is_multiple_of(bs) {
            return impossible(format!("--offset {} is no multiple of the block size, {bs} bytes", self.offset_bytes));
        }
        let behind = ns.bytes().saturating_sub(self.offset_bytes);
        let size = self.size_bytes.unwrap_or(behind);
        if size > behind {
            return impossible(format!("--size {size}: only {behind} bytes lie behind the offset"));
        }
        let regions = size / io;
        if regions < u64::from(self.threads) {
            return impossible(self.too_small(ns.bytes(), regions));
        }
        if self.verify && size / bs > MAX_BLOCKS {
            return impossible(format!("--verify keeps book of at most {} bytes; give a --size", MAX_BLOCKS * bs));
        }
        if self.trim_percent > 0 && !controller.can_write_zeroes() && !controller.can_deallocate() {
            return impossible("--trim-mix: this controller has neither Write Zeroes nor Dataset Management");
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
    fn a_range_is_cut_into_whole_ios() {
        let spec = LoadSpec { block_bytes: 16384, offset_bytes: 8192, ..LoadSpec::default() };
        let layout = spec.layout(&namespace(), &controller()).unwrap();
        assert_eq!(layout, Layout { first_lba: 2, regions: 249, blocks_per_io: 4, block_size: 4096 });
        let parts: Vec<_> = (0..3).map(|i| layout.part(i, 3)).collect();
        assert_eq!(parts.iter().map(|p| p.regions).sum::<u64>(), 249);
        assert!(parts.windows(2).all(|w| w[0].first_lba + w[0].regions * 4 == w[1].first_lba));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
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
    fn an_io_that_no_command_can_name_is_told_as_such() {
        let spec = LoadSpec { block_bytes: 512 << 20, ..LoadSpec::default() };
        let told = spec.layout(&namespace(), &controller()).unwrap_err().to_string();
        assert!(told.contains("at most 268435456 bytes"), "{told}");
    }

    #[test]
    fn too_little_room_is_told_in_the_words_of_what_was_set() {
        let told = |spec: LoadSpec| spec.layout(&namespace(), &controller()).unwrap_err().to_string();
        let (all, spec) = (1000 * 4096, LoadSpec { block_bytes: 1 << 20, threads: 4, ..LoadSpec::default() });
        let whole = told(spec.clone());
        assert!(
            whole.starts_with("the namespace has 4096000 bytes, room for 3 I/Os") && !whole.contains("--size"),
            "{whole}"
        );
        let behind = told(LoadSpec { offset_bytes: all, ..spec.clone() });
        assert!(
            behind.contains("--offset 4096000") && behind.contains("room for 0") && !behind.contains("--size"),
            "{behind}"
        );
        let size = told(LoadSpec { size_bytes: Some(1 << 20), ..spec });
        assert!(size.starts_with("--size 1048576 has room for 1 I/Os"), "{size}");
    }
}
