//! Access to etcd, and what a member is.

use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};

/// Interval of pings of a connection: etcd ends one that has more than one in 5 s (`--grpc-keepalive-min-time`).
const PING: Duration = Duration::from_secs(10);

/// Access to etcd.
#[derive(Clone, Default)]
pub struct Etcd {
    /// Client addresses, such as `https://192.0.2.1:2379`.
    pub endpoints: Vec<String>,
    /// How connections to `https` addresses are checked.
    pub tls: Tls,
    /// User and password.
    pub user: Option<(String, String)>,
}

/// TLS of connections to etcd, as PEM texts.
#[derive(Clone, Default)]
pub struct Tls {
    /// Authorities that sign its certificates; required with `https`.
    pub ca: Option<String>,
    /// The client's certificate and key.
    pub identity: Option<(String, String)>,
}

/// A member.
#[derive(Clone)]
pub struct MemberConfig {
    /// Access to etcd.
    pub etcd: Etcd,
    /// Name of the rack.
    pub rack: String,
    /// Name of the member, unique in the rack.
    pub name: String,
    /// Power budget without a grant, in microwatts.
    pub floor_uw: u64,
    /// The floor reserved in etcd, in microwatts, if it was known before: it is in force until etcd is read.
    pub reserved_uw: Option<u64>,
    /// Power above which it gains nothing, in microwatts.
    pub full_uw: u64,
    /// Higher ones come first.
    pub priority: u8,
    /// Time of the lease, at least 2 s.
    pub lease: Duration,
}

/// Why etcd cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The address, TLS or the request failed.
    #[error("etcd: {}", describe(.0))]
    Client(etcd_client::Error),
    /// No answer.
    #[error("etcd does not answer within {0:?}: check its addresses and `etcdctl endpoint health`")]
    Timeout(Duration),
}

/// The cause and what to check: a status of gRPC prints its causes as `Debug` does.
fn describe(error: &etcd_client::Error) -> String {
    const CONNECTION: &str = ": check its addresses, http or https, certificates, and `etcdctl endpoint health`";
    let with_cause = |text: &str, error: &dyn std::error::Error| match root_cause(error) {
        Some(cause) if cause != text => format!("{text}: {cause}"),
        _ => text.to_owned(),
    };
    match error {
        etcd_client::Error::InvalidUri(error) => format!("{error}: write addresses such as http://192.0.2.1:2379"),
        etcd_client::Error::TransportError(error) => with_cause("cannot connect", error) + CONNECTION,
        etcd_client::Error::GRpcStatus(status) => {
            let text = with_cause(status.message(), status);
            let is_refused = ["auth", "user", "permission"].iter().any(|word| text.contains(word));
            let is_no_answer = std::error::Error::source(status).is_some();
            match (is_no_answer, is_refused) {
                (true, _) => text + CONNECTION,
                (false, true) => text + ": check the user, its password and its roles",
                (false, false) => text + ": check `etcdctl endpoint health`",
            }
        }
        other => other.to_string(),
    }
}

fn root_cause(error: &dyn std::error::Error) -> Option<String> {
    std::iter::successors(error.source(), |error| error.source())
        .last()
        .map(|error| error.to_string().trim_end_matches('.').to_owned())
}

/// Its text has the cause, for states and logs.
impl From<etcd_client::Error> for EtcdError {
    fn from(error: etcd_client::Error) -> Self {
        Self::Client(error)
    }
}

impl Etcd {
    /// Connects. Later failures of a connection are mended by the client.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<Client, EtcdError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(timeout)
            .with_keep_alive(PING, PING)
            .with_keep_alive_while_idle(true);
        options = options.with_require_leader(true);
        if self.endpoints.iter().any(|endpoint| endpoint.starts_with("https:")) {
            options = options.with_tls(self.tls.options());
        }
        if let Some((user, password)) = &self.user {
            options = options.with_user(user, password).with_auto_token_refresh(true);
        }
        within(timeout, Client::connect(&self.endpoints, Some(options))).await
    }
}

impl Tls {
    fn options(&self) -> TlsOptions {
        let authorities = self.ca.as_deref().unwrap_or_default();
        let options = TlsOptions::new().ca_certificate(Certificate::from_pem(authorities));
        match &self.identity {
            Some((certificate, key)) => options.identity(Identity::from_pem(certificate, key)),
            None => options,
        }
    }
}

/// The result of a request within a time.
pub(crate) async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, EtcdError> {
    match tokio::time::timeout(timeout, request).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(EtcdError::Timeout(timeout)),
    }
}
