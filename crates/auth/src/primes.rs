//! The primes of the FFDHE groups (RFC 7919, appendix A), built from their formula.
//!
//! Each prime is `2^n - 2^(n-64) + (floor(2^(n-130) * e) + X) * 2^64 - 1`: 64 ones, the first `n - 128` bits of e plus X - 1,
//! 64 ones. So one constant and five values of X define all five primes.

/// The first 8064 bits of e, two of them before the binary point.
const E: [u8; 1008] = decode(
    b"\
    adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2fe363630c75d8f681b202aec4617a\
    d3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade735\
    30acca4f483a797abc0ab182b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d70\
    9e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef1837d1683b2\
    c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4def99c023861b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91c\
    aefe130985139270b4130c93bc437944f4fd4452e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada\
    1dbf9a42d5c4484e0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f42d69f6d18\
    7763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c46dc778f971ad0038092999a333cb8b7a\
    1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a7f88a46b4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a\
    4e677d2c38532a3a23ba4442caf53ea63bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e46041f\
    388147fb4cfdb477a52471f7a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb29f8c183023c3587e38da0077d9b4\
    763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8db5847a67cbef9c9091b462d538cd72b03746ae77f5e\
    62292c311562a846505dc82db854338ae49f5235c95b91178ccf2dd5cacef403ec9d1810c6272b045b3b71f9dc6b80d63fdd4a8e9adb1e69\
    62a69526d43161c1a41d570d7938dad4a40e329ccff46aaa36ad004cf600c8381e425a31d951ae64fdb23fcec9509d43687feb69edd1cc5e\
    0b8cc3bdf64b10ef86b63142a3ab8829555b2f747c932665cb2c0f1cc01bd70229388839d2af05e454504ac78b7582822846c0ba35c35f5c\
    59160cc046fd8251541fc68c9c86b022bb7099876a460e7451a8a93109703fee1c217e6c3826e52c51aa691e0e423cfc99e9e31650c1217b\
    624816cdad9a95f9d5b8019488d9c0a0a1fe3075a577e23183f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe58a30\
    fafabe1c5d71a87e2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88cd68c8bb7c51eef6d",
);

/// FFDHE2048, big-endian.
pub(crate) static FFDHE2048: [u8; 256] = prime(560_316);
/// FFDHE3072, big-endian.
pub(crate) static FFDHE3072: [u8; 384] = prime(2_625_351);
/// FFDHE4096, big-endian.
pub(crate) static FFDHE4096: [u8; 512] = prime(5_736_041);
/// FFDHE6144, big-endian.
pub(crate) static FFDHE6144: [u8; 768] = prime(15_705_020);
/// FFDHE8192, big-endian.
pub(crate) static FFDHE8192: [u8; 1024] = prime(10_965_728);

/// The prime of `BYTES` bytes whose X is `x`.
const fn prime<const BYTES: usize>(x: u64) -> [u8; BYTES] {
    let mut prime = [0xff; BYTES];
    let mut carry = x - 1; // the formula's last 1 is borrowed: it leaves 64 ones
    let mut at = BYTES - 8;
    while at > 8 {
        at -= 1;
        carry += E[at - 8] as u64;
        prime[at] = carry as u8;
        carry >>= 8;
    }
    assert!(carry == 0, "X is far smaller than the part of e that it is added to");
    prime
}

/// Bytes of lower-case hexadecimal digits.
const fn decode<const BYTES: usize>(digits: &[u8]) -> [u8; BYTES] {
    assert!(digits.len() == 2 * BYTES, "two digits a byte");
    let mut bytes = [0; BYTES];
    let mut at = 0;
    while at < BYTES {
        bytes[at] = nibble(digits[2 * at]) << 4 | nibble(digits[2 * at + 1]);
        at += 1;
    }
    bytes
}

const fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => panic!("a hexadecimal digit"),
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// SHA-256 of each prime, computed with Python from the formula of RFC 7919; `openssl genpkey -pkeyopt group:ffdheN` makes keys that
    /// fit the same primes.
    const SHA256: [(&[u8], &str); 5] = [
        (&FFDHE2048, "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966"),
        (&FFDHE3072, "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17"),
        (&FFDHE4096, "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e"),
        (&FFDHE6144, "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7"),
        (&FFDHE8192, "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833"),
    ];

    #[test]
    fn primes_have_the_expected_digests() {
        for (prime, expected) in SHA256 {
            let digest = Sha256::digest(prime);
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected, "the prime of {} bits", prime.len() * 8);
        }
    }

    /// e as a fixed-point number of 32-bit limbs, the first of them before the point: the sum of 1/k!.
    fn e(limbs: usize) -> Vec<u32> {
        let (mut sum, mut term) = (vec![0; limbs], vec![0; limbs]);
        term[0] = 1;
        for k in 1.. {
            add(&mut sum, &term);
            divide(&mut term, k);
            if term.iter().all(|&limb| limb == 0) {
                return sum;
            }
        }
        unreachable!("the terms shrink to zero")
    }

    fn add(sum: &mut [u32], term: &[u32]) {
        let mut carry = 0;
        for (sum, &term) in sum.iter_mut().zip(term).rev() {
            carry += u64::from(*sum) + u64::from(term);
            *sum = carry as u32;
            carry >>= 32;
        }
    }

    fn divide(term: &mut [u32], by: u64) {
        let mut remainder = 0;
        for limb in term {
            let dividend = remainder << 32 | u64::from(*limb);
            *limb = (dividend / by) as u32;
            remainder = dividend % by;
        }
    }

    #[test]
    fn the_constant_is_e() {
        // Two bits stand before the point in `E`, 32 in the sum.
        let sum: Vec<u8> = e(300).iter().flat_map(|limb| limb.to_be_bytes()).collect();
        for (at, &byte) in E.iter().enumerate() {
            let expected = sum[at + 3] << 6 | sum[at + 4] >> 2;
            assert_eq!(byte, expected, "byte {at}");
        }
    }
}
