//! The quota compared with a naive implementation that advances tick by tick.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// Naive implementation of the rule.
struct Naive {
    period: u64,
    slice: u64,
    quota: Option<u64>,
    pool: u64,
    slices: Vec<u64>,
    waiting: Vec<usize>,
}

impl Naive {
    fn fill(&mut self) {
        self.slices.fill(0);
        self.pool = self.quota.unwrap_or(0);
        let waiting = std::mem::take(&mut self.waiting);
        for core in waiting {
            self.slices[core] = self.pool.min(self.slice);
            self.pool -= self.slices[core];
            if self.slices[core] == 0 && self.quota.is_some() {
                self.waiting.push(core);
            }
        }
    }

    /// Whether a runnable core runs in this tick.
    fn runs(&mut self, core: usize, wants: bool) -> bool {
        if self.waiting.contains(&core) {
            return false;
        }
        if !wants {
            self.pool += std::mem::take(&mut self.slices[core]);
            return false;
        }
        if self.quota.is_none() {
            return true;
        }
        if self.slices[core] == 0 {
            self.slices[core] = self.pool.min(self.slice);
            self.pool -= self.slices[core];
        }
        if self.slices[core] == 0 {
            self.waiting.push(core);
            return false;
        }
        self.slices[core] -= 1;
        true
    }
}

/// A core with loops of one tick.
#[derive(Default)]
struct Driven {
    share: CoreQuota,
    awake: u64,
    throttled: bool,
    look: u64,
    sleeps: bool,
}

impl Driven {
    fn runs(&mut self, pool: &mut QuotaPool, core: u16, now: u64, wants: bool) -> bool {
        if self.throttled {
            if pool.release_ns(core) > now || !self.share.run_again(pool, core, now, self.awake) {
                return false;
            }
            (self.throttled, self.look) = (false, now);
        }
        if !wants {
            if !std::mem::replace(&mut self.sleeps, true) {
                self.share.return_slice(pool, now, self.awake);
            }
            return false;
        }
        if std::mem::take(&mut self.sleeps) {
            self.look = now;
        }
        if self.look <= now {
            let Some(look) = self.share.check(pool, core, now, self.awake) else {
                self.throttled = true;
                return false;
            };
            self.look = look;
        }
        self.awake += 1;
        true
    }
}

const CORES: usize = 5;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For random loads and quotas, the same cores run in every tick, and no period exceeds its quotas.
    #[test]
    fn matches_the_naive_implementation(
        period in 4..40_u64, slice in 1..9_u64, seed in any::<u64>(), changes in 0..4_u64,
    ) {
        let mut draw = {
            let mut number = 0;
            move |below: u64| {
                number += 1;
                crate::rng::below(crate::rng::Stream::new(seed, crate::rng::Purpose::Machine, number).draw(), below)
            }
        };
        let mut naive =
            Naive { period, slice, quota: None, pool: 0, slices: vec![0; CORES], waiting: Vec::new() };
        let mut pool = QuotaPool::new(slice);
        let mut cores: Vec<Driven> = (0..CORES).map(|_| Driven::default()).collect();
        cores.iter_mut().for_each(|core| core.share.limit());
        let mut wants = [true; CORES];
        let (mut used, mut allowed) = (0, 0);
        for now in 0..20 * period {
            let changed = now == 3 || (now > 3 && draw(60) < changes);
            if changed {
                let quota = (draw(8) > 0 || now == 3).then(|| 1 + draw(period * CORES as u64));
                naive.quota = quota;
                naive.period = [period, period, 2 * period][draw(3) as usize];
                pool.order(now, quota, naive.period);
                cores.iter_mut().for_each(|core| core.look = core.look.min(now));
            }
            if now.is_multiple_of(naive.period) {
                (used, allowed) = (0, 0);
            }
            if changed || now.is_multiple_of(naive.period) {
                naive.fill();
                allowed += naive.quota.unwrap_or(1 << 30);
            }
            for (index, core) in cores.iter_mut().enumerate() {
                wants[index] ^= draw(12) == 0;
                let expected = naive.runs(index, wants[index]);
                let runs = core.runs(&mut pool, index as u16, now, wants[index]);
                prop_assert_eq!(runs, expected, "core {} at {}", index, now);
                used += u64::from(runs);
            }
            prop_assert!(now < 3 || used <= allowed, "{} of {} at {}", used, allowed, now);
        }
    }
}

/// Runs cores with the given loop lengths for `ms` milliseconds; returns the awake time of each, in nanoseconds.
fn awake_ns(quota_ns: u64, loops_ns: &[u64], wants: impl Fn(usize, u64) -> bool, ms: u64) -> Vec<u64> {
    let mut pool = QuotaPool::new(5 * MS);
    pool.order(0, Some(quota_ns), 100 * MS);
    let mut cores: Vec<(CoreQuota, u64, u64)> = loops_ns.iter().map(|_| (CoreQuota::default(), 0, 0)).collect();
    let mut throttled = vec![false; loops_ns.len()];
    loop {
        let next = |(index, (_, now_ns, _)): (usize, &(CoreQuota, u64, u64))| (*now_ns, index);
        let Some((now_ns, index)) = cores.iter().enumerate().map(next).min() else { break };
        if now_ns >= ms * MS {
            break;
        }
        let (share, at_ns, awake_ns) = &mut cores[index];
        if throttled[index] {
            throttled[index] = !share.run_again(&mut pool, index as u16, now_ns, *awake_ns);
        }
        if !throttled[index] && !wants(index, now_ns) {
            share.return_slice(&mut pool, now_ns, *awake_ns);
            *at_ns = now_ns + loops_ns[index];
            continue;
        }
        if throttled[index] || share.check(&mut pool, index as u16, now_ns, *awake_ns).is_none() {
            throttled[index] = true;
            *at_ns = pool.release_ns(index as u16).max(now_ns + 1);
            continue;
        }
        *at_ns = now_ns + loops_ns[index];
        *awake_ns += loops_ns[index];
    }
    cores.into_iter().map(|(_, _, awake_ns)| awake_ns).collect()
}

#[test]
fn a_single_busy_core_within_the_quota_is_never_throttled() {
    let all = awake_ns(100 * MS, &[300, 7_000, 7_000, 7_000], |core, _| core == 0, 1_000);
    assert!(all[0] >= 1_000 * MS && all[1..] == [0, 0, 0], "{all:?}");
}

#[test]
fn sleeping_cores_leave_their_time_to_running_ones() {
    let all = awake_ns(150 * MS, &[300, 400, 500, 600], |core, now_ns| core < 2 || now_ns < 10 * MS, 1_000);
    let (running, sleeping) = (all[0] + all[1], all[2] + all[3]);
    assert!(sleeping < 21 * MS, "{all:?}");
    assert!((running + sleeping).abs_diff(1_500 * MS) < 20_000, "all of the quota is used: {all:?}");
}

#[test]
fn a_quota_below_a_slice_alternates_between_cores() {
    let all = awake_ns(2 * MS, &[300; 4], |_, _| true, 4_000);
    let sum: u64 = all.iter().sum();
    assert!(sum.abs_diff(80 * MS) < 20_000, "{all:?}");
    assert!(all.iter().all(|ns| ns.abs_diff(20 * MS) < 10_000), "in turn: {all:?}");
}

#[test]
fn overuse_is_deducted_from_the_next_slice() {
    let all = awake_ns(10 * MS, &[7 * MS, 7 * MS], |_, _| true, 10_000);
    let sum: u64 = all.iter().sum();
    assert!(sum <= 1_000 * MS + 14 * MS && sum > 980 * MS, "{all:?}");
}
