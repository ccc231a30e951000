//! Replays the corpus of the fuzz target `auth`, and random scripts: `fuzz/README.md`.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[expect(unreachable_pub, reason = "it is the library of the fuzz targets that exports it")]
#[path = "../../../fuzz/src/auth.rs"]
mod auth;

fn corpus() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/auth");
    let entries = fs::read_dir(directory).expect("the corpus is part of the repository");
    entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a readable input")).collect()
}

#[test]
fn the_corpus_passes() {
    let corpus = corpus();
    assert!(corpus.len() >= 12, "only {} inputs found", corpus.len());
    for input in corpus {
        auth::check(&input);
    }
}

#[test]
fn every_truncation_of_the_corpus_passes() {
    for input in corpus().iter().filter(|input| input.first().is_some_and(|options| options & 1 == 0)) {
        for len in 0..input.len().min(400) {
            auth::check(&input[..len]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Actions of the corpus in another order, with some bytes changed.
    #[test]
    fn mixtures_of_the_corpus_pass(
        options in 0_u8..8,
        actions in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..4, any::<(u8, u8)>()), 0..12),
    ) {
        let messages = messages();
        let mut script = vec![options & 6];
        for (which, action, (at, change)) in actions {
            let mut message = messages[which.index(messages.len())].clone();
            if let Some(byte) = message.get_mut(usize::from(at)) {
                *byte = change;
            }
            script.push(action);
            script.extend((message.len() as u16).to_le_bytes());
            script.extend(message);
        }
        auth::check(&script);
    }
}

/// The messages of the controller's and the host's scripts.
fn messages() -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for input in corpus() {
        let mut rest = input.get(1..).unwrap_or_default();
        while let Some((&[_, low, high], after)) = rest.split_first_chunk() {
            let len = after.len().min(usize::from(u16::from_le_bytes([low, high])));
            messages.push(after[..len].to_vec());
            rest = &after[len..];
        }
    }
    messages
}
