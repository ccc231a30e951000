//! Replays the corpus of the fuzz target `pdu`, and every truncation of it: `fuzz/README.md`.

use std::fs;
use std::path::Path;

#[expect(unreachable_pub, reason = "it is the library of the fuzz targets that exports it")]
#[path = "../../../fuzz/src/pdu.rs"]
mod pdu;

fn corpus() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pdu");
    let entries = fs::read_dir(directory).expect("the corpus is part of the repository");
    entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a readable input")).collect()
}

#[test]
fn the_corpus_passes() {
    let corpus = corpus();
    assert!(corpus.len() >= 36, "only {} inputs found", corpus.len());
    for input in corpus {
        pdu::check(&input);
    }
}

#[test]
fn every_truncation_of_the_corpus_passes() {
    for input in corpus() {
        for len in 0..input.len().min(200) {
            pdu::check(&input[..len]);
        }
    }
}
