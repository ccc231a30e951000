//! Tests of the encoding. Dependencies of fingerprints are tested in [`crate::simulated::cells`].

use pilotlight_sim::machine::{DirectorCosts, Network};

use super::*;

fn director(fails_ppm: u32) -> DirectorCosts {
    DirectorCosts {
        decide_ns: 1,
        decide_thread_ns: 2,
        fill_ns: 3,
        move_ns: 4,
        frequency_ns: 5,
        fails_ppm,
        leaves_at_once: false,
    }
}

/// A change of these makes all committed results stale.
#[test]
fn the_encoding_is_stable() {
    let network = Network { ports: 2, port_mbit_s: 200_000, round_trip_ns: 60_000, overhead_bytes: 100 };
    let pins = [
        (digest(&network), "ca1ec0c151"),
        (digest(&director(0)), "f676fd1e84"),
        (digest(&vec![Some(0.5), None]), "86555e54d6"),
        (digest("sandman"), "abf0f589cf"),
        (digest(&true), "0ffaac099f"),
    ];
    for (fingerprint, pinned) in pins {
        assert_eq!(fingerprint.to_string(), pinned);
        assert_eq!(pinned.parse(), Ok(fingerprint));
    }
}

#[test]
fn order_and_kind_matter_and_integer_types_do_not() {
    let integers = [(1_u32, 2_u32), (2, 1)].map(|pair| digest(&pair));
    let different = [integers[0], integers[1], digest(&(1_u32, 2.0)), digest(&vec![1_u32, 2]), digest("12")];
    for (at, one) in different.iter().enumerate() {
        assert!(!different[..at].contains(one), "{at}");
    }
    assert_eq!(digest(&(1_u8, 2_u64)), different[0]);
    assert_ne!(digest(&vec!["ab", "c"]), digest(&vec!["a", "bc"]));
}

#[test]
fn an_added_field_counts_only_if_not_neutral() {
    let before = ((1_u32, 2_u32), ((3_u32, 4_u32), 5_u32));
    assert_eq!(digest(&director(0)), digest(&before));
    assert_ne!(digest(&director(7)), digest(&before));
}
