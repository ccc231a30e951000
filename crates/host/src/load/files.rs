//! The order of a training job's reads: whole files from their beginning, in an order shuffled for each epoch.

use std::ops::Range;

use crate::rng::Rng;

/// Read order of a connection. The connections of a range share its epochs: together they read each file once in each.
#[derive(Debug)]
pub(crate) struct FileOrder {
    /// I/O-sized pieces of a file.
    regions_per_file: u64,
    seed: u64,
    /// Position of the connection's next file in the common sequence, and the number of connections.
    next: u64,
    connections: u64,
    /// Numbers of the files in the order of `epoch`.
    order: Vec<u32>,
    epoch: Option<u64>,
    /// Unread regions of the open files, and the index of the next one to read.
    open: Vec<Range<u64>>,
    turn: usize,
}

impl FileOrder {
    /// Files of `regions_per_file` in a range of `regions` (a partial file at its end is not read; a range smaller than a file
    /// is one file), for one of `connections`, which reads `open` of them at a time.
    pub(crate) fn new(
        regions: u64,
        regions_per_file: u64,
        seed: u64,
        (connection, connections): (u64, u64),
        open: u16,
    ) -> Self {
        let regions_per_file = regions_per_file.clamp(1, regions.max(1));
        let files = u32::try_from(regions / regions_per_file).unwrap_or(u32::MAX).max(1);
        Self {
            regions_per_file,
            seed,
            next: connection,
            connections,
            order: (0..files).collect(),
            epoch: None,
            open: vec![0..0; usize::from(open.max(1))],
            turn: 0,
        }
    }

    /// The next region.
    #[inline]
    pub(crate) fn region(&mut self) -> u64 {
        if self.open[self.turn].is_empty() {
            let first = u64::from(self.next_file()) * self.regions_per_file;
            self.open[self.turn] = first..first + self.regions_per_file;
        }
        let file = &mut self.open[self.turn];
        let region = file.start;
        file.start += 1;
        self.turn = if self.turn + 1 == self.open.len() { 0 } else { self.turn + 1 };
        region
    }

    fn next_file(&mut self) -> u32 {
        let files = self.order.len() as u64;
        let (epoch, at) = (self.next / files, self.next % files);
        if self.epoch != Some(epoch) {
            self.shuffle(epoch);
        }
        self.next += self.connections;
        self.order[at as usize]
    }

    /// Fisher-Yates, the same for every connection.
    fn shuffle(&mut self, epoch: u64) {
        let mut rng = Rng::fork(self.seed, epoch | 3 << 32);
        self.order.iter_mut().enumerate().for_each(|(at, file)| *file = at as u32);
        for at in (1..self.order.len()).rev() {
            self.order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        self.epoch = Some(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that a connection reads; each must be read from its first region to its last.
    fn files(mut order: FileOrder, count: usize, per_file: u64) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let first = order.region();
                assert_eq!(first % per_file, 0, "from its beginning");
                (1..per_file).for_each(|n| assert_eq!(order.region(), first + n));
                first / per_file
            })
            .collect()
    }

    #[test]
    fn connections_together_read_each_file_once_in_an_epoch() {
        let order = |connection| FileOrder::new(205, 10, 7, (connection, 4), 1);
        let read: Vec<_> = (0..4).map(|connection| files(order(connection), 10, 10)).collect();
        for epoch in 0..2 {
            let mut all: Vec<u64> = read.iter().flat_map(|files| files[epoch * 5..][..5].to_vec()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..20).collect::<Vec<_>>(), "epoch {epoch}; half a file at the end is not read");
        }
        assert_ne!(read[0][..5], read[0][5..], "another order in each epoch");
        let again: Vec<_> = (0..4).map(|connection| files(order(connection), 10, 10)).collect();
        assert_eq!(read, again, "one seed, one order");
        assert_ne!(read[0], files(FileOrder::new(205, 10, 8, (0, 4), 1), 10, 10), "another seed, another order");
    }

    #[test]
    fn open_files_are_read_in_turn() {
        let mut order = FileOrder::new(100, 10, 1, (0, 1), 3);
        let read: Vec<u64> = (0..30).map(|_| order.region()).collect();
        for of_file in 0..3 {
            let regions: Vec<u64> = read.iter().skip(of_file).step_by(3).copied().collect();
            assert_eq!(regions, (regions[0]..regions[0] + 10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_range_smaller_than_a_file_is_one_file() {
        assert_eq!(files(FileOrder::new(7, 1000, 1, (3, 16), 1), 3, 7), [0; 3]);
    }
}
