//! Traffic of each volume.

use std::collections::HashMap;

use serde::Serialize;

use crate::read::MAX_VOLUMES;
use crate::request::Request;

/// Traffic of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumeTraffic {
    /// Its number.
    pub volume: u32,
    /// Requests.
    pub requests: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Highest end of a request, a lower bound of the size, in bytes.
    pub end_bytes: u64,
}

/// Distribution of requests over volumes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeSummary {
    /// Volumes with requests.
    pub volumes: u64,
    /// Fraction of the requests of the busiest volume; `None` without requests.
    pub busiest_share: Option<f64>,
    /// Fraction of the requests of the busiest tenth of the volumes (at least one).
    pub busiest_tenth_share: Option<f64>,
    /// Requests of volumes beyond the first 2^20, which are not tracked.
    pub untracked_requests: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Volumes {
    indices: HashMap<u32, usize>,
    all: Vec<VolumeTraffic>,
    untracked: u64,
    /// Index of the last volume: requests of a volume come in runs.
    last: usize,
}

impl Volumes {
    pub(super) fn add(&mut self, request: &Request) {
        if self.all.get(self.last).is_none_or(|last| last.volume != request.volume) {
            let Some(index) = self.index(request.volume) else {
                self.untracked += 1;
                return;
            };
            self.last = index;
        }
        let traffic = &mut self.all[self.last];
        traffic.requests += 1;
        traffic.bytes += u64::from(request.bytes);
        traffic.end_bytes = traffic.end_bytes.max(request.offset.saturating_add(u64::from(request.bytes)));
    }

    fn index(&mut self, volume: u32) -> Option<usize> {
        if let Some(&index) = self.indices.get(&volume) {
            return Some(index);
        }
        if self.all.len() >= MAX_VOLUMES {
            return None;
        }
        self.indices.insert(volume, self.all.len());
        self.all.push(VolumeTraffic { volume, ..VolumeTraffic::default() });
        Some(self.all.len() - 1)
    }

    pub(super) fn sorted(&self) -> Vec<VolumeTraffic> {
        let mut all = self.all.clone();
        all.sort_unstable_by_key(|traffic| traffic.volume);
        all
    }

    pub(super) fn summary(&self) -> VolumeSummary {
        let mut requests: Vec<u64> = self.all.iter().map(|traffic| traffic.requests).collect();
        requests.sort_unstable_by(|a, b| b.cmp(a));
        let total: u64 = requests.iter().sum::<u64>() + self.untracked;
        let share = |count: usize| {
            let part: u64 = requests.iter().take(count).sum();
            (total > 0).then(|| part as f64 / total as f64)
        };
        VolumeSummary {
            volumes: requests.len() as u64,
            busiest_share: share(1),
            busiest_tenth_share: share(requests.len().div_ceil(10)),
            untracked_requests: self.untracked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    #[test]
    fn traffic_is_counted_by_volume() {
        let mut volumes = Volumes::default();
        for (volume, offset, bytes) in [(9, 0, 10), (2, 100, 5), (9, 50, 20), (9, 0, 1)] {
            volumes.add(&Request { at_ns: 0, volume, op: Op::Write, offset, bytes });
        }
        let expected = [
            VolumeTraffic { volume: 2, requests: 1, bytes: 5, end_bytes: 105 },
            VolumeTraffic { volume: 9, requests: 3, bytes: 31, end_bytes: 70 },
        ];
        assert_eq!(volumes.sorted(), expected);
        let summary = volumes.summary();
        assert_eq!((summary.volumes, summary.busiest_share, summary.busiest_tenth_share), (2, Some(0.75), Some(0.75)));
    }
}
