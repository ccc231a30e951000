//! Replays the corpus of the fuzz target `caps`, and scripts generated from seeds: `fuzz/README.md`.

use std::fs;
use std::path::Path;

use pilotlight_storage::Random;

#[expect(unreachable_pub, reason = "exported by the library of the fuzz targets")]
#[path = "../../../fuzz/src/caps.rs"]
mod caps;

#[test]
fn the_corpus_passes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/caps");
    let mut inputs = 0;
    for entry in fs::read_dir(directory).expect("the corpus is part of the repository") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display()); // identifies the input if the test fails
        caps::check(&fs::read(path).expect("a readable input"));
        inputs += 1;
    }
    assert!(inputs >= 10, "only {inputs} inputs found");
}

#[test]
fn random_scripts_pass() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let len = random.below(400);
        let script: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        caps::check(&script);
    }
}
