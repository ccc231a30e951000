//! Buckets on simulated I/O threads with a simulated clock, checked against a log of all admitted commands.

use std::collections::VecDeque;
use std::sync::Arc;

use pilotlight_storage::Random;
use proptest::prelude::*;

use super::turns::{LEASE_NS, max_lead};
use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const LARGEST: u64 = 128 << 10;

#[derive(Clone, Copy)]
struct Command {
    since_ns: u64,
    bytes: u64,
}

/// An admitted command.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    at_ns: u64,
    bytes: u64,
    host: usize,
    waited_ns: u64,
}

/// The commands of one host on one I/O thread.
struct Queue {
    host: usize,
    waiting: VecDeque<Command>,
    /// Number of waiting commands, and their size.
    depth: usize,
    bytes: u64,
}

struct Thread {
    bucket: Bucket,
    queues: Vec<Queue>,
    /// Time of the next poll.
    poll_ns: u64,
}

/// I/O threads serving one namespace.
struct Plant {
    limit: Arc<Limit>,
    threads: Vec<Thread>,
    random: Random,
    log: Vec<Admitted>,
    /// Maximum interval of polls of a thread.
    pause_ns: u64,
    /// One admitted command in this many is abandoned and returns its bytes; 0: none.
    abandon_one_in: u64,
    returned: u64,
}

impl Plant {
    fn new(threads: usize, seed: u64) -> Self {
        let caps = Caps::default();
        let limit = Arc::new(Limit::default());
        caps.add_namespace(&limit, None, threads as u32);
        let thread = |_| Thread { bucket: Bucket::new(Arc::clone(&limit)), queues: Vec::new(), poll_ns: 0 };
        Self {
            threads: (0..threads).map(thread).collect(),
            limit,
            random: Random::new(seed),
            log: Vec::new(),
            pause_ns: MS / 5,
            abandon_one_in: 0,
            returned: 0,
        }
    }

    /// A queue of `host` on `thread` that keeps `depth` commands of `bytes` bytes waiting.
    fn add(&mut self, thread: usize, host: usize, depth: usize, bytes: u64) {
        let queue = Queue { host, waiting: VecDeque::new(), depth, bytes };
        self.threads[thread].queues.push(queue);
    }

    fn cap(&self, rate: u64, now_ns: u64) {
        self.limit.set(Setter::Operator, Some(rate), now_ns);
    }

    fn run(&mut self, from_ns: u64, to_ns: u64) {
        self.threads.iter_mut().for_each(|thread| thread.poll_ns = thread.poll_ns.max(from_ns));
        loop {
            let next = self.threads.iter().enumerate().min_by_key(|(at, thread)| (thread.poll_ns, *at));
            let Some((at, thread)) = next else { return };
            let now_ns = thread.poll_ns;
            if now_ns >= to_ns {
                return;
            }
            self.poll(at, now_ns);
            self.threads[at].poll_ns = now_ns + 1 + self.random.below(self.pause_ns);
        }
    }

    fn poll(&mut self, at: usize, now_ns: u64) {
        let Thread { bucket, queues, .. } = &mut self.threads[at];
        for queue in queues {
            queue.waiting.resize(queue.depth, Command { since_ns: now_ns, bytes: queue.bytes });
            while let Some(&Command { since_ns, bytes }) = queue.waiting.front() {
                let claim = Claim { host: queue.host as u32, since_ns };
                if bucket.admit(bytes, claim, now_ns).is_err() {
                    break;
                }
                queue.waiting.pop_front();
                if self.abandon_one_in > 0 && self.random.below(self.abandon_one_in) == 0 {
                    bucket.release(bytes);
                    self.returned += bytes;
                    continue;
                }
                self.log.push(Admitted { at_ns: now_ns, bytes, host: queue.host, waited_ns: now_ns - since_ns });
            }
        }
    }

    /// Maximum bytes in any window of `window_ns`.
    fn most_in(&self, window_ns: u64) -> u64 {
        let (mut first, mut sum, mut most) = (0, 0, 0);
        for last in 0..self.log.len() {
            sum += self.log[last].bytes;
            while self.log[first].at_ns + window_ns <= self.log[last].at_ns {
                sum -= self.log[first].bytes;
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    fn bytes(&self, of: impl Fn(&Admitted) -> bool) -> u64 {
        self.log.iter().filter(|admitted| of(admitted)).map(|admitted| admitted.bytes).sum()
    }
}

fn percent_of(rate: u64, percent: u64, ns: u64) -> u64 {
    (u128::from(rate) * u128::from(percent) * u128::from(ns) / 100 / u128::from(S)) as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// For any load of any number of I/O threads and hosts: no second has more than 1.02 times the cap and one largest request,
    /// and with commands always waiting, none has less than 0.98 times the cap minus a request.
    #[test]
    fn the_cap_is_kept_in_every_second(
        rate in prop_oneof![Just(1_000_000u64), 10_000_000..2_000_000_000u64],
        threads in 1usize..9,
        queues in prop::collection::vec((0usize..5, 0usize..8, 1usize..40, 1u64..33), 1..10),
        abandon_one_in in prop_oneof![Just(0u64), 2..20u64],
        seed: u64,
    ) {
        let mut plant = Plant::new(threads, seed);
        plant.abandon_one_in = abandon_one_in;
        for (host, thread, depth, blocks) in queues {
            // larger commands for a large cap, to bound the log
            let bytes = (blocks * 4096).max(rate / 50_000 / 4096 * 4096).min(LARGEST);
            plant.add(thread % threads, host, depth, bytes);
        }
        plant.cap(rate, 0);
        plant.run(S, 3 * S + S / 2);
        let most = plant.most_in(S);
        prop_assert!(most <=percent_of(rate, 102, S) + LARGEST, "{most} bytes in a second at {rate}");
        // enough waiting commands for the longest interval of polls
        let busy = plant.threads.iter().flat_map(|thread| &thread.queues).map(|queue| queue.depth as u64 * queue.bytes);
        if busy.max() >= Some(2 *percent_of(rate, 100, plant.pause_ns) + 2 * LARGEST) {
            let least = plant.bytes(|admitted| (2 * S..3 * S).contains(&admitted.at_ns));
            prop_assert!(least + LARGEST >=percent_of(rate, 98, S), "{least} bytes in a second at {rate}");
        }
    }

    /// Hosts with enough waiting commands get equal parts, for any distribution over I/O threads.
    #[test]
    fn hosts_get_equal_parts(
        rate in 20_000_000..400_000_000u64,
        threads in 1usize..7,
        queues in prop::collection::vec((0usize..6, 4usize..64, 1u64..33), 0..10),
        seed: u64,
    ) {
        let mut plant = Plant::new(threads, seed);
        // each host has a sufficient queue, and the first has more
        for host in 0..3 {
            plant.add(host % threads, host, 64, 32 << 10);
        }
        for (thread, depth, blocks) in queues {
            plant.add(thread % threads, 0, depth, blocks * 4096);
        }
        plant.cap(rate, 0);
        plant.run(S, 2 * S);
        let part = |host| plant.bytes(|admitted| admitted.host == host && admitted.at_ns >= S + 100 * MS);
        let parts = [part(0), part(1), part(2)];
        let (least, most) = (parts.iter().min().copied().unwrap_or(0), parts.iter().max().copied().unwrap_or(0));
        prop_assert!(most - least <= 2 * (max_lead(rate) + LARGEST), "{parts:?} at {rate}");
    }

    /// No command waits much longer than the queue in front of it takes.
    #[test]
    fn no_command_starves(
        rate in 20_000_000..200_000_000u64,
        threads in 2usize..9,
        hosts in 1usize..4,
        seed: u64,
    ) {
        let mut plant = Plant::new(threads, seed);
        let mut queued = 0;
        for thread in 0..threads {
            for host in 0..hosts {
                plant.add(thread, host, 8, 16 << 10);
                queued += 8 * (16 << 10);
            }
        }
        plant.pause_ns = 100_000;
        plant.cap(rate, 0);
        plant.run(S, 2 * S);
        let longest = plant.log.iter().map(|admitted| admitted.waited_ns).max().unwrap_or(0);
        let queue_ns = (u128::from(queued as u64) * u128::from(S) / u128::from(rate)) as u64;
        prop_assert!(longest <= 2 * queue_ns + 2 * LEASE_NS, "{longest} ns at {queue_ns} ns of queue");
    }
}

/// A host with one command at a time is served promptly beside one that saturates the cap.
#[test]
fn a_host_with_few_commands_does_not_wait_for_a_long_queue() {
    let mut plant = Plant::new(4, 7);
    (0..4).for_each(|thread| plant.add(thread, 0, 128, 64 << 10));
    plant.add(3, 1, 1, 4096);
    plant.cap(100_000_000, 0);
    plant.run(S, 2 * S);
    let waits: Vec<u64> = plant.log.iter().filter(|one| one.host == 1).map(|one| one.waited_ns).collect();
    let longest = waits.iter().max().copied().unwrap_or(u64::MAX);
    assert!(waits.len() > 500, "{} commands", waits.len());
    assert!(longest < 10 * MS, "{longest} ns, though the other host's queue takes seconds");
}

/// Two I/O threads of one host polled in a fixed order share the cap.
#[test]
fn the_thread_polled_second_gets_turns() {
    let (mut one, mut two) = (Plant::new(2, 1), [0u64; 2]);
    one.cap(50_000_000, 0);
    let mut waiting = [S; 2];
    for now_ns in (S..2 * S).step_by(10_000) {
        for thread in 0..2 {
            let claim = Claim { host: 0, since_ns: waiting[thread] };
            while one.threads[thread]
                .bucket
                .admit(16 << 10, Claim { since_ns: waiting[thread], ..claim }, now_ns)
                .is_ok()
            {
                two[thread] += 16 << 10;
                waiting[thread] = now_ns;
            }
        }
    }
    assert!(two[1] * 3 > two[0], "{two:?}");
}

/// Returned bytes are available at once; dropping a bucket returns its bytes.
#[test]
fn abandoned_commands_and_buckets_return_their_bytes() {
    let limit = Arc::new(Limit::default());
    limit.set(Setter::Operator, Some(100_000_000), 0);
    let claim = Claim { host: 0, since_ns: S };
    let mut bucket = Bucket::new(Arc::clone(&limit));
    for _ in 0..1_000 {
        assert_eq!(bucket.admit(LARGEST, claim, S), Ok(true), "returned bytes are available");
        bucket.release(LARGEST);
    }
    assert_eq!(limit.stats().bytes, 0);
    drop(bucket);
    let (mut taken, mut after) = (0, Bucket::new(Arc::clone(&limit)));
    while after.admit(4096, claim, S).is_ok() {
        taken += 4096;
    }
    assert!(taken >= percent_of(100_000_000, 100, DEPTH_NS) - 4096, "{taken} bytes of the kept budget");
}

/// A changed cap applies at once: overspending is converted, and slices of the old cap are discarded.
#[test]
fn a_cap_can_change_at_any_moment() {
    let limit = Arc::new(Limit::default());
    let claim = Claim { host: 0, since_ns: S };
    let mut bucket = Bucket::new(Arc::clone(&limit));
    assert_eq!(bucket.admit(LARGEST, claim, S), Ok(false), "no cap, no charge");
    limit.set(Setter::Operator, Some(10_000_000_000), S);
    assert_eq!(bucket.admit(4096, claim, S), Ok(true));
    limit.set(Setter::Policy, Some(1_000_000), S);
    let mut now_ns = S;
    let mut taken = 0;
    while now_ns < 2 * S {
        match bucket.admit(4096, claim, now_ns) {
            Ok(_) => taken += 4096,
            Err(until_ns) => now_ns = until_ns.clamp(now_ns + 1, now_ns + MS),
        }
    }
    assert!(taken <= 1_020_000 + LARGEST, "{taken} bytes: the lower cap applies");
    limit.set(Setter::Policy, None, now_ns);
    assert!(bucket.admit(4096, claim, now_ns + 2 * MS).is_ok(), "the operator's cap applies, and is far away");
}

/// A contender that does not retry delays others for at most its lease.
#[test]
fn a_contender_without_retries_delays_others_for_its_lease() {
    let limit = Arc::new(Limit::default());
    limit.set(Setter::Operator, Some(100_000_000), 0);
    let (mut lost, mut other) = (Bucket::new(Arc::clone(&limit)), Bucket::new(Arc::clone(&limit)));
    let mut now_ns = S;
    while other.admit(LARGEST, Claim { host: 1, since_ns: now_ns }, now_ns).is_ok() {}
    assert!(lost.admit(LARGEST, Claim { host: 0, since_ns: now_ns }, now_ns).is_err());
    let (from_ns, mut last_ns, mut longest_ns) = (now_ns, now_ns, 0);
    let mut taken = 0;
    while now_ns < from_ns + S {
        match other.admit(LARGEST, Claim { host: 1, since_ns: now_ns }, now_ns) {
            Ok(_) => {
                longest_ns = longest_ns.max(now_ns - last_ns);
                (last_ns, taken) = (now_ns, taken + LARGEST);
            }
            Err(_) => now_ns += 50_000,
        }
    }
    assert!(longest_ns <= LEASE_NS + 3 * MS, "{longest_ns} ns without a turn");
    assert!(taken >= percent_of(100_000_000, 98, S) - LARGEST, "{taken} bytes");
}

/// Concurrent threads together take no more than the budget.
#[test]
fn concurrent_threads_do_not_exceed_the_budget() {
    let limit = Arc::new(Limit::default());
    limit.set(Setter::Operator, Some(1_000_000_000), 0);
    let taken = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..4)
            .map(|host| {
                let mut bucket = Bucket::new(Arc::clone(&limit));
                scope.spawn(move || {
                    let mut taken = 0;
                    for now_ns in (S..2 * S).step_by(20_000) {
                        while bucket.admit(4096, Claim { host, since_ns: now_ns }, now_ns).is_ok() {
                            taken += 4096u64;
                        }
                    }
                    taken
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap_or(0)).sum::<u64>()
    });
    // the latest of all clocks counts
    assert!(taken <= percent_of(1_000_000_000, 102, S) + LARGEST, "{taken} bytes");
}

/// Places of ended limits are used again, for the same kind, after policies have been told.
#[test]
fn limits_that_come_and_go_leave_room_for_others() {
    let caps = Caps::default();
    let stays = Arc::new(Limit::default());
    caps.add_namespace(&stays, None, 1);
    let scopes = || caps.list(|entry| (entry.scope, entry.first_source, entry.limit.is_retired()));
    for round in 0..100_000 {
        let namespace = Arc::new(Limit::default());
        caps.add_namespace(&namespace, None, 1);
        let host = caps.host(&format!("nqn.2024-05.com.example:{round}"));
        let numbers = [&namespace, &host].map(|limit| caps.number_of(limit));
        assert!(numbers.iter().all(Option::is_some), "policies can cap the last ones, in round {round}");
        caps.remove_namespace(&namespace, 0);
        drop(host);
        if round % 100 == 0 {
            scopes();
        }
    }
    assert!(caps.hosts().len() <= 2 * MANY_HOSTS, "{} hosts", caps.hosts().len());
    let places = scopes();
    assert!(places.len() <= MANY_HOSTS + 500, "{} places", places.len());
    let mut source = 0;
    for (scope, first_source, _) in places {
        assert_eq!(first_source, source, "{scope:?}");
        source += metered::count_of(scope);
    }
    assert_eq!(caps.number_of(&stays), Some(Scope::Namespace(0)));
}

#[test]
fn a_place_has_no_other_limit_before_policies_know() {
    let caps = Caps::default();
    let [old, new, newer] = [(); 3].map(|()| Arc::new(Limit::default()));
    caps.add_namespace(&old, None, 1);
    caps.remove_namespace(&old, 0);
    caps.add_namespace(&new, None, 1);
    let scopes = || caps.list(|entry| (entry.scope, entry.limit.is_retired()));
    assert_eq!(scopes(), [(Scope::Namespace(0), true), (Scope::Namespace(1), false)]);
    caps.add_namespace(&newer, None, 1);
    assert_eq!(scopes(), [(Scope::Namespace(2), false), (Scope::Namespace(1), false)]);
}

#[test]
fn connected_and_capped_hosts_are_not_forgotten() {
    let caps = Caps::default();
    let connected = caps.host("connected");
    caps.set(&caps.host("capped"), Setter::Operator, Some(1_000_000), 0);
    for round in 0..3 * MANY_HOSTS {
        drop(caps.host(&round.to_string()));
    }
    assert!(Arc::ptr_eq(&caps.host("connected"), &connected));
    assert_eq!(caps.host("capped").cap_of(Setter::Operator), Some(1_000_000));
    assert!(!caps.hosts().iter().any(|(name, _)| name == "0"));
}

#[test]
fn a_connected_host_without_a_place_is_not_forgotten() {
    let caps = Caps::default();
    for _ in 0..MAX_ENTRIES {
        caps.add_namespace(&Arc::new(Limit::default()), None, 1);
    }
    let connected = caps.host("connected");
    assert_eq!(caps.number_of(&connected), None, "policies do not know it");
    for round in 0..3 * MANY_HOSTS {
        drop(caps.host(&round.to_string()));
    }
    assert!(Arc::ptr_eq(&caps.host("connected"), &connected));
}
