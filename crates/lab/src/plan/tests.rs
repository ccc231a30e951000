//! Points, their order, stop rules, and expected times.

use proptest::prelude::*;

use super::*;

fn knob(name: &str, values: &[i64]) -> (String, Vec<Value>) {
    (name.to_owned(), values.iter().map(|&value| Value::Integer(value)).collect())
}

#[test]
fn points_are_the_product_and_the_last_knob_varies_fastest() {
    let points = product(&[knob("a", &[1, 2]), knob("b", &[3, 4, 5])]);
    let pairs: Vec<String> = points.iter().map(|point| format!("{}{}", point["a"], point["b"])).collect();
    assert_eq!(pairs, ["13", "14", "15", "23", "24", "25"]);
    assert_eq!(product(&[]), [Point::new()]);
}

#[test]
fn the_rule_compares_the_half_width() {
    // mean 100, s = 1, t(2) = 4.3027: half width 2.484
    let values = [99.0, 100.0, 101.0];
    assert!(enough(&values, 0.025, 3, 10));
    assert!(!enough(&values, 0.0248, 3, 10));
    assert!(!enough(&values, 0.5, 4, 10), "at least four");
    assert!(enough(&values, 0.0, 2, 3), "at most three");
    assert!(!enough(&[0.0, 1.0, -1.0], 0.05, 3, 10), "a mean of zero is never narrow");
}

/// Sequential stopping lowers the coverage of the interval, because it stops more often when the interval is narrow by chance.
#[test]
fn coverage_after_sequential_stopping_is_at_least_88_percent() {
    let mut noise = crate::fixtures::Noise::new(1);
    for (deviation, within) in [(1.0, 0.05), (3.0, 0.02), (5.0, 0.05), (8.0, 0.05)] {
        let holds = (0..4_000).filter(|_| {
            let mut values = Vec::new();
            while !enough(&values, within, 3, 10) {
                values.push(100.0 + deviation * noise.normal());
            }
            pilotlight_stats::mean::mean(&values, pilotlight_stats::CONFIDENCE).unwrap().contains(100.0)
        });
        let share = holds.count() as f64 / 4_000.0;
        assert!((0.885..0.965).contains(&share), "{deviation} {within}: {share}");
    }
}

#[test]
fn rounds_differ_and_so_do_seeds() {
    assert_ne!(order(1, 0, 20), order(1, 1, 20));
    assert_ne!(order(1, 0, 20), order(2, 0, 20));
}

proptest! {
    #[test]
    fn every_round_visits_each_point_once_in_a_reproducible_order(seed: u64, round in 0..100_u32, count in 0..50_usize) {
        let visited = order(seed, round, count);
        prop_assert_eq!(&visited, &order(seed, round, count));
        let mut sorted = visited;
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..count).collect::<Vec<_>>());
    }
}

/// Each point is first about equally often.
#[test]
fn orders_are_uniform() {
    let mut first = [0_u32; 5];
    (0..5_000).for_each(|seed| first[order(seed, 0, 5)[0]] += 1);
    assert!(first.iter().all(|&times| (900..1_100).contains(&times)), "{first:?}");
}

fn loaded(text: &str) -> Loaded {
    let text =
        format!("{text}{}", if text.contains("[workload]") || text.contains("workload =") { "" } else { COMMAND });
    let table = pilotlight_input::file::parse("e.toml", &text).unwrap();
    let merged = pilotlight_input::Merged::single("e.toml", table);
    crate::experiment::from_merged(merged, &crate::experiment::Overrides::default()).unwrap()
}

fn planned(text: &str) -> Plan {
    Plan::new(&loaded(text))
}

const COMMAND: &str = "workload = { kind = 'command', argv = ['true'] }\n";

const TIMES: &str = "title = 't'\nwarm_up = '1s'\nduration = '4s'\ncool_down = '2s'\nidle_baseline = '10s'\nsettle = '0s'\nrepeats = 3\n\
                     target = { nothing = true }\nparameter = [{ key = 'machine.scheduler', values = ['none', 'kyber'] }]\n\
                     workload = { kind = 'command', argv = ['true'], knobs = { a = [1, 2] } }\n";

#[test]
fn times_match_a_manual_calculation() {
    // 4 points, 3 times, of 1 + 4 + 2 s and 0.3 s overhead; 2 idle baselines in each round
    let plan = planned(TIMES);
    let all_s = 4.0 * 3.0 * 7.3 + 3.0 * 20.0;
    assert!((plan.time_s().0 - all_s).abs() < 1e-9 && plan.time_s().0 == plan.time_s().1, "{:?}", plan.time_s());
    let ruled = planned(&format!("stop = {{ metric = 'x', within = '5%', at_least = 2, at_most = 5 }}\n{TIMES}"));
    let (min_s, max_s) = ruled.time_s();
    assert!((min_s - (4.0 * 2.0 * 7.3 + 40.0)).abs() < 1e-9 && (max_s - (4.0 * 5.0 * 7.3 + 100.0)).abs() < 1e-9);
    let without = plan.with_sensors(&loaded("title = 't'\nduration = '4s'\n").experiment, false);
    assert!((without.time_s().0 - 4.0 * 3.0 * 7.3).abs() < 1e-9, "no idle machine is measured");
}

#[test]
fn the_hash_depends_on_times_and_not_on_titles() {
    let plan = planned(TIMES);
    let other = planned(&format!("about = 'more'\nmetrics = ['x']\n{}", TIMES.replace("'t'", "'another'")));
    assert_eq!(plan.hash, other.hash);
    assert_ne!(plan.hash, planned(&TIMES.replace("'4s'", "'5s'")).hash);
}

#[test]
fn seeds_differ_between_measurements_and_are_reproducible() {
    let plan = planned(TIMES);
    let keys = (0..4).flat_map(|point| (0..3).map(move |repeat| Key { point, repeat }));
    let mut seeds: Vec<u64> = keys.map(|key| plan.seed_of(key)).collect();
    assert_eq!(seeds[5], plan.seed_of(Key { point: 1, repeat: 2 }));
    assert!(seeds.iter().all(|seed| *seed < 1 << 31));
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 12);
}
