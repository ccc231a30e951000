//! Cores removed by a limiter: I/O threads leave them, they sleep, and the inner policy does not use them.

#[path = "support/random.rs"]
mod random;
#[path = "support/storage.rs"]
#[expect(dead_code, reason = "shared with the tests of pass")]
mod storage;

use pilotlight_plant::{Command, CoreId};
use storage::{Machine, NAMESPACES, Phase, Plant};

/// A machine whose caps have no effect, so that the number of cores goes to its lowest.
fn plant(settings: &[(&str, &str)]) -> Plant {
    let machine = Machine {
        gain: 1.0,
        cpu_error: 1.0,
        ssd_error: 1.0,
        others_w: 100.0,
        cpu_w: 150.0,
        drives: 0.5,
        is_cpu_bound: true,
        writes: false,
        window_steps: 10,
        phase_steps: 3,
        noise_w: 0.0,
        has_package: false,
        classes: vec![0; NAMESPACES],
        polls: false,
        is_artifact: false,
        minimums: Vec::new(),
        bytes_lag_steps: 0,
        seed: 1,
    };
    Plant::of("cpu-jailing", &machine, settings)
}

fn phase(seconds: u64, budget_w: Option<u64>) -> Phase {
    Phase { seconds, budget_w, demand: 1.0, is_dead: false, refuses: false }
}

#[test]
fn threads_leave_removed_cores_and_return() {
    for inner in ["static", "dynamic", "sandman", "hybrid-poll"] {
        let mut plant = plant(&[("inner", inner)]);
        plant.run(&phase(10, None));
        let before = plant.homes.clone();
        plant.run(&phase(60, Some(200)));
        assert!(plant.asleep.iter().skip(1).all(|asleep| *asleep), "{inner}: {:?}", plant.asleep);
        assert!(plant.homes.iter().all(|home| *home == CoreId(0)), "{inner}: {:?}", plant.homes);
        plant.run(&phase(10, None));
        if inner == "static" {
            assert_eq!((&plant.homes, plant.is_lifted()), (&before, true));
        }
        assert!(plant.commands.iter().all(|(_, command)| !matches!(command, Command::Set { .. })));
    }
}
