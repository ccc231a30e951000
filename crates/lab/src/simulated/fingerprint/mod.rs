//! Names what a run computes, by its values alone.
//!
//! *Problem.* Results must be recognized as those of other values, and as nothing else: a renamed key of a file, a renamed field or
//! file of this program, a comment or a source changes no result. *Encoding.* Everything that a run depends on is written as values
//! without names, in a fixed order: whole numbers as 64 bits whatever their type, in the unit in which the simulator holds them
//! (nanoseconds, bytes); floating-point numbers as their bits; truth values; texts and lists with their length; alternatives by number.
//! The SHA-256 of that, cut to [`DIGITS`], is the fingerprint. *What is no value*: names of machines and drives, paths of trace files, sources, notes, what a
//! constant was fitted on, ranges, titles, charts, names of variants, replications.
//!
//! **To add a field** to a struct that is encoded: it does not compile until the field is listed in its `values!`. At the end of the
//! list, all results with such a struct become stale. As `added NUMBER field = NEUTRAL`, with the next number of that struct, only those
//! in which it is not `NEUTRAL`: right where the neutral value computes what was computed before. A parameter of a policy is added
//! likewise in [`scenario::ADDED`]. A number is never used again. Fields may change their order in the struct, but not in `values!`.
//!
//! | file | what it encodes |
//! |---|---|
//! | this | numbers, texts, lists |
//! | [`contents`] | the bytes of trace files |
//! | [`machine`] | a server and its drives; a host with one drive, and jobs on it |
//! | [`scenario`] | a point under a policy |

pub mod contents;
mod machine;
pub mod scenario;

use sha2::{Digest as _, Sha256};

pub use pilotlight_results::fingerprint::{DIGITS, Fingerprint};

/// The fingerprint of these values.
pub fn of(values: &(impl Encode + ?Sized)) -> Fingerprint {
    let mut out = Values(Sha256::new());
    values.encode(&mut out);
    let digest = out.0.finalize();
    Fingerprint::new(digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Where values are written to.
#[derive(Debug)]
pub struct Values(Sha256);

impl Values {
    fn put(&mut self, kind: u8, bytes: &[u8]) {
        self.0.update([kind]);
        self.0.update(bytes);
    }

    /// Which of several alternatives follows.
    pub fn choice(&mut self, number: u8) {
        self.put(b'c', &[number]);
    }

    /// A field that was added to a struct after results were made with it, where it is not neutral.
    pub fn added(&mut self, number: u8, value: &impl Encode) {
        self.put(b'+', &[number]);
        value.encode(self);
    }
}

/// What can be written as values without names.
pub trait Encode {
    /// Writes its values.
    fn encode(&self, out: &mut Values);
}

/// The values of a struct, in this order; those after `but` are no values; those after `added` count where they are not neutral.
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
                out.put(b'i', &(*self as u64).to_le_bytes());
            }
        }
    )*};
}
whole!(u8, u16, u32, u64, usize);

impl Encode for f64 {
    fn encode(&self, out: &mut Values) {
        out.put(b'f', &self.to_bits().to_le_bytes());
    }
}

impl Encode for bool {
    fn encode(&self, out: &mut Values) {
        out.put(b'b', &[u8::from(*self)]);
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Values) {
        out.put(b't', &(self.len() as u64).to_le_bytes());
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
        out.put(b'l', &(self.len() as u64).to_le_bytes());
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
