//! Background work caused by clients' writes, such as log appends and compaction.
//!
//! *Problem.* A database acknowledges a write once it is in memory, and later writes more data to its drive than it received. *Terms.* Completed
//! writes *add* bytes ([`crate::jobs::Job::adds`]). A job with a *share* ([`crate::jobs::Job::backlog_ppm`]) has to process this multiple of all
//! added bytes. *Algorithm.* It takes its work request by request, and waits while less than a whole request is left. It is *behind* by the bytes not
//! yet taken, in added bytes; a write of a job with a limit waits while any share is behind by more. *Properties* (tests below, against plain
//! addition; `tests/clients.rs`): due bytes are either taken or left, at every moment; no more is taken than was added; a share without additions
//! becomes idle.

const MILLION: u128 = 1_000_000;

/// The backlog of a job.
#[derive(Clone, Copy, Debug)]
struct JobBacklog {
    job: usize,
    /// Multiple of the added bytes, in millionths.
    ppm: u32,
    /// Bytes of a request.
    bytes: u64,
    taken_bytes: u64,
}

impl JobBacklog {
    fn due_bytes(self, added_bytes: u64) -> u64 {
        u64::try_from(u128::from(added_bytes) * u128::from(self.ppm) / MILLION).unwrap_or(u64::MAX)
    }

    fn left_bytes(self, added_bytes: u64) -> u64 {
        self.due_bytes(added_bytes) - self.taken_bytes
    }

    /// Whether a whole request is due.
    fn is_due(self, added_bytes: u64) -> bool {
        self.left_bytes(added_bytes) >= self.bytes
    }
}

/// Bytes added by clients and taken by each job.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    added_bytes: u64,
    shares: Vec<JobBacklog>,
}

impl Backlog {
    /// Adds a job that processes a multiple of the added bytes, in requests of `bytes`.
    pub(super) fn share(&mut self, job: usize, ppm: u32, bytes: u32) {
        self.shares.push(JobBacklog { job, ppm, bytes: u64::from(bytes), taken_bytes: 0 });
    }

    pub(super) fn add(&mut self, bytes: u32) {
        self.added_bytes += u64::from(bytes);
    }

    pub(super) fn added_bytes(&self) -> u64 {
        self.added_bytes
    }

    /// Number of jobs with a share.
    pub(super) fn shares(&self) -> usize {
        self.shares.len()
    }

    /// The job of a share.
    pub(super) fn job(&self, share: usize) -> usize {
        self.shares[share].job
    }

    /// Whether a whole request of a share is due.
    pub(super) fn is_due(&self, share: usize) -> bool {
        self.shares[share].is_due(self.added_bytes)
    }

    /// Takes a request of a job's share; returns whether one was due.
    pub(super) fn take(&mut self, job: usize) -> bool {
        let added_bytes = self.added_bytes;
        let Some(share) = self.shares.iter_mut().find(|share| share.job == job) else { return true };
        let has = share.is_due(added_bytes);
        share.taken_bytes += if has { share.bytes } else { 0 };
        has
    }

    /// Bytes that a job has not taken; 0 without a share.
    pub(super) fn left_bytes(&self, job: usize) -> u64 {
        self.shares.iter().find(|share| share.job == job).map_or(0, |share| share.left_bytes(self.added_bytes))
    }

    /// Whether the slowest share is behind by more than `bytes` added bytes; `false` for 0, which means no limit.
    pub(super) fn is_behind_by_more(&self, bytes: u64) -> bool {
        let behind = |share: &JobBacklog| {
            u128::from(share.left_bytes(self.added_bytes)) * MILLION > u128::from(bytes) * u128::from(share.ppm)
        };
        bytes > 0 && self.shares.iter().any(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add(u32),
        Take(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![(0_u32..10_000).prop_map(Step::Add), (0_usize..3).prop_map(Step::Take)]
    }

    proptest! {
        /// Against a full sum over all steps so far.
        #[test]
        fn what_is_due_was_taken_or_is_left(
            shares in prop::collection::vec((1_u32..20_000_000, 1_u32..50_000), 3),
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut backlog = Backlog::default();
            for (job, (ppm, bytes)) in shares.iter().enumerate() {
                backlog.share(job, *ppm, *bytes);
            }
            let (mut added, mut taken) = (0_u64, [0_u64; 3]);
            for step in steps {
                match step {
                    Step::Add(bytes) => {
                        backlog.add(bytes);
                        added += u64::from(bytes);
                    }
                    Step::Take(job) => {
                        let bytes = u64::from(shares[job].1);
                        let due = added * u64::from(shares[job].0) / 1_000_000;
                        let has = taken[job] + bytes <= due;
                        prop_assert_eq!(backlog.take(job), has);
                        taken[job] += if has { bytes } else { 0 };
                    }
                }
                let mut behind = 0_u64;
                for (job, (ppm, bytes)) in shares.iter().enumerate() {
                    let left = added * u64::from(*ppm) / 1_000_000 - taken[job];
                    prop_assert_eq!(backlog.left_bytes(job), left);
                    prop_assert_eq!((backlog.job(job), backlog.is_due(job)), (job, left >= u64::from(*bytes)));
                    behind = behind.max((left * 1_000_000).div_ceil(u64::from(*ppm)));
                }
                prop_assert!(behind < 2 || backlog.is_behind_by_more(behind - 1));
                prop_assert!(!backlog.is_behind_by_more(behind) && !backlog.is_behind_by_more(0));
                prop_assert_eq!(backlog.added_bytes(), added);
            }
        }
    }

    #[test]
    fn a_job_without_a_share_may_always_go_on() {
        let mut backlog = Backlog::default();
        assert!(backlog.take(0) && backlog.left_bytes(0) == 0 && !backlog.is_behind_by_more(1));
    }
}
