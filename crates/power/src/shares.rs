//! Division of the energy of a part of the machine among its users.
//!
//! # Problem
//! A sensor measures a whole CPU package; the energy of one host cannot be measured: hosts share cores, and power is not linear in time.
//! The Shapley value (1953) would require running the machine with each subset of hosts.
//!
//! # Terms
//! A *user* is a host on a namespace. *Idle* energy is that without load. The energy above it is divided in proportion to a *measure*: CPU
//! time, time of requests in devices, or bytes. Energy of no user is *unassigned*.
//!
//! # Algorithm
//! Energy above idle is split over the measures by the weights of the [`Rule`]; a measure without usage leaves its part to the others.
//! Each part is divided in proportion to the measure. Idle energy is unassigned unless the rule assigns it. Whole microjoules are
//! distributed by largest remainder.
//!
//! # Error
//! Against the Shapley value of two hosts on a simulated machine of 16 cores (modelled; `cargo run --release -p pilotlight-sim --example energy-shares`), in percent of
//! the divided energy; 0 to 1 % if both hosts have the same load. CPU packages by CPU time | the system by CPU time | the system by CPU time and bytes:
//!
//! | hosts A and B | every core polls | `sandman` | `governor` | `ondemand` |
//! |---|---|---|---|---|
//! | 500 k and 50 k IOPS of 4 KiB | - \| 0 \| 0 | -9 \| -1 \| -1 | 41 \| 21 \| 21 | -1 \| 0 \| 0 |
//! | 200 k steady and 200 k in bursts | - \| 1 \| 1 | 44 \| 16 \| 16 | 0 \| 1 \| 1 | 58 \| 17 \| 17 |
//! | 200 k of 4 KiB and 20 k of 64 KiB | - \| 16 \| 8 | - \| 16 \| 8 | -11 \| 1 \| -6 | -30 \| 15 \| 7 |
//!
//! No proportional rule can do much better if cores wake for one host's bursts, or if the first request raises a frequency: that energy
//! depends on the order of hosts, not on amounts. If every core polls, load adds nothing to the CPU packages. Shares are orders of
//! magnitude, not suitable for billing.
//!
//! # Properties
//! - All parts and the unassigned energy add up to the total exactly.
//! - A user without usage gets no energy above idle; a user with more usage gets no less.

/// Usage of one user in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Time of its requests in devices, in nanoseconds.
    pub device_ns: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// Assignment of idle energy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// No user.
    #[default]
    Unassigned,
    /// Equal parts.
    Equal,
    /// In proportion to the energy above idle.
    Proportional,
}

/// Rule of the division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Weights of CPU time, of time in devices and of bytes.
    pub weights: [u32; 3],
    /// Assignment of idle energy.
    pub idle: Idle,
}

impl Rule {
    /// By CPU time alone: for the power of CPU packages.
    pub const CPU: Self = Self { weights: [1, 0, 0], idle: Idle::Unassigned };
    /// By CPU time and bytes alike: for the power of a whole system, in which drives take theirs by bytes.
    pub const SYSTEM: Self = Self { weights: [1, 0, 1], idle: Idle::Unassigned };
}

/// Energy in microjoules, divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Of each user, in the order of their uses.
    pub parts_uj: Vec<u64>,
    /// Of no user.
    pub unassigned_uj: u64,
}

/// Divides `energy_uj`, of which `idle_uj` were idle, among users; `nobody` is the use for none of them.
#[must_use]
pub fn divide(energy_uj: u64, idle_uj: u64, uses: &[Use], unassigned: Use, rule: Rule) -> Division {
    let idle_uj = idle_uj.min(energy_uj);
    let mut parts = vec![0; uses.len() + 1]; // the last part is unassigned
    let measures: [fn(&Use) -> u64; 3] = [|it| it.cpu_ns, |it| it.device_ns, |it| it.bytes];
    let all = || uses.iter().chain([&unassigned]);
    let is_used = measures.map(|measure| all().any(|it| measure(it) > 0));
    let weights: Vec<u64> =
        is_used.iter().zip(rule.weights).map(|(used, weight)| if *used { weight.into() } else { 0 }).collect();
    let above_uj = energy_uj - idle_uj;
    for (measure, measure_uj) in measures.iter().zip(deal(above_uj, &weights)) {
        let amounts: Vec<u64> = all().map(measure).collect();
        parts.iter_mut().zip(deal(measure_uj, &amounts)).for_each(|(part, dealt)| *part += dealt);
    }
    let idle_weights: Vec<u64> = match rule.idle {
        Idle::Unassigned => Vec::new(),
        Idle::Equal => vec![1; uses.len()],
        Idle::Proportional => parts[..uses.len()].to_vec(),
    };
    parts.iter_mut().zip(deal(idle_uj, &idle_weights)).for_each(|(part, dealt)| *part += dealt);
    parts.pop();
    let assigned: u64 = parts.iter().sum();
    Division { parts_uj: parts, unassigned_uj: energy_uj - assigned }
}

/// Deals whole units in proportion to weights by largest remainder, all of them; none where every weight is 0.
#[must_use]
pub fn deal(units: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let exact = |&weight: &u64| u128::from(units) * u128::from(weight);
    let mut dealt: Vec<u64> = weights.iter().map(|weight| (exact(weight) / sum) as u64).collect();
    let left = units - dealt.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(exact(&weights[at]) % sum)); // stable: the first of equals
    order.iter().take(left as usize).for_each(|&at| dealt[at] += 1);
    dealt
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uses() -> impl Strategy<Value = Vec<Use>> {
        let one = (0..3_000_000_000_u64, 0..3_u64, 0..1_u64 << 40);
        prop::collection::vec(one.prop_map(|(cpu_ns, device_ns, bytes)| Use { cpu_ns, device_ns, bytes }), 0..6)
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let idle = prop_oneof![Just(Idle::Unassigned), Just(Idle::Equal), Just(Idle::Proportional)];
        (prop::array::uniform3(0..4_u32), idle).prop_map(|(weights, idle)| Rule { weights, idle })
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_microjoule(energy_uj in 0..1_u64 << 50, idle_uj in 0..1_u64 << 50, uses in uses(), unassigned in uses(), rule in rule()) {
            let unassigned = unassigned.first().copied().unwrap_or_default();
            let division = divide(energy_uj, idle_uj, &uses, unassigned, rule);
            prop_assert_eq!(division.parts_uj.len(), uses.len());
            prop_assert_eq!(division.parts_uj.iter().sum::<u64>() + division.unassigned_uj, energy_uj);
        }

        #[test]
        fn who_used_more_gets_no_less(energy_uj in 0..1_u64 << 50, uses in uses(), rule in rule()) {
            let division = divide(energy_uj, 0, &uses, Use::default(), rule);
            for (one, one_uj) in uses.iter().zip(&division.parts_uj) {
                for (other, other_uj) in uses.iter().zip(&division.parts_uj) {
                    let is_less = one.cpu_ns <= other.cpu_ns && one.device_ns <= other.device_ns && one.bytes <= other.bytes;
                    // of equal remainders the first gets the microjoule, once for each measure
                    prop_assert!(!is_less || *one_uj <= other_uj + 3, "{one:?} {one_uj}, {other:?} {other_uj}");
                }
                prop_assert!(*one != Use::default() || *one_uj == 0);
            }
        }
    }

    #[test]
    fn idle_energy_is_unassigned_unless_the_rule_divides_it() {
        let uses = [Use { cpu_ns: 3, ..Use::default() }, Use { cpu_ns: 1, ..Use::default() }];
        let parts = |idle| {
            let division = divide(100, 60, &uses, Use::default(), Rule { idle, ..Rule::CPU });
            (division.parts_uj, division.unassigned_uj)
        };
        assert_eq!(parts(Idle::Unassigned), (vec![30, 10], 60));
        assert_eq!(parts(Idle::Equal), (vec![60, 40], 0));
        assert_eq!(parts(Idle::Proportional), (vec![75, 25], 0));
    }

    #[test]
    fn an_unused_measure_is_divided_by_the_others() {
        let uses = [Use { cpu_ns: 1, bytes: 0, ..Use::default() }, Use { cpu_ns: 1, bytes: 9, ..Use::default() }];
        let rule = Rule { weights: [1, 7, 1], idle: Idle::Unassigned };
        assert_eq!(divide(100, 0, &uses, Use::default(), rule).parts_uj, [25, 75]);
        assert_eq!(divide(100, 0, &[], Use::default(), rule).unassigned_uj, 100);
    }

    #[test]
    fn use_for_no_user_is_unassigned() {
        let (one, unassigned) = (Use { cpu_ns: 1, ..Use::default() }, Use { cpu_ns: 3, ..Use::default() });
        assert_eq!(divide(40, 0, &[one], unassigned, Rule::CPU), Division { parts_uj: vec![10], unassigned_uj: 30 });
    }
}
