//! Tests of `group.rs`: public values, and powers against values computed elsewhere.

use super::*;

const GROUPS: [Group; 5] = [Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe6144, Group::Ffdhe8192];

/// p + `offset`, for a small offset.
fn near_prime(group: Group, offset: i8) -> Vec<u8> {
    let mut value = group.prime().to_vec();
    let last = value.last_mut().expect("a prime");
    *last = last.checked_add_signed(offset).expect("p ends with 64 ones");
    value
}

fn small(group: Group, value: u8) -> Vec<u8> {
    let mut bytes = vec![0; group.value_len()];
    *bytes.last_mut().expect("a value") = value;
    bytes
}

#[test]
fn public_values_lie_between_1_and_p_less_1() {
    for group in GROUPS {
        for refused in [small(group, 0), small(group, 1), near_prime(group, -1), near_prime(group, 0)] {
            assert!(!group.accepts(&refused), "{}", group.name());
        }
        for accepted in [small(group, 2), near_prime(group, -2)] {
            assert!(group.accepts(&accepted), "{}", group.name());
        }
        assert!(!group.accepts(&vec![0xff; group.value_len()]));
        assert!(!group.accepts(&small(group, 2)[1..]), "too short");
        assert!(!group.accepts(&[small(group, 2), vec![2]].concat()), "too long");
        assert!(!group.accepts(&[]));
    }
    assert!(Group::Null.accepts(&[]));
    assert!(!Group::Null.accepts(&[2]));
}

#[test]
fn both_sides_compute_the_same_value() {
    let mut next = 0_u8;
    let mut random = |bytes: &mut [u8]| {
        next += 1;
        bytes.fill(next);
        Ok(())
    };
    for group in &GROUPS[..2] {
        let [a, b] = [(); 2].map(|()| PrivateKey::draw(*group, &mut random).expect("random bytes"));
        let (ya, yb) = (a.public_value(), b.public_value());
        assert!(group.accepts(&ya) && group.accepts(&yb));
        assert_ne!(ya, yb);
        assert_eq!(a.shared_value(&yb), b.shared_value(&ya));
    }
}

/// Python: `sha256(pow(3, int.from_bytes(bytes(range(1, n + 1)), 'big'), p).to_bytes(len, 'big'))` with n of `exponent_len`.
#[test]
fn powers_have_the_values_that_python_computes() {
    let expected = [
        "0008503c045594853185d598410a7417a594d4517c03825c657165be2cbd1b94",
        "54a6b7ea1e361e817f0633e0720d876c295289426a5f01cdc34263040e7dc6d5",
        "dff5786a5cb0441c51aeb94175185795ad53221905156b2f246706e9349b35f5",
        "7153b6830f7c10b6c4ea03b6b19a8ec418467e10ee9c7c6c39c3948e0604e6d4",
        "4f2d9c33c049e890eab5ad019800c631426342ecedb06df81795bda9ecfe43a4",
    ];
    for (group, expected) in GROUPS.into_iter().zip(expected) {
        let exponent: Vec<u8> = (1..=group.exponent_len() as u8).collect();
        let digest = crate::HashFunction::Sha256.digest(&group.power(&[3], &exponent));
        let hex: String = digest.as_slice().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected, "{}", group.name());
    }
}

#[test]
fn identifiers_and_names_are_those_of_the_specification() {
    for (id, group) in Group::ALL.into_iter().enumerate() {
        assert_eq!(Group::from_id(id as u8), Some(group));
        assert_eq!(Group::from_name(group.name()), Some(group));
    }
    assert_eq!(Group::from_id(6), None);
}

#[test]
fn a_failed_source_of_random_bytes_is_an_error() {
    let draw = PrivateKey::draw(Group::Ffdhe2048, &mut |_: &mut [u8]| Err(RandomUnavailable));
    assert_eq!(draw.err(), Some(RandomUnavailable));
}
