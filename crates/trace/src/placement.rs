//! Selection of volumes and their assignment to clients, threads, partitions and SSDs: SANDMAN 5.6.
//!
//! The paper uses the 128 high-load volumes closest to 480 GB, on 128 partitions of 480 GB of 16 SSDs; 12 sets of clients with even
//! traffic, 8 to 12 volumes each, 8 threads per set. Details that it does not specify:
//!
//! - *High-load* volumes are the busiest quarter, and at least [`Plan::volumes`] ([`Plan::busiest_share`]).
//! - Sets have at least 3/4 and at most 9/8 of the mean number of volumes: 8 to 12 of 128 in 12.
//! - Volumes are assigned to sets from the busiest down, each to the set with the least traffic that has room; then volumes are moved and
//!   swapped between the busiest and the quietest set while that reduces their difference. Volumes of a set are assigned to threads in
//!   the same way.
//! - The i-th volume by number gets partition i, and partition i lies on SSD i / (partitions per SSD).
//!
//! **Properties** (tested): the traffic of any two sets, and of any two threads of a set, differs by at most the traffic of the busiest
//! volume. If the difference were larger, a volume of the busier side could be swapped for a quieter one, or the busier side would have
//! more volumes and could move one.

use serde::Serialize;

use crate::stats::VolumeTraffic;

/// A volume that may be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub volume: u32,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its traffic, in requests or bytes.
    pub traffic: u64,
}

impl From<VolumeTraffic> for Candidate {
    /// Traffic in requests; the size is the end of the last block that a request touches.
    fn from(traffic: VolumeTraffic) -> Self {
        Self { volume: traffic.volume, size_bytes: traffic.end_bytes, traffic: traffic.requests }
    }
}

/// Parameters of the assignment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Number of volumes and of partitions.
    pub volumes: usize,
    /// Fraction of the volumes that count as high-load.
    pub busiest_share: f64,
    /// Size of a partition, and preferred size of a volume, in bytes.
    pub partition_bytes: u64,
    /// Number of SSDs.
    pub ssds: usize,
    /// Number of client sets.
    pub sets: usize,
    /// Threads per set.
    pub threads: usize,
}

impl Default for Plan {
    /// SANDMAN 5.6.
    fn default() -> Self {
        Self { volumes: 128, busiest_share: 0.25, partition_bytes: 480_000_000_000, ssds: 16, sets: 12, threads: 8 }
    }
}

/// The assignment of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The volume.
    pub volume: u32,
    /// The client set that sends its requests.
    pub set: u32,
    /// The thread of the set.
    pub thread: u32,
    /// The partition that receives them.
    pub partition: u32,
    /// The SSD of the partition.
    pub ssd: u32,
    /// The volume's traffic.
    pub traffic: u64,
}

/// The assignment of all volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Sorted by volume.
    pub places: Vec<Place>,
    /// Bytes of a partition.
    pub partition_bytes: u64,
}

impl Placement {
    /// The assignment of a volume; `None` if it was not selected.
    #[must_use]
    pub fn find(&self, volume: u32) -> Option<&Place> {
        let at = self.places.binary_search_by_key(&volume, |place| place.volume).ok()?;
        self.places.get(at)
    }
}

/// Selects volumes and assigns them.
#[must_use]
pub fn assign(candidates: &[Candidate], plan: &Plan) -> Placement {
    let selected = select(candidates, plan);
    let traffic: Vec<u64> = selected.iter().map(|volume| volume.traffic).collect();
    let sets = distribute(&traffic, plan.sets);
    let mut threads = vec![0; selected.len()];
    for set in 0..plan.sets {
        let members: Vec<usize> = (0..selected.len()).filter(|&at| sets[at] == set).collect();
        let loads: Vec<u64> = members.iter().map(|&at| traffic[at]).collect();
        for (&at, thread) in members.iter().zip(distribute(&loads, plan.threads)) {
            threads[at] = thread;
        }
    }
    let per_ssd = plan.volumes.div_ceil(plan.ssds.max(1)).max(1);
    let place = |(at, volume): (usize, &Candidate)| Place {
        volume: volume.volume,
        set: sets[at] as u32,
        thread: threads[at] as u32,
        partition: at as u32,
        ssd: (at / per_ssd) as u32,
        traffic: volume.traffic,
    };
    Placement { places: selected.iter().enumerate().map(place).collect(), partition_bytes: plan.partition_bytes }
}

/// The busy volumes whose size is closest to a partition's, sorted by number.
fn select(candidates: &[Candidate], plan: &Plan) -> Vec<Candidate> {
    let mut all = candidates.to_vec();
    all.sort_unstable_by_key(|volume| (std::cmp::Reverse(volume.traffic), volume.volume));
    let busy = (all.len() as f64 * plan.busiest_share).ceil() as usize;
    all.truncate(busy.max(plan.volumes));
    all.sort_by_key(|volume| (volume.size_bytes.abs_diff(plan.partition_bytes), volume.volume));
    all.truncate(plan.volumes);
    all.sort_unstable_by_key(|volume| volume.volume);
    all
}

/// Groups during assignment.
struct Groups<'a> {
    traffic: &'a [u64],
    members: Vec<Vec<usize>>,
    loads: Vec<u64>,
    min_members: usize,
    max_members: usize,
}

/// Assigns items to `groups` groups of about the same number and traffic; returns the group of each item.
fn distribute(traffic: &[u64], groups: usize) -> Vec<usize> {
    let groups = groups.max(1);
    let mean = traffic.len() as f64 / groups as f64;
    let mut all = Groups {
        traffic,
        members: vec![Vec::new(); groups],
        loads: vec![0; groups],
        min_members: ((mean * 0.75) as usize).max(usize::from(traffic.len() >= groups)),
        max_members: (mean * 1.125).ceil() as usize,
    };
    all.fill();
    while all.improve() {}
    let mut group_of = vec![0; traffic.len()];
    for (group, members) in all.members.iter().enumerate() {
        members.iter().for_each(|&item| group_of[item] = group);
    }
    group_of
}

impl Groups<'_> {
    /// Assigns items from the busiest down, each to the quietest group with room.
    fn fill(&mut self) {
        let mut items: Vec<usize> = (0..self.traffic.len()).collect();
        items.sort_by_key(|&item| (std::cmp::Reverse(self.traffic[item]), item));
        for (done, &item) in items.iter().enumerate() {
            let lacking: usize =
                self.members.iter().map(|members| self.min_members.saturating_sub(members.len())).sum();
            let room = if items.len() - done > lacking { self.max_members } else { self.min_members };
            let groups = (0..self.members.len()).filter(|&group| self.members[group].len() < room);
            let group = groups.min_by_key(|&group| (self.loads[group], group)).unwrap_or(0);
            self.members[group].push(item);
            self.loads[group] += self.traffic[item];
        }
    }

    /// Reduces the difference of the busiest and the quietest group by one move or swap; returns whether there was one.
    fn improve(&mut self) -> bool {
        let groups = 0..self.members.len();
        let Some(busy) = groups.clone().max_by_key(|&group| (self.loads[group], group)) else { return false };
        let Some(quiet) = groups.min_by_key(|&group| (self.loads[group], group)) else { return false };
        let apart = self.loads[busy] - self.loads[quiet];
        let Some((from, to)) = self.best_exchange(busy, quiet, apart) else { return false };
        let given = self.members[busy].swap_remove(from);
        let taken = to.map(|to| self.members[quiet].swap_remove(to));
        let moved = self.traffic[given] - taken.map_or(0, |item| self.traffic[item]);
        self.members[quiet].push(given);
        self.members[busy].extend(taken);
        self.loads[busy] -= moved;
        self.loads[quiet] += moved;
        true
    }

    /// The member to move and the member to swap it for (none for a move) that minimize the difference; `None` if nothing reduces it.
    fn best_exchange(&self, busy: usize, quiet: usize, apart: u64) -> Option<(usize, Option<usize>)> {
        let may_move = self.members[busy].len() > self.min_members && self.members[quiet].len() < self.max_members;
        let takes = (0..self.members[quiet].len()).map(Some).chain(may_move.then_some(None));
        let pairs = takes.flat_map(|to| (0..self.members[busy].len()).map(move |from| (from, to)));
        let difference = |&(from, to): &(usize, Option<usize>)| {
            let given = self.traffic[self.members[busy][from]];
            let taken = to.map_or(0, |to| self.traffic[self.members[quiet][to]]);
            let moved = given.checked_sub(taken).filter(|&moved| moved > 0 && moved < apart)?;
            Some((apart - moved).abs_diff(moved))
        };
        pairs.filter_map(|pair| Some((difference(&pair)?, pair))).min().map(|(_, pair)| pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

    fn volumes(traffic: &[u64]) -> Vec<Candidate> {
        let candidate = |(volume, &traffic): (usize, &u64)| Candidate {
            volume: volume as u32,
            size_bytes: 480_000_000_000,
            traffic,
        };
        traffic.iter().enumerate().map(candidate).collect()
    }

    /// Number of members and traffic of each group.
    fn groups(places: &[Place], key: impl Fn(&Place) -> u32, count: usize) -> Vec<(usize, u64)> {
        let mut all = vec![(0, 0); count];
        for place in places {
            let group = &mut all[key(place) as usize];
            *group = (group.0 + 1, group.1 + place.traffic);
        }
        all
    }

    fn spread(groups: &[(usize, u64)]) -> u64 {
        groups.iter().map(|g| g.1).max().unwrap_or(0) - groups.iter().map(|g| g.1).min().unwrap_or(0)
    }

    /// Traffic from even to very skewed.
    fn any_traffic() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec((0_u32..40, any::<u16>()), 128)
            .prop_map(|all| all.into_iter().map(|(shift, n)| u64::from(n) << shift >> 16).collect())
    }

    proptest! {
        #[test]
        fn sets_and_threads_are_balanced(traffic in any_traffic()) {
            let placement = assign(&volumes(&traffic), &Plan::default());
            let busiest = |places: &[Place]| places.iter().map(|place| place.traffic).max().unwrap_or(0);
            let sets = groups(&placement.places, |place| place.set, 12);
            prop_assert!(sets.iter().all(|&(volumes, _)| (8..=12).contains(&volumes)), "{sets:?}");
            prop_assert!(spread(&sets) <= busiest(&placement.places), "{sets:?}");
            for set in 0..12 {
                let own: Vec<Place> = placement.places.iter().copied().filter(|place| place.set == set).collect();
                let threads = groups(&own, |place| place.thread, 8);
                prop_assert!(threads.iter().all(|&(volumes, _)| (1..=2).contains(&volumes)), "{threads:?}");
                prop_assert!(spread(&threads) <= busiest(&own), "{threads:?}");
            }
            let ssds = groups(&placement.places, |place| place.ssd, 16);
            prop_assert!(ssds.iter().all(|&(partitions, _)| partitions == 8));
        }

        #[test]
        fn the_result_does_not_depend_on_the_order_of_the_candidates(traffic in any_traffic(), turn in 0_usize..128) {
            let mut turned = volumes(&traffic);
            let expected = assign(&turned, &Plan::default());
            turned.rotate_left(turn);
            prop_assert_eq!(assign(&turned, &Plan::default()), expected);
        }

        #[test]
        fn all_selected_volumes_are_assigned(
            traffic in proptest::collection::vec(0_u64..1000, 0..40), sets in 1_usize..15, threads in 1_usize..5,
        ) {
            let plan = Plan { volumes: 30, sets, threads, ..Plan::default() };
            let placement = assign(&volumes(&traffic), &plan);
            prop_assert_eq!(placement.places.len(), traffic.len().min(30));
            prop_assert!(placement.places.iter().all(|p| p.set < sets as u32 && p.thread < threads as u32));
        }
    }

    #[test]
    fn exchanges_improve_the_greedy_assignment() {
        // greedy: 3 + 2 + 2 and 3 + 2
        let traffic = [3, 3, 2, 2, 2];
        let groups = distribute(&traffic, 2);
        let load =
            |group| traffic.iter().zip(&groups).filter(|&(_, &of)| of == group).map(|(load, _)| load).sum::<u64>();
        assert_eq!((load(0), load(1)), (6, 6));
    }

    #[test]
    fn busy_volumes_of_the_preferred_size_are_selected() {
        let gb = |volume: u32, gb: u64, traffic| Candidate { volume, size_bytes: gb * 1_000_000_000, traffic };
        let all = [gb(7, 480, 1), gb(1, 40, 90), gb(2, 500, 80), gb(3, 460, 70), gb(4, 2000, 60), gb(5, 300, 50)];
        let plan = Plan { volumes: 2, busiest_share: 0.5, ..Plan::default() };
        let chosen: Vec<u32> = assign(&all, &plan).places.iter().map(|place| place.volume).collect();
        assert_eq!(chosen, [2, 3], "7 has the preferred size but is quiet");
    }
}
