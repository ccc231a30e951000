//! Choice of the next command and its address.

use crate::info::{ControllerInfo, NamespaceInfo};
use crate::load::files::FileOrder;
use crate::load::spec::{Layout, LoadSpec};
use crate::rng::Rng;

/// Kind of a command; also an index into statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    WriteZeroes,
    Deallocate,
    Flush,
}

impl Kind {
    pub(crate) const COUNT: usize = 5;

    /// Whether it changes blocks.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::Deallocate)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteZeroes => "write zeroes",
            Self::Deallocate => "deallocate",
            Self::Flush => "flush",
        }
    }
}

/// Order of a connection's addresses.
#[derive(Debug)]
enum Order {
    Random,
    /// The next region.
    Sequential(u64),
    Files(FileOrder),
}

/// One connection's source of commands.
#[derive(Debug)]
pub(crate) struct Picker {
    rng: Rng,
    order: Order,
    first_lba: u64,
    regions: u64,
    blocks_per_io: u64,
    /// Thresholds out of 2^16: below the first a read, below the second a write, else a trim.
    read_below: u32,
    write_below: u32,
    trims: [Kind; 2],
    next_trim: usize,
}

impl Picker {
    /// Commands for connection `job` of `jobs` that share `layout`.
    pub(crate) fn new(
        spec: &LoadSpec,
        layout: &Layout,
        controller: &ControllerInfo,
        ns: &NamespaceInfo,
        job: u64,
    ) -> Self {
        let read = u32::from(spec.read_percent) << 16;
        let writes = (100 - u32::from(spec.read_percent)) * (100 - u32::from(spec.trim_percent));
        let read_below = read / 100;
        Self {
            rng: Rng::fork(spec.seed, job),
            order: order(spec, layout, job),
            first_lba: layout.first_lba,
            regions: layout.regions,
            blocks_per_io: u64::from(layout.blocks_per_io),
            read_below,
            write_below: if spec.trim_percent == 0 { 1 << 16 } else { read_below + (writes << 16) / 10_000 },
            trims: trims(spec.verify, controller, ns),
            next_trim: 0,
        }
    }

    /// The next command and its first block.
    #[inline]
    pub(crate) fn pick(&mut self) -> (Kind, u64) {
        let draw = self.rng.next_u64();
        let choice = draw as u32 & 0xffff;
        let kind = if choice < self.read_below {
            Kind::Read
        } else if choice < self.write_below {
            Kind::Write
        } else {
            self.next_trim ^= 1;
            self.trims[self.next_trim]
        };
        (kind, self.first_lba + self.region(draw) * self.blocks_per_io)
    }

    #[inline]
    fn region(&mut self, draw: u64) -> u64 {
        match &mut self.order {
            Order::Random => ((u128::from(draw) * u128::from(self.regions)) >> 64) as u64,
            Order::Sequential(next) => {
                let region = *next;
                *next = if region + 1 >= self.regions { 0 } else { region + 1 };
                region
            }
            Order::Files(files) => files.region(),
        }
    }
}

fn order(spec: &LoadSpec, layout: &Layout, job: u64) -> Order {
    let jobs = u64::from(spec.jobs);
    match spec.file_bytes {
        Some(bytes) => {
            let per_file = bytes.div_ceil(u64::from(spec.block_bytes));
            Order::Files(FileOrder::new(layout.regions, per_file, spec.seed, (job, jobs), spec.depth))
        }
        None if spec.random => Order::Random,
        None => Order::Sequential(layout.regions * job / jobs),
    }
}

/// Commands of trims, in turn. Verification requires zeroes afterwards, which not every target guarantees for a deallocation.
fn trims(verify: bool, controller: &ControllerInfo, ns: &NamespaceInfo) -> [Kind; 2] {
    let deallocate = controller.can_deallocate() && (!verify || ns.deallocated_reads_zero);
    match (controller.can_write_zeroes(), deallocate) {
        (true, true) => [Kind::WriteZeroes, Kind::Deallocate],
        (false, true) => [Kind::Deallocate; 2],
        _ => [Kind::WriteZeroes; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picker(spec: &LoadSpec, job: u64) -> Picker {
        let layout = Layout { first_lba: 64, regions: 100, blocks_per_io: 8, block_size: 512 };
        let mut controller = ControllerInfo::decode(&[0; 4096]);
        controller.oncs = 0b1100;
        let ns = NamespaceInfo { nsid: 1, blocks: 10_000, block_size: 512, deallocated_reads_zero: true };
        Picker::new(spec, &layout, &controller, &ns, job)
    }

    #[test]
    fn random_addresses_cover_the_range_evenly_and_stay_in_it() {
        let mut p = picker(&LoadSpec::default(), 0);
        let mut seen = [0u32; 100];
        for _ in 0..100_000 {
            let (kind, lba) = p.pick();
            assert_eq!((kind, lba % 8), (Kind::Read, 0));
            seen[((lba - 64) / 8) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n.abs_diff(1000) < 190), "{seen:?}");
    }

    #[test]
    fn sequential_connections_start_at_different_regions_and_wrap() {
        let spec = LoadSpec { random: false, jobs: 4, ..LoadSpec::default() };
        let mut p = picker(&spec, 3);
        let lbas: Vec<u64> = (0..30).map(|_| (p.pick().1 - 64) / 8).collect();
        assert_eq!(lbas, (75..100).chain(0..5).collect::<Vec<_>>());
    }

    #[test]
    fn a_connection_reads_as_many_files_at_a_time_as_its_depth() {
        let spec = LoadSpec { random: false, file_bytes: Some(10 * 4096 - 100), depth: 2, ..LoadSpec::default() };
        let mut p = picker(&spec, 0);
        let regions: Vec<u64> = (0..20).map(|_| (p.pick().1 - 64) / 8).collect();
        for file in [0, 1] {
            let read: Vec<u64> = regions.iter().skip(file).step_by(2).copied().collect();
            assert!(read[0].is_multiple_of(10) && read.is_sorted() && read[9] == read[0] + 9, "{regions:?}");
        }
        assert_ne!(regions[0], regions[1], "two files");
    }

    #[test]
    fn the_mix_matches_the_spec() {
        let spec = LoadSpec { read_percent: 70, trim_percent: 50, ..LoadSpec::default() };
        let mut p = picker(&spec, 0);
        let mut counts = [0u32; Kind::COUNT];
        (0..100_000).for_each(|_| counts[p.pick().0 as usize] += 1);
        for (kind, expected) in [(0, 70_000), (1, 15_000), (2, 7_500), (3, 7_500), (4, 0)] {
            assert!(counts[kind].abs_diff(expected) < 900, "{counts:?}");
        }
        let mut writes = picker(&LoadSpec { read_percent: 0, ..LoadSpec::default() }, 0);
        assert!((0..10_000).all(|_| writes.pick().0 == Kind::Write));
    }
}
