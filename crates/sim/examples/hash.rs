//! Hashes of traces.
#[path = "../tests/support/mod.rs"]
mod support;
use pilotlight_sim::engine::run_traced;
use pilotlight_sim::scenario::*;
use std::io::Write;
use support::{policy, scenario};
struct Fnv(u64, u64);
impl Write for Fnv {
    fn write(&mut self, b: &[u8]) -> std::io::Result<usize> {
        for &x in b {
            self.0 = (self.0 ^ u64::from(x)).wrapping_mul(0x100_0000_01b3);
        }
        self.1 += b.len() as u64;
        Ok(b.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
fn bursts(cores: u16, seed: u64) -> Scenario {
    let mut s = scenario(cores, 2, 0.0, 40_000_000, seed);
    for c in &mut s.workload.connections {
        c.phases = vec![
            Phase { label: 0, length_ns: 3_000_000, rate: Rate::PerSecond(5_000.0) },
            Phase { label: 1, length_ns: 1_000_000, rate: Rate::PerSecond(150_000.0) },
        ];
    }
    s
}
fn show(what: &str, s: &Scenario, name: &str, set: &[(&str, &str)]) {
    let mut h = Fnv(0xcbf2_9ce4_8422_2325, 0);
    let o = run_traced(s, policy(name, set), &mut h).unwrap();
    let mut d = Fnv(0xcbf2_9ce4_8422_2325, 0);
    d.write_all(format!("{o:?}").as_bytes()).unwrap();
    println!("{what} {name} {set:?}: {:016x} {} {:016x}", h.0, h.1, d.0);
}
fn main() {
    let all: [(&str, &[(&str, &str)]); 7] = [
        ("static", &[]),
        ("interrupt", &[]),
        ("governor", &[("interval", "1ms")]),
        ("dynamic", &[("interval", "1ms")]),
        ("hybrid-poll", &[]),
        ("sandman", &[("coarse_interval", "2ms"), ("guards", "recommended")]),
        ("sandman", &[("coarse_interval", "2ms"), ("sleep", "software"), ("detect", "load")]),
    ];
    for (name, set) in all {
        show("bursts", &bursts(6, 5), name, set);
        show("1500k", &scenario(4, 1, 1_500_000.0, 10_000_000, 6), name, set);
        show("3k", &scenario(4, 2, 3_000.0, 50_000_000, 2), name, set);
        let mut mixed = scenario(6, 2, 600_000.0, 20_000_000, 3);
        mixed.threads = 9;
        mixed.workload.connections = support::connections(20, 9, 2, 600_000.0);
        for (i, c) in mixed.workload.connections.iter_mut().enumerate() {
            match i % 5 {
                0 => c.request = Kind::Plain { writes_ppm: 300_000, bytes: 8192, sequential: false },
                1 => c.request = Kind::Plain { writes_ppm: 1_000_000, bytes: 16384, sequential: true },
                2 => {
                    c.request = Kind::Steps {
                        steps: vec![
                            Step { reads: 2, writes: 0, bytes: 4096, parity_kib: 0 },
                            Step { reads: 0, writes: 2, bytes: 4096, parity_kib: 4 },
                        ],
                        bytes_in: 4096,
                        bytes_out: 0,
                    };
                    c.depth = 8;
                }
                3 => {
                    c.depth = 4;
                    c.phases[0].rate = Rate::Unlimited;
                    c.think_ns = 500;
                }
                _ => {}
            }
        }
        show("mixed", &mixed, name, set);
        mixed.workload.connections.retain(|c| c.depth == u32::MAX);
        show("open", &mixed, name, set);
    }
    show("48", &scenario(48, 16, 10_240_000.0, 5_000_000, 6), "static", &[]);
    show("48", &scenario(48, 16, 6_000_000.0, 5_000_000, 6), "sandman", &[("coarse_interval", "1ms")]);
}
