//! Replays the corpus of the fuzz target `connection`, and scripts generated from seeds: `fuzz/README.md`.

use std::fs;
use std::ops::Range;
use std::path::Path;

use pilotlight_storage::Random;

#[expect(unreachable_pub, reason = "exported by the library of the fuzz targets")]
#[path = "../../../fuzz/src/connection.rs"]
mod connection;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/connection");
    let entries = fs::read_dir(directory).expect("the corpus is part of the repository");
    let input = |path: std::path::PathBuf| (path.display().to_string(), fs::read(path).expect("a readable input"));
    entries.map(|entry| input(entry.expect("an entry").path())).collect()
}

#[test]
fn the_corpus_passes() {
    let corpus = corpus();
    assert!(corpus.len() >= 20, "only {} inputs found", corpus.len());
    for (path, input) in corpus {
        println!("{path}"); // identifies the input if the test fails
        connection::check(&input);
    }
}

/// `ONE=path cargo test -p pilotlight-nvmf-target --test corpus one_input` runs one input.
#[test]
fn one_input() {
    if let Some(path) = std::env::var_os("ONE") {
        connection::check(&fs::read(path).expect("a readable input"));
    }
}

#[test]
fn random_scripts_pass() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let len = random.below(600);
        let script: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        connection::check(&script);
    }
}

#[test]
fn random_scripts_with_reservations_pass() {
    random_scripts_with(0..4);
}

#[test]
fn random_scripts_with_fused_operations_pass() {
    random_scripts_with(16..20);
}

/// Hosts that mostly send commands of these kinds, with writes, aborts and lost connections in between.
fn random_scripts_with(kinds: Range<u8>) {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut below = |limit: u64| random.below(limit) as u8;
        let mut script = vec![if below(2) == 0 { 0x50 } else { 0x10 }, below(256), below(63)];
        for _ in 0..below(150) {
            let line = below(16) << 4;
            match below(16) {
                0 => script.extend([line | 12, 1 + below(63)]), // another association
                1 => script.extend([line | 11]),                // a lost connection
                2..=4 => script.extend([line | 8, below(4)]),   // time passes
                5 => script.extend([line | 10]),
                6..=8 => script.extend([line | 1, below(3), below(32), below(256), below(4), 0]), // a write
                9 => script.extend([line | 1, 31, below(32), below(32), 1, 0]), // an abort, on an admin queue
                _ => {
                    let damage = if below(8) == 0 { 64 } else { 0 };
                    let kind = kinds.start + below(u64::from(kinds.end - kinds.start));
                    script.extend([line | 1, 128 | damage | kind, below(32), below(256), below(256)]);
                    script.extend(if damage > 0 { vec![below(64), below(256), 0] } else { vec![0] });
                }
            }
        }
        connection::check(&script);
    }
}
