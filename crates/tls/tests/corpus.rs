//! Replays the corpus of the fuzz target `tls`: `fuzz/README.md`.

use std::fs;
use std::path::Path;

use pilotlight_tls::{ClientConfig, Handshake, Hash, Psk, Step};

#[expect(unreachable_pub, reason = "it is the library of the fuzz targets that exports it")]
#[path = "../../../fuzz/src/tls.rs"]
mod tls;

fn corpus() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/tls");
    let entries = fs::read_dir(directory).expect("the corpus is part of the repository");
    entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a readable input")).collect()
}

#[test]
fn the_corpus_passes() {
    let corpus = corpus();
    assert!(corpus.len() >= 10, "only {} inputs found", corpus.len());
    for input in corpus {
        tls::check(&input);
    }
}

/// Every shortened and every damaged ClientHello of a client with this key.
fn check_variants_of_a_hello(psk: Psk) {
    use std::io::Read;
    let (a, mut b) = std::os::unix::net::UnixStream::pair().expect("socket pair");
    let mut client = Handshake::client(&ClientConfig::new(vec![psk])).expect("client");
    assert!(matches!(client.step(&a), Step::WantRead));
    let mut input = vec![0; 4096];
    let len = 1 + b.read(&mut input[1..]).expect("the ClientHello");
    input.truncate(len);
    for at in 1..len {
        tls::check(&input[..at]);
        input[at] ^= 0x55;
        tls::check(&input);
        input[at] ^= 0x55;
    }
    tls::check(&input);
}

#[test]
fn variants_of_client_hellos_pass() {
    check_variants_of_a_hello(tls::psk());
    check_variants_of_a_hello(Psk::new(tls::IDENTITY, &[1; 32], Hash::Sha256).expect("valid"));
}

#[test]
fn changes_of_records_pass() {
    for at in 0..980_u16 {
        let [low, high] = at.to_le_bytes();
        tls::check(&[3, low, high, 1 << (at % 8)]);
    }
    tls::check(&[3]); // unchanged
}
