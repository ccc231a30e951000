//! Keys, and what a server or a client offers.

use std::fmt;
use std::sync::Arc;

use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture};
use s2n_tls::config::{Builder, Config};
use s2n_tls::connection::Connection;
use s2n_tls::enums::PskHmac;
use s2n_tls::error::Error;
use s2n_tls::security::Policy;

use crate::error::Failure;
use crate::hash::Hash;
use crate::hello::Hello;
use crate::secrets;
use crate::user::SEND_BUFFER;

/// TLS 1.3 only; AES-128-GCM, AES-256-GCM and ChaCha20, which [`Hash::cipher_suite`] excludes; P-256, X25519, P-384, P-521.
const POLICY: &str = "AWS-CRT-SDK-TLSv1.3-2023";
/// Identities of one ClientHello that are looked up, so that a client cannot cause thousands of lookups.
const MAX_IDENTITIES: usize = 16;

/// A PSK that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pre-shared key cannot be used: {0}; it needs an identity of 1 to 65535 bytes and a key of at least 16 bytes"
)]
pub struct PskError(String);

/// An external pre-shared key with its identity. Clones share it; its memory is overwritten when the last one is dropped.
#[derive(Clone)]
pub struct Psk {
    inner: Arc<s2n_tls::psk::Psk>,
    identity: Arc<[u8]>,
    hash: Hash,
}

impl Psk {
    /// Copies `secret`; the caller overwrites its own copy.
    ///
    /// # Errors
    /// If identity or secret have a length that TLS does not allow.
    pub fn new(identity: &[u8], secret: &[u8], hash: Hash) -> Result<Self, PskError> {
        let build = || -> Result<s2n_tls::psk::Psk, Error> {
            let mut builder = s2n_tls::psk::Psk::builder()?;
            builder.set_identity(identity)?.set_secret(secret)?.set_hmac(match hash {
                Hash::Sha256 => PskHmac::SHA256,
                Hash::Sha384 => PskHmac::SHA384,
            })?;
            builder.build()
        };
        let inner = build().map_err(|error| PskError(error.message().to_owned()))?;
        Ok(Self { inner: Arc::new(inner), identity: identity.into(), hash })
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Its hash.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Adds it to the keys of a connection, which copies it.
    pub(crate) fn append_to(&self, conn: &mut Connection) -> Result<(), Error> {
        conn.append_psk(&self.inner)
    }
}

/// Without the key.
impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.identity.escape_ascii().to_string();
        f.debug_struct("Psk").field("identity", &identity).field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// What a server accepts: the keys that its lookup returns. Clones share it.
///
/// The first configuration or key of a process initializes s2n-tls, which reads the system's certificates although none is used: before
/// files become unreachable.
#[derive(Clone)]
pub struct ServerConfig {
    config: Config,
    prefers_kernel: bool,
}

impl ServerConfig {
    /// `lookup` gets an identity that a client offers and returns its key. It is called in [`Handshake::step`](crate::Handshake::step)
    /// for the offered identities in the client's order, at most 16, until one has a key and a common cipher suite. A panic in it ends
    /// the process, as C code calls it.
    #[must_use]
    pub fn new(lookup: impl Fn(&[u8]) -> Option<Psk> + Send + Sync + 'static) -> Self {
        let config = build(|builder| builder.set_client_hello_callback(Select(lookup)).map(drop));
        Self { config, prefers_kernel: false }
    }

    /// As [`new`](Self::new), but sessions are in the kernel if it has TLS ([Kernel TLS](crate#kernel-tls)).
    #[must_use]
    pub fn with_kernel(lookup: impl Fn(&[u8]) -> Option<Psk> + Send + Sync + 'static) -> Self {
        let config = build(|builder| {
            secrets::enable(builder)?;
            builder.set_client_hello_callback(Select(lookup)).map(drop)
        });
        Self { config, prefers_kernel: true }
    }

    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    pub(crate) fn prefers_kernel(&self) -> bool {
        self.prefers_kernel
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig").finish_non_exhaustive()
    }
}

/// What a client offers.
#[derive(Clone)]
pub struct ClientConfig {
    config: Config,
    prefers_kernel: bool,
    psks: Vec<Psk>,
}

impl ClientConfig {
    /// Offers these keys, the preferred one first.
    #[must_use]
    pub fn new(psks: Vec<Psk>) -> Self {
        Self { config: build(|_| Ok(())), prefers_kernel: false, psks }
    }

    /// As [`new`](Self::new), but sessions are in the kernel if it has TLS ([Kernel TLS](crate#kernel-tls)). A server that sends session
    /// tickets ends them.
    #[must_use]
    pub fn with_kernel(psks: Vec<Psk>) -> Self {
        Self { config: build(secrets::enable), prefers_kernel: true, psks }
    }

    pub(crate) fn prefers_kernel(&self) -> bool {
        self.prefers_kernel
    }

    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    pub(crate) fn psks(&self) -> &[Psk] {
        &self.psks
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig").field("psks", &self.psks).finish_non_exhaustive()
    }
}

/// A configuration without certificates, tickets and early data.
///
/// # Panics
/// If memory is exhausted, or the library does not know its policy.
fn build(add: impl FnOnce(&mut Builder) -> Result<(), Error>) -> Config {
    let make = || {
        let mut builder = Builder::new();
        builder.with_system_certs(false)?.set_security_policy(&Policy::from_version(POLICY)?)?;
        builder.set_send_buffer_size(SEND_BUFFER)?;
        add(&mut builder)?;
        builder.build()
    };
    make().expect("the library accepts constants")
}

/// Selects the key of a connection when the ClientHello has arrived.
struct Select<F>(F);

impl<F: Fn(&[u8]) -> Option<Psk>> Select<F> {
    fn choose(&self, hello: &Hello<'_>) -> Result<Psk, Failure> {
        if !hello.has_tls13() {
            return Err(Failure::NoTls13);
        }
        let (first, _) = hello.identities().next().ok_or(Failure::NoPsk)?;
        if !hello.has_dhe_mode() {
            return Err(Failure::NoDhe);
        }
        let mut failure = None;
        for (identity, binder) in hello.identities().take(MAX_IDENTITIES) {
            let Some(psk) = (self.0)(identity).filter(|psk| psk.identity() == identity) else { continue };
            let (code, needed) = psk.hash.cipher_suite();
            if !hello.has_cipher_suite(code) {
                failure = Some(Failure::NoCommonCipher { needed });
            } else if binder != psk.hash.digest_len() {
                failure = Some(Failure::BinderHash);
            } else {
                return Ok(psk);
            }
        }
        let offered = hello.identities().take(MAX_IDENTITIES).count();
        Err(failure.unwrap_or_else(|| Failure::unknown_identity(first, offered)))
    }

    fn select(&self, conn: &mut Connection) -> Result<(), Error> {
        let message = conn.client_hello()?.raw_message()?;
        let Some(hello) = Hello::parse(&message) else { return Ok(()) }; // s2n-tls refuses it too
        let psk = self.choose(&hello).map_err(|failure| Error::application(Box::new(failure)))?;
        psk.append_to(conn)
    }
}

impl<F: Fn(&[u8]) -> Option<Psk> + Send + Sync + 'static> ClientHelloCallback for Select<F> {
    fn on_client_hello(
        &self,
        conn: &mut Connection,
    ) -> Result<Option<std::pin::Pin<Box<dyn ConnectionFuture>>>, Error> {
        self.select(conn).map(|()| None)
    }
}
