//! The traffic secrets of a handshake, and the keys that kernel TLS needs from them. With `unsafe` for a callback of s2n-tls.
//!
//! s2n-tls gives the secrets to its callback for key logs alone (`Connection::set_secret_callback` is for QUIC). The callback runs on
//! the thread that drives the handshake, which is how it finds where they belong.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use hkdf::Hkdf;
use s2n_tls::config::Builder;
use s2n_tls::error::Error;
use s2n_tls::ffi::s2n_connection;
use zeroize::Zeroizing;

use crate::hash::Hash;

/// A secret, erased when it is dropped.
type Secret = Zeroizing<Vec<u8>>;

/// The secrets of one connection for application data (RFC 8446, section 7.1), as far as they are known.
#[derive(Default)]
pub(crate) struct Secrets {
    client: Option<Secret>,
    server: Option<Secret>,
}

thread_local! {
    /// Where the callback stores secrets during [`Secrets::capture`].
    static CURRENT: RefCell<Option<Secrets>> = const { RefCell::new(None) };
}

impl Secrets {
    /// Stores the secrets that s2n-tls derives during `work`.
    pub(crate) fn capture<T>(&mut self, work: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(std::mem::take(self)));
        let result = work();
        *self = CURRENT.take().unwrap_or_default();
        result
    }

    /// The client's secret and the server's.
    pub(crate) fn both(&self) -> Option<(&[u8], &[u8])> {
        Some((self.client.as_ref()?, self.server.as_ref()?))
    }

    /// Takes a line of a key log: label, ClientHello.random and secret, the latter two in hexadecimal.
    fn note(&mut self, line: &[u8]) {
        let mut words = line.split(|byte| *byte == b' ');
        let slot = match words.next() {
            Some(b"CLIENT_TRAFFIC_SECRET_0") => &mut self.client,
            Some(b"SERVER_TRAFFIC_SECRET_0") => &mut self.server,
            _ => return,
        };
        *slot = words.nth(1).and_then(from_hex);
    }
}

fn from_hex(digits: &[u8]) -> Option<Secret> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        bytes.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(bytes)
}

/// Lets [`Secrets::capture`] get the secrets of connections of this configuration.
pub(crate) fn enable(builder: &mut Builder) -> Result<(), Error> {
    // SAFETY: the callback does not use its context.
    unsafe { builder.set_key_log_callback(Some(log), std::ptr::null_mut()).map(drop) }
}

/// The callback: a line of `len` bytes. Outside of `capture` it is dropped.
unsafe extern "C" fn log(_: *mut c_void, _: *mut s2n_connection, line: *mut u8, len: usize) -> c_int {
    // SAFETY: s2n-tls passes `len` readable bytes, which stay its own during the call.
    let line = unsafe { std::slice::from_raw_parts(line, len) };
    CURRENT.with_borrow_mut(|current| {
        if let Some(secrets) = current {
            secrets.note(line);
        }
    });
    0
}

/// Key and nonce of one direction.
pub(crate) struct Keys {
    /// 16 or 32 bytes.
    pub(crate) key: Secret,
    /// The per-record nonce before the exclusive or with the record number.
    pub(crate) iv: Zeroizing<[u8; 12]>,
}

impl Keys {
    /// From a traffic secret (RFC 8446, section 7.3).
    pub(crate) fn derive(hash: Hash, secret: &[u8]) -> Self {
        let (mut key, mut iv) = (Zeroizing::new(vec![0; hash.key_len()]), Zeroizing::new([0; 12]));
        expand_label(hash, secret, b"tls13 key", &mut key);
        expand_label(hash, secret, b"tls13 iv", &mut *iv);
        Self { key, iv }
    }
}

/// HKDF-Expand-Label without context; `label` has its prefix (RFC 8446, section 7.1).
fn expand_label(hash: Hash, secret: &[u8], label: &[u8], output: &mut [u8]) {
    let info = [&(output.len() as u16).to_be_bytes(), &[label.len() as u8][..], label, &[0]].concat();
    match hash {
        Hash::Sha256 => Hkdf::<sha2::Sha256>::from_prk(secret).map(|hkdf| hkdf.expand(&info, output)),
        Hash::Sha384 => Hkdf::<sha2::Sha384>::from_prk(secret).map(|hkdf| hkdf.expand(&info, output)),
    }
    .expect("a traffic secret has the length of its hash")
    .expect("a key is shorter than HKDF's maximum");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(digits: &str) -> Secret {
        from_hex(digits.as_bytes()).expect("hexadecimal")
    }

    /// RFC 8448, section 3: the server's keys for application data.
    #[test]
    fn keys_have_the_published_values() {
        let secret = bytes("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let keys = Keys::derive(Hash::Sha256, &secret);
        assert_eq!(keys.key, bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(keys.iv[..], bytes("cf782b88dd83549aadf1e984")[..]);
        assert_eq!(Keys::derive(Hash::Sha384, &[1; 48]).key.len(), 32);
    }

    #[test]
    fn only_the_secrets_of_application_data_are_taken() {
        let mut secrets = Secrets::default();
        secrets.note(b"CLIENT_HANDSHAKE_TRAFFIC_SECRET 0102 01");
        secrets.note(b"CLIENT_TRAFFIC_SECRET_0 0102 0a");
        assert!(secrets.both().is_none());
        secrets.note(b"SERVER_TRAFFIC_SECRET_0 0102 ff");
        assert_eq!(secrets.both(), Some((&[10][..], &[255][..])));
        secrets.note(b"SERVER_TRAFFIC_SECRET_0 0102 xx");
        assert!(secrets.both().is_none());
    }
}
