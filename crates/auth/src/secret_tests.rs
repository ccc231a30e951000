//! Tests of `secret.rs`: published and computed secrets, and every way in which a text is refused.

use super::*;

const BYTES_0_TO_31: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first two are examples in the documentation of nvme-cli, the others were computed with Python's zlib.
#[test]
fn secrets_are_read_and_written() {
    let texts = [
        "DHHC-1:00:2wKd3YDIcRMN/rCJa/k60E8xBQMw+2D9UnigSQ6YFkEHV3Yy:",
        "DHHC-1:02:d4gmzh5i0I3npDMWAmJX/nAvAw7ioKmS2w44ceutFeObYDFG/r6zOB3UW0FLzevsI7XDJg==:",
        BYTES_0_TO_31,
        "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
    ];
    for text in texts {
        assert_eq!(*Secret::parse(text).expect("a valid secret").to_text(), text);
    }
    assert_eq!(*Secret::parse(BYTES_0_TO_31).expect("a valid secret").key, (0..32).collect::<Vec<_>>());
}

/// Python: `hmac.new(key, nqn + b"NVMe-over-Fabrics", hash)`, with keys of the bytes 0, 1, 2, ...
#[test]
fn transformed_keys_have_the_values_that_python_computes() {
    let nqn = "nqn.2014-08.org.nvmexpress:uuid:a";
    let cases = [
        (None, 32, "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"),
        (Some(HashFunction::Sha256), 32, "b598191ed9c6b42845fdb0c8bcd100a810e3dc17f848c3d51584d08cd0069c90"),
        (
            Some(HashFunction::Sha384),
            48,
            "b7f1b987e6bfc9bba8d000f24a2277ff251f1e10951a4c35050d990f589ef70eee84c5f1ce1618e09c047975be4df80a",
        ),
        (
            Some(HashFunction::Sha512),
            64,
            "8c10cb4acf16932f7474f87b9fc0f7aeed19fb75b1211c932d01b2454526e05a084104d0c9e5691319774437924063c8a6e37e189b77d71f4560254662743e83",
        ),
        // The length of the key is that of the hash function, not that of the secret.
        (
            Some(HashFunction::Sha384),
            32,
            "e7c61eb93c3622beb57a5086fb841ca0ef05a97a5ac13a41381bc095f18136677cdc52b5cc1ba125e36a1264ae9bed3f",
        ),
    ];
    for (transform, len, expected) in cases {
        let secret = Secret { transform, key: Zeroizing::new((0..len).collect()) };
        assert_eq!(hex(&secret.key_of(nqn)), expected, "{transform:?}, {len} bytes");
    }
}

#[test]
fn malformed_secrets_are_refused_with_their_cause() {
    let body = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR";
    let transform = FormatError::Transform("DHHC-1", KIND.transforms);
    let cases = [
        (String::new(), FormatError::Prefix("DHHC-1", "gen-dhchap-key")),
        (format!("DHHC-2:00:{body}:"), FormatError::Prefix("DHHC-1", "gen-dhchap-key")),
        (format!("NVMeTLSkey-1:01:{body}:"), FormatError::Prefix("DHHC-1", "gen-dhchap-key")),
        ("DHHC-1:00".to_owned(), transform),
        (format!("DHHC-1:04:{body}:"), transform),
        (format!("DHHC-1:1:{body}:"), transform),
        (format!("DHHC-1:10:{body}:"), transform),
        (format!("DHHC-1:00:{body}"), FormatError::Terminator),
        (format!("DHHC-1:00:{}:", &body[..47]), FormatError::Base64),
        (format!("DHHC-1:00:{}*:", &body[..47]), FormatError::Base64),
        (format!("DHHC-1:00: {body}:"), FormatError::Base64),
        (format!("DHHC-1:00:{}:", &body[..44]), FormatError::Length { len: 29, allowed: "32, 48 or 64" }),
        ("DHHC-1:00::".to_owned(), FormatError::Length { len: 0, allowed: "32, 48 or 64" }),
        (format!("DHHC-1:00:{}:", body.repeat(9)), FormatError::Length { len: 324, allowed: "32, 48 or 64" }),
        (format!("DHHC-1:00:B{}:", &body[1..]), FormatError::Checksum),
    ];
    for (text, expected) in cases {
        let error = Secret::parse(&text).expect_err("a malformed secret");
        assert_eq!(error, expected, "{text}");
        assert!(!error.to_string().contains(&body[..8]), "a message must not quote a secret");
    }
}

#[test]
fn generated_secrets_are_valid_and_never_printed() {
    let mut random = |bytes: &mut [u8]| {
        bytes.fill(0xa5);
        Ok(())
    };
    for transform in [None, Some(HashFunction::Sha256), Some(HashFunction::Sha384), Some(HashFunction::Sha512)] {
        for len in [SecretLen::Bytes32, SecretLen::Bytes48, SecretLen::Bytes64] {
            let secret = Secret::generate(transform, len, &mut random).expect("random bytes");
            let read = Secret::parse(&secret.to_text()).expect("a valid secret");
            assert_eq!((read.transform, &read.key), (transform, &secret.key));
            assert_eq!(read.key.len(), len as usize);
            assert_eq!(format!("{secret:?}"), "Secret");
        }
    }
    let failed = Secret::generate(None, SecretLen::Bytes32, &mut |_: &mut [u8]| Err(RandomUnavailable));
    assert_eq!(failed.err(), Some(RandomUnavailable));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(DHHC-1:0[0-4]:)?[A-Za-z0-9+/=:]{0,110}:?") {
        if let Ok(secret) = Secret::parse(&text) {
            proptest::prop_assert_eq!(&*secret.to_text(), &text);
        }
    }
}
