//! One budget for many simulated servers: `divide` against equal shares and shares by size.

mod agent;
mod leader;
mod server;

use leader::{Change, Method, Rack, Range, powers_uw};

#[test]
#[ignore = "prints figures"]
fn explore() {
    let count: usize = std::env::var("N").map_or(3, |text| text.parse().unwrap());
    let now = std::time::Instant::now();
    let sizes = Range::of_sizes();
    println!("{sizes:?} {:?}", now.elapsed());
    let rack = Rack::draw(1, count, &sizes);
    if count < 10 {
        println!("{:#?}", rack.servers);
    }
    let free = rack.run(Method::None, u64::MAX, Change::LowerFirst, &[]);
    println!("free {:?}", now.elapsed());
    let bytes = |run: &leader::RackRun| -> Vec<f64> {
        run.outcomes
            .iter()
            .zip(&rack.servers)
            .map(|(outcome, server)| {
                outcome.series.iter().skip(10).map(|one| one.answered).sum::<u64>() as f64 * f64::from(server.request_bytes) / 1e9
            })
            .collect()
    };
    let all = bytes(&free);
    for percent in [30, 60, 75, 90] {
        let budget_uw = rack.budget_uw(percent);
        for (method, change) in [
            (Method::Equal, Change::LowerFirst),
            (Method::Size, Change::LowerFirst),
            (Method::Divide, Change::LowerFirst),
            (Method::Known, Change::LowerFirst),
            (Method::Divide, Change::AtOnce),
        ] {
            let run = rack.run(method, budget_uw, change, &free.histories);
            let own = bytes(&run);
            let part = |priority: Option<u8>| {
                let sum = |of: &[f64]| -> f64 {
                    let chosen = of.iter().zip(&rack.servers).filter(|(_, one)| priority.is_none_or(|p| p == one.priority));
                    chosen.map(|(bytes, _)| bytes).sum()
                };
                sum(&own) / sum(&all) * 100.0
            };
            let series: Vec<Vec<u64>> = run.outcomes.iter().map(|one| powers_uw(one).collect()).collect();
            let sums: Vec<u64> = (0..series[0].len()).map(|at| series.iter().map(|one| one[at]).sum()).collect();
            let mut histogram = pilotlight_sim::histogram::Histogram::default();
            run.outcomes.iter().for_each(|one| one.latency.iter().for_each(|(_, own)| histogram.merge(own)));
            let over = sums.iter().filter(|&&uw| uw > budget_uw + budget_uw / 50).count();
            println!(
                "{percent} {method:?} {change:?}: all {:.1} p2 {:.1} p1 {:.1} p0 {:.1}; p99 {:.1} ms; peak {:.1} % mean {:.1} %, {over} of {} over; bound {:.2} %; settled {}",
                part(None), part(Some(2)), part(Some(1)), part(Some(0)),
                histogram.quantile(0.99) as f64 / 1e6,
                *sums.iter().max().unwrap() as f64 / budget_uw as f64 * 100.0,
                sums.iter().sum::<u64>() as f64 / sums.len() as f64 / budget_uw as f64 * 100.0,
                sums.len(),
                run.most_bound_uw as f64 / budget_uw as f64 * 100.0,
                run.settled.iter().filter(|one| **one).count(),
            );
        }
        println!("{:?}", now.elapsed());
    }
}
