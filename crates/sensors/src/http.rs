//! JSON over HTTP, for Redfish and PDUs.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use crate::decimal;
use crate::sensor::{Missing, ReadError, Why};

/// Access to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoint {
    /// Base URL, such as `https://bmc.example`, without a path.
    pub url: String,
    /// User for basic authentication.
    pub user: Option<String>,
    /// File whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The only trusted certificate (PEM), for servers with a self-signed one.
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate. An attacker in the network path can then read the password.
    pub insecure: bool,
    /// Timeout of a request, in milliseconds; default: 5,000.
    pub timeout_ms: Option<u64>,
}

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
    authorization: Option<String>,
}

impl Client {
    /// # Errors
    /// The configuration is invalid. No request is sent yet.
    pub(crate) fn new(sensor: &str, endpoint: &Endpoint) -> Result<Self, Missing> {
        let wrong = |what: String, help: &str| Missing::new(sensor, Why::NotConfigured, what, help);
        if endpoint.url.is_empty() {
            return Err(wrong("url is not set".into(), "set url, such as http://192.0.2.7"));
        }
        if endpoint.url.starts_with("https:") && !cfg!(feature = "tls") {
            return Err(wrong("this program was built without https".into(), "build it with the feature tls"));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_millis(endpoint.timeout_ms.unwrap_or(5_000))))
            .http_status_as_error(true);
        #[cfg(feature = "tls")]
        let config = config.tls_config(tls(endpoint, &|what| wrong(what, "check ca_file"))?);
        let password = |path: &PathBuf| {
            let text = fs::read_to_string(path).map_err(|error| {
                wrong(
                    format!("cannot read {}: {error}", path.display()),
                    "write the password to it, readable only by the user",
                )
            })?;
            Ok(text.lines().next().unwrap_or("").to_owned())
        };
        let password = endpoint.password_file.as_ref().map(password).transpose()?.unwrap_or_default();
        let basic = |user: &String| format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        let authorization = endpoint.user.as_ref().map(basic);
        let url = endpoint.url.trim_end_matches('/').to_owned();
        Ok(Self { agent: config.build().into(), url, authorization })
    }

    /// The JSON at `path`.
    pub(crate) fn get(&self, path: &str) -> Result<Value, ReadError> {
        let url = format!("{}{path}", self.url);
        let failed = |what: String| ReadError::Content(format!("{url}: {what}"));
        let mut request = self.agent.get(&url).header("Accept", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let mut response = request.call().map_err(|error| failed(explain(&error)))?;
        let text = response.body_mut().read_to_string().map_err(|error| failed(explain(&error)))?;
        serde_json::from_str(&text).map_err(|error| failed(format!("invalid JSON in the response: {error}")))
    }
}

fn explain(error: &ureq::Error) -> String {
    match error {
        ureq::Error::StatusCode(401 | 403) => format!("{error}; check user and password_file"),
        other => other.to_string(),
    }
}

#[cfg(feature = "tls")]
fn tls(endpoint: &Endpoint, wrong: &dyn Fn(String) -> Missing) -> Result<ureq::tls::TlsConfig, Missing> {
    use ureq::tls::{Certificate, RootCerts, TlsConfig};
    // ureq has a default provider only with ring
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        TlsConfig::builder().unversioned_rustls_crypto_provider(provider).disable_verification(endpoint.insecure);
    let Some(path) = &endpoint.ca_file else { return Ok(config.build()) };
    let pem = fs::read(path).map_err(|error| wrong(format!("cannot read {}: {error}", path.display())))?;
    let certificate = Certificate::from_pem(&pem).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
    Ok(config.root_certs(RootCerts::new_with_certs(&[certificate])).build())
}

/// The number at `pointer` (RFC 6901) times 10 to the power of `digits`.
pub(crate) fn number_at(value: &Value, pointer: &str, digits: i32) -> Option<i64> {
    match value.pointer(pointer)? {
        Value::Number(number) => decimal::scaled(&number.to_string(), digits),
        Value::String(text) => decimal::scaled(text, digits),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        let value = serde_json::json!({"a": [{"w": 344.25}, {"w": "12"}, {"w": null}]});
        assert_eq!(number_at(&value, "/a/0/w", 6), Some(344_250_000));
        assert_eq!(number_at(&value, "/a/1/w", 6), Some(12_000_000));
        assert_eq!(number_at(&value, "/a/2/w", 6), None);
    }
}
