//! Fingerprints of the inputs of runs, by value.
//!
//! *Problem.* Results become stale only if an input value changes, not if a key, field or file is renamed or a comment or source changes.
//! *Encoding.* All inputs are encoded without names in a fixed order: integers as 64 bits in the simulator's unit (nanoseconds, bytes), floating
//! point numbers by their bits, booleans, strings and lists with their length, enum variants by number. The fingerprint is the SHA-256 of that,
//! truncated to [`DIGITS`]. *Not encoded*: names of machines and drives, paths of trace files, sources, notes, fits, ranges, titles, charts, names of
//! variants, replications.
//!
//! **To add a field** to an encoded struct, list it in its `values!` (otherwise it does not compile). At the end of the list it makes all results
//! with the struct stale. As `added NUMBER field = NEUTRAL`, with the next number of the struct, only those where it is not `NEUTRAL`; use this
//! if the neutral value gives the earlier results. Parameters of policies are added in [`scenario::ADDED`] in the same way. Numbers are never
//! reused. The order in `values!` must not change.
//!
//! | file | content |
//! |---|---|
//! | this | numbers, texts, lists |
//! | [`contents`] | the bytes of trace files |
//! | [`machine`] | a server and its drives; a host with one drive, and jobs on it |
//! | [`scenario`] | a point under a policy |

pub mod contents;
mod machine;
pub mod scenario;

use sha2::{Digest as _, Sha256};

pub use crate::stored::fingerprint::{DIGITS, Fingerprint};

/// The fingerprint of these values.
pub fn digest(values: &(impl Encode + ?Sized)) -> Fingerprint {
    let mut out = Values(Sha256::new());
    values.encode(&mut out);
    let digest = out.0.finalize();
    Fingerprint::new(digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The encoder.
#[derive(Debug)]
pub struct Values(Sha256);

impl Values {
    fn write(&mut self, kind: u8, bytes: &[u8]) {
        self.0.update([kind]);
        self.0.update(bytes);
    }

    /// Writes the number of an enum variant.
    pub fn choice(&mut self, number: u8) {
        self.write(b'c', &[number]);
    }

    /// Writes a field added later, with its number, if it is not neutral.
    pub fn added(&mut self, number: u8, value: &impl Encode) {
        self.write(b'+', &[number]);
        value.encode(self);
    }
}

/// Types that can be encoded.
pub trait Encode {
    /// Encodes the value.
    fn encode(&self, out: &mut Values);
}

/// Encodes the fields of a struct in this order. Fields after `but` are not encoded, those after `added` only if not neutral.
macro_rules! values {
    ($type:ty: $($field:ident),* $(; but $($left:ident),*)? $(; added $($number:literal $new:ident = $neutral:expr),*)?) => {
        impl crate::simulated::fingerprint::Encode for $type {
            fn encode(&self, out: &mut crate::simulated::fingerprint::Values) {
                let Self { $($field,)* $($($left: _,)*)? $($($new,)*)? } = self;
                $($field.encode(out);)*
                $($(if *$new != $neutral {
                    out.added($number, $new);
                })*)?
            }
        }
    };
}
use values;

macro_rules! whole {
    ($($type:ty),*) => {$(
        impl Encode for $type {
            fn encode(&self, out: &mut Values) {
                out.write(b'i', &(*self as u64).to_le_bytes());
            }
        }
    )*};
}
whole!(u8, u16, u32, u64, usize);

impl Encode for f64 {
    fn encode(&self, out: &mut Values) {
        out.write(b'f', &self.to_bits().to_le_bytes());
    }
}

impl Encode for bool {
    fn encode(&self, out: &mut Values) {
        out.write(b'b', &[u8::from(*self)]);
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Values) {
        out.write(b't', &(self.len() as u64).to_le_bytes());
        out.0.update(self);
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Values) {
        self.as_str().encode(out);
    }
}

impl Encode for Fingerprint {
    fn encode(&self, out: &mut Values) {
        self.number().encode(out);
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, out: &mut Values) {
        out.write(b'l', &(self.len() as u64).to_le_bytes());
        self.iter().for_each(|value| value.encode(out));
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Values) {
        self.as_slice().encode(out);
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Values) {
        out.choice(u8::from(self.is_some()));
        self.iter().for_each(|value| value.encode(out));
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, out: &mut Values) {
        (*self).encode(out);
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Values) {
        self.0.encode(out);
        self.1.encode(out);
    }
}

#[cfg(test)]
mod tests;
