//! Finite-field Diffie-Hellman over the groups of RFC 7919, in constant time of the exponent.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize as _, Zeroizing};

use crate::primes::{FFDHE2048, FFDHE3072, FFDHE4096, FFDHE6144, FFDHE8192};
use crate::random::{Random, RandomUnavailable};

/// A Diffie-Hellman group by its identifier (Base 8.3.5.5.2, DHgID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Group {
    /// No Diffie-Hellman exchange: plain HMAC-CHAP, which an eavesdropper can attack offline where a secret is weak.
    Null = 0,
    /// FFDHE2048.
    Ffdhe2048 = 1,
    /// FFDHE3072.
    Ffdhe3072 = 2,
    /// FFDHE4096.
    Ffdhe4096 = 3,
    /// FFDHE6144.
    Ffdhe6144 = 4,
    /// FFDHE8192.
    Ffdhe8192 = 5,
}

impl Group {
    /// All of them, in the order of their identifiers.
    pub const ALL: [Self; 6] =
        [Self::Null, Self::Ffdhe2048, Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192];

    /// The group with identifier `id`.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| *group as u8 == id)
    }

    /// The group that a configuration names: `null`, `ffdhe2048` and so on.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }

    /// Its name in configurations and messages, as the Linux kernel's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// Length of a public value in bytes; 0 for [`Group::Null`].
    #[must_use]
    pub const fn value_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// Whether `value`, big-endian, is a public value of a peer: of full length, greater than 1 and less than p - 1.
    #[must_use]
    pub fn accepts(self, value: &[u8]) -> bool {
        let prime = self.prime();
        let (Some((last, front)), Some((p_last, p_front))) = (value.split_last(), prime.split_last()) else {
            return self == Self::Null && value.is_empty();
        };
        let above_one = front.iter().any(|&byte| byte != 0) || *last > 1;
        // p is odd, so that p - 1 differs from p in the last byte only.
        value.len() == prime.len() && above_one && (front, *last) < (p_front, p_last - 1)
    }

    /// p, big-endian; empty for [`Group::Null`].
    fn prime(self) -> &'static [u8] {
        match self {
            Self::Null => &[],
            Self::Ffdhe2048 => &FFDHE2048,
            Self::Ffdhe3072 => &FFDHE3072,
            Self::Ffdhe4096 => &FFDHE4096,
            Self::Ffdhe6144 => &FFDHE6144,
            Self::Ffdhe8192 => &FFDHE8192,
        }
    }

    /// Length of a private exponent in bits: the minimum of RFC 7919, appendix A, rounded up to whole bytes.
    const fn exponent_len(self) -> usize {
        let bits: usize = match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 225,
            Self::Ffdhe3072 => 275,
            Self::Ffdhe4096 => 325,
            Self::Ffdhe6144 => 375,
            Self::Ffdhe8192 => 400,
        };
        bits.div_ceil(8)
    }

    /// `base ^ exponent mod p`, of full length. The time depends on the group only.
    fn power(self, base: &[u8], exponent: &[u8]) -> Zeroizing<Vec<u8>> {
        let bits = self.value_len() as u32 * 8;
        let number = |bytes: &[u8], bits| BoxedUint::from_be_slice(bytes, bits).expect("shorter than its precision");
        let prime = Odd::new(number(self.prime(), bits)).expect("the primes are odd");
        let params = BoxedMontyParams::new_vartime(prime); // the modulus is public
        let exponent_bits = exponent.len() as u32 * 8;
        let mut exponent = number(exponent, exponent_bits);
        let mut result = BoxedMontyForm::new(number(base, bits), &params).pow_bounded_exp(&exponent, exponent_bits);
        let mut plain = result.retrieve();
        let mut bytes = plain.to_be_bytes();
        let output = Zeroizing::new(bytes.to_vec());
        exponent.zeroize();
        result.zeroize();
        plain.zeroize();
        bytes.zeroize();
        output
    }
}

/// A private exponent; erased when it is dropped.
pub(crate) struct PrivateKey {
    group: Group,
    exponent: Zeroizing<Vec<u8>>,
}

impl PrivateKey {
    /// Draws an exponent; cheap.
    pub(crate) fn draw(group: Group, random: &mut Random<'_>) -> Result<Self, RandomUnavailable> {
        let mut exponent = Zeroizing::new(vec![0; group.exponent_len()]);
        random(&mut exponent)?;
        if let Some(first) = exponent.first_mut() {
            *first |= 0x80; // never short, never zero
        }
        Ok(Self { group, exponent })
    }

    /// `2 ^ exponent mod p`; empty for [`Group::Null`]. Milliseconds.
    pub(crate) fn public_value(&self) -> Vec<u8> {
        match self.group {
            Group::Null => Vec::new(),
            group => group.power(&[2], &self.exponent).to_vec(),
        }
    }

    /// `peer ^ exponent mod p`; none for [`Group::Null`]. `peer` has been [accepted](Group::accepts). Milliseconds.
    pub(crate) fn shared_value(&self, peer: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        (self.group != Group::Null).then(|| self.group.power(peer, &self.exponent))
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
