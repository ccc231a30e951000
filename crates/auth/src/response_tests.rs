//! Responses against values that an independent program in Python computed.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::*;
use crate::config::{Concatenation, Policy, SequenceNumbers};
use crate::secret::{Secret, SecretLen};

/// A secret of the bytes `first`, `first + 1`, ...
fn secret(transform: Option<HashFunction>, len: SecretLen, first: u8) -> Secret {
    let mut random = |bytes: &mut [u8]| {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = first + at as u8;
        }
        Ok(())
    };
    Secret::generate(transform, len, &mut random).expect("random bytes")
}

fn config(hash: HashFunction) -> Config {
    Config {
        hostnqn: "nqn.2014-08.org.nvmexpress:uuid:a".to_owned(),
        subnqn: "nqn.2026-01.example:sub".to_owned(),
        host_secret: secret(Some(hash), SecretLen::Bytes32, 0),
        controller_secret: Some(secret(None, SecretLen::Bytes48, 50)),
        policy: Policy::default(),
        sequence: Arc::new(SequenceNumbers::new(1)),
    }
}

fn challenge(hash: HashFunction, first: u8, seqnum: u32) -> Challenge {
    let bytes: Zeroizing<Vec<u8>> = Zeroizing::new((first..).take(hash.digest_len()).collect());
    Challenge { value: Digest::from_slice(&bytes), seqnum }
}

fn hex(digest: &Digest) -> String {
    digest.as_slice().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Python, with `hmac` and `hashlib`: for the shared value S and the key K of the secret,
/// `c = hmac(H(S), c)` with a group, and
/// `hmac(K, c + seqnum.to_bytes(4, "little") + t_id.to_bytes(2, "little") + b"\0" + role + own + b"\0" + peer)`.
#[test]
fn responses_have_the_values_that_python_computes() {
    let cases = [
        (
            HashFunction::Sha256,
            false,
            "6320af4284bcf2ef278d9942f64f89baba34ef06afeaf7dbfea7d11bac16f8d9",
            "83701644546b9f41fdda18420f09a657d6cc7a3099a3e7dff6ea81109037ecfa",
        ),
        (
            HashFunction::Sha256,
            true,
            "d8faa1bac468de5ad06b499c46e76854b8583749408ebc249d9f6f0f678e6bc2",
            "67380e305d491ca87298113c2f02294c2f24ebe39e7dc4e7712f506958b05de1",
        ),
        (
            HashFunction::Sha384,
            false,
            "cd8d747d7790e89cdc1dbbf1df6410e2d4c0a22cf9da1b5b3bb8d0a56bcdd1dba9935d1b6817210f59cf244467418ac6",
            "dd6598e8f88e34c7957a8114ba89fc707d25144630fc5d6b73756d38ac49b907267bd7a7c08b4d5232d37d3168174337",
        ),
        (
            HashFunction::Sha384,
            true,
            "9824f5c5b84a229ffc583d45a96d67bf004e5db70785a94d5f743704bd017885363105354ba44977c1a5a353105db435",
            "28e9944bf1f49a67a44da408ed72be6ef0fb69e80b3524774aa5529a7d065086a94b096ee277a1110fc23ae5ecf6c027",
        ),
        (
            HashFunction::Sha512,
            false,
            "81fd433daf64cbd0f0e32f28aa829f786091011fcaccd1f5322734f0887ae927157eb7415939f5a86d563a9574285f4b08341dcd770685cf59594ce16398fbe0",
            "e0744306472baea211b9b9c35f3341eb5dbf9bb7523d9147deaf3b1e690bbb22a596abf155d73f029abcb9c06542383b8db2566e841ee6ad2d6316aac0b55ba9",
        ),
        (
            HashFunction::Sha512,
            true,
            "867e36e18d2f721512dcd9d3c58dfbcbee648848cd735d24a0ce640b49c881bf0ebeff95d73a4a74d3962a87b0bdfbbca147988e0b71094b9647a7606aebd054",
            "0840b5b72aa0af63ec69cac93fbd78b3b1e0535ef0d9d09d262ec99e7f84527a266265d3cd659dc78c1a96effca5829116f979f5e72f251967dd1ccd048d9401",
        ),
    ];
    for (hash, with_group, r1, r2) in cases {
        let shared: Vec<u8> = (0..=255).collect();
        let session_key = with_group.then(|| Exchange::session_key(hash, &shared));
        let exchange =
            Exchange { config: &config(hash), hash, t_id: 0xabcd, concatenation: Concatenation::None, session_key };
        assert_eq!(hex(&exchange.host_response(&challenge(hash, 0, 0x0102_0304))), r1);
        let response = exchange.controller_response(&challenge(hash, 100, 0x0506_0708)).expect("a controller secret");
        assert_eq!(hex(&response), r2);
    }
}

#[test]
fn comparison_needs_every_byte() {
    let digest = HashFunction::Sha256.digest(b"a");
    assert!(is_equal(&digest, digest.as_slice()));
    for at in 0..32 {
        let mut other = digest.clone();
        other.as_mut_slice()[at] ^= 1;
        assert!(!is_equal(&digest, other.as_slice()), "byte {at}");
    }
    assert!(!is_equal(&digest, &digest.as_slice()[..31]));
    assert!(!is_equal(&digest, &[]));
}
