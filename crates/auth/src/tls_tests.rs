//! Tests of `tls.rs` against the test vectors of libnvme and the Linux kernel, and values computed with Python.

use super::*;

const HOST: &str = "nqn.psk-test-host";
const SUBSYSTEM: &str = "nqn.psk-test-subsys";
const KEY_32: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const KEY_48: &str = "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Vector {
    text: &'static str,
    derivation: Derivation,
    /// Digest in the identity of version 1: a vector of libnvme's test `psk.c`.
    digest: &'static str,
    /// Computed with Python's hmac by code that reproduces the digests.
    retained: &'static str,
    v0: &'static str,
    v1: &'static str,
}

const VECTORS: [Vector; 4] = [
    Vector {
        text: KEY_32,
        derivation: Derivation::Specification,
        digest: "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
        retained: "073311dec37e219ff3acd43f130130c5bdd443c066e1cc3424e49030234ff7d5",
        v0: "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68",
        v1: "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca",
    },
    Vector {
        text: KEY_48,
        derivation: Derivation::Specification,
        digest: "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
        retained: "73973a1b51a9acdde29a0610ac6a3ef852cf45936cca6830a661d18f68502f1a4c7a8ecb37524e0b1f7087cb4d680ad9",
        v0: "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da4970a78d",
        v1: "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282dda2e62ca",
    },
    Vector {
        text: KEY_32,
        derivation: Derivation::LibnvmeBefore1_16,
        digest: "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
        retained: "ad4cdadfcbaf4e353fcbd09aac891c4d75c5300fe5ee7bb04ae87726a312eddc",
        v0: "09fb1983ac6d6d0353e7cae4f23daddd651c367fa347c59d9cf6936f5a83eafb",
        v1: "b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2",
    },
    Vector {
        text: KEY_48,
        derivation: Derivation::LibnvmeBefore1_16,
        digest: "RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
        retained: "12d2452bc4783f50286bf940ad1caa05a304065e379024d9278ca7c9d8a42400c47029f198bfcdf5f14c07cb04eb7306",
        v0: "2ee4754186a625b28a3936ef4a40d839c3ad958b2e017562ee07e2501f172ce999dc9c29033ea7ee33f814f192c13f47",
        v1: "fcefe2e2a2e682b1447dcabf1ec268f78f08c63cd075753abcc8bda2c5c34d48d3014aa8d76ad80107e4f5c9f27e2149",
    },
];

#[test]
fn derivations_have_the_published_values() {
    for vector in VECTORS {
        let configured = ConfiguredPsk::parse(vector.text).expect("a valid key");
        let retained = configured.retain(HOST, vector.derivation).expect("a short NQN");
        assert_eq!(hex(&retained.key), vector.retained);
        let [v1, v0] = configured.offer(HOST, SUBSYSTEM, vector.derivation).expect("short NQNs");
        let number = configured.hash as u8;
        assert_eq!(v1.identity(), format!("NVMe1R{number:02} {HOST} {SUBSYSTEM} {}", vector.digest));
        assert_eq!(v0.identity(), format!("NVMe0R{number:02} {HOST} {SUBSYSTEM}"));
        assert_eq!((hex(v0.key()), hex(v1.key())), (vector.v0.to_owned(), vector.v1.to_owned()));
    }
}

#[test]
fn keys_are_read_and_written() {
    for text in [KEY_32, KEY_48, "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"] {
        let key = ConfiguredPsk::parse(text).expect("a valid key");
        assert_eq!(*key.to_text(), text);
        assert!(!format!("{key:?}").contains("VRL"));
    }
    let refused = [
        (KEY_32.replace(":01:", ":02:"), FormatError::Length { len: 32, allowed: "32 for 01 and 48 for 02" }),
        (KEY_32.replace(":01:", ":03:"), FormatError::Transform("NVMeTLSkey-1", KIND.transforms)),
        (KEY_32.replace("Nf9", "Mf9"), FormatError::Checksum),
        (KEY_32.replace("NVMeTLSkey-1", "DHHC-1"), FormatError::Prefix("NVMeTLSkey-1", "gen-tls-key")),
    ];
    for (text, expected) in refused {
        assert_eq!(ConfiguredPsk::parse(&text).expect_err("a malformed key"), expected);
    }
}

#[test]
fn a_key_without_transformation_is_the_retained_key() {
    let configured = ConfiguredPsk::parse(&KEY_32.replace(":01:", ":00:")).expect("a valid key");
    let retained = configured.retain(HOST, Derivation::Specification).expect("a short NQN");
    assert_eq!(retained.key, configured.key);
}

/// The keys of a server with the switch for old libnvme: one key for each identity, the old one where both have it.
#[test]
fn accepted_keys_have_distinct_identities() {
    let accept = |text: &str, old| {
        ConfiguredPsk::parse(text).expect("a valid key").accept(HOST, SUBSYSTEM, old).expect("short NQNs")
    };
    assert_eq!(accept(KEY_32, false).len(), 2);
    let both = accept(KEY_32, true);
    // Version 0 has the same identity in both derivations, version 1 another digest.
    assert_eq!(both.len(), 3);
    assert_eq!(hex(both[0].key()), VECTORS[2].v1);
    assert_eq!(hex(both[1].key()), VECTORS[2].v0);
    assert_eq!(hex(both[2].key()), VECTORS[0].v1);
    // Without transformation the digests agree as well.
    assert_eq!(accept(&KEY_32.replace(":01:", ":00:"), true).len(), 2);
}

#[test]
fn long_nqns_are_refused() {
    let configured = ConfiguredPsk::parse(KEY_32).expect("a valid key");
    let long = "n".repeat(223);
    assert_eq!(configured.offer(&long, &long, Derivation::Specification).err(), Some(NqnTooLong));
    let retained = configured.retain(&long, Derivation::Specification).expect("one NQN is never too long");
    assert!(retained.tls_psk(IdentityVersion::V1, &long, &long, Derivation::Specification).is_ok());
    assert_eq!(configured.retain(&"n".repeat(256), Derivation::Specification).err(), Some(NqnTooLong));
}

/// The test vectors of the Linux kernel's `auth_kunit.c`.
#[test]
fn generated_keys_have_the_values_of_the_kernel_tests() {
    let bytes = |first: u8, step: i8, len: usize| -> Vec<u8> {
        (0..len).map(|at| first.wrapping_add_signed((at as i8).wrapping_mul(step))).collect()
    };
    let cases = [
        (
            PskHash::Sha256,
            "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
            "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
        ),
        (
            PskHash::Sha384,
            "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
            "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
        ),
    ];
    for (hash, psk, digest, tls_psk) in cases {
        let len = hash.psk_len();
        let retained = RetainedPsk::generated(hash, &bytes(b'A', 1, len), &bytes(0, 1, len), &bytes(0xff, -1, len));
        assert_eq!(hex(&retained.key), psk);
        assert_eq!(retained.digest("hostnqn", "subsysnqn"), digest);
        let derived = retained.tls_psk(IdentityVersion::V1, "hostnqn", "subsysnqn", Derivation::Specification);
        assert_eq!(hex(derived.expect("short NQNs").key()), tls_psk);
    }
}

#[test]
fn generated_configured_keys_are_valid() {
    let mut random = |bytes: &mut [u8]| {
        bytes.fill(7);
        Ok(())
    };
    for (hash, transform) in [(PskHash::Sha256, true), (PskHash::Sha384, true), (PskHash::Sha384, false)] {
        let key = ConfiguredPsk::generate(hash, transform, &mut random).expect("random bytes");
        let read = ConfiguredPsk::parse(&key.to_text()).expect("a valid key");
        assert_eq!((read.transform, &read.key), (key.transform, &key.key));
    }
}

#[test]
fn the_older_derivation_gives_the_keys_of_debian_13() {
    // In the kernel's keyring after `nvme check-tls-key --insert` of nvme-cli 2.13 with libnvme 1.13.
    let host = "nqn.2014-08.org.nvmexpress:uuid:5f1b1a3e-3f5c-4c0a-9c5e-0c2a1d3b4e5f";
    let subsystem = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000042";
    let keys = [
        (
            "NVMeTLSkey-1:01:aXtkLWIV46/pzTFfAqXKwiI8a06sHB9vSc9vK6hkt/QSwfvw:",
            "m1Tx34vxUci1j7jEEFoLmjy0qXJKICQic9e1yLmvHSc=",
            "d04d6117e1dedf5b1700d2860ab48f12c7a2aa7dcc227045379e61a5c6416046",
            "1496b06538da973795f1a27917f33186efb68f332b94765199fdcf85a950245b",
        ),
        (
            "NVMeTLSkey-1:02:aE2FuY8DsyaASCHw3aWZz7fmfL1U0NnKj0wewQSlAcblhAc3xiylaaesVgvF+dQIYPMnPw==:",
            "q5q+XBLYapZLJ/IOaHG8LwxHW0EDt4jKXOL3I0wDwCkpuswJawSDKb3wm6E6BAZs",
            "6769be0dfb73c96470ba8fe70096d1cb34eefc40f842a933b29a0b83b56641c69b21efc17ab74c468201ac6452b1c0ee",
            "8f7b9f7d1dd704a2778c36d0f9d0469dd33f877aa8125d38b0d60d286b251db1e3ee253d687ae93c78aa8793b703865d",
        ),
    ];
    for (text, digest, key_v1, key_v0) in keys {
        let configured = ConfiguredPsk::parse(text).expect("a valid key");
        let [v1, v0] = configured.offer(host, subsystem, Derivation::LibnvmeBefore1_16).expect("short NQNs");
        assert!(v1.identity().ends_with(digest), "{}", v1.identity());
        assert_eq!((hex(v1.key()).as_str(), hex(v0.key()).as_str()), (key_v1, key_v0));
    }
}
