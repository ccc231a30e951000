//! Checks of each request before it is handled, and headers of each response.

use std::io;

use super::token;
use crate::http::{is_this_machine, name_in};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

/// Content security policy: scripts and data of this origin only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Why a request is not answered.
pub(super) type Refused = (StatusCode, &'static str);

pub(super) fn add_headers(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Checks the `Host` and `Origin` headers. `hosts` are names in addition to `localhost` and addresses.
///
/// Browsers send `Origin` with every change; with a stream of events only from another origin.
pub(super) fn check(method: &Method, path: &str, headers: &HeaderMap, hosts: &[String]) -> Result<(), Refused> {
    let host = text(headers, header::HOST).unwrap_or_default();
    let is_known = is_this_machine(host) || hosts.iter().any(|known| known.eq_ignore_ascii_case(name_in(host)));
    if !is_known {
        return Err((StatusCode::MISDIRECTED_REQUEST, "use an address, localhost, or a name of `hosts` in [page]"));
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    if !changes && path != "/events" {
        return Ok(());
    }
    let origin = text(headers, header::ORIGIN);
    let is_own = |origin: &str| {
        let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        name.is_some_and(|name| name.eq_ignore_ascii_case(host))
    };
    let site = text(headers, HeaderName::from_static("sec-fetch-site"));
    let from_here = origin.map_or(!changes, is_own) && site.is_none_or(|site| site == "same-origin");
    if !from_here {
        return Err((StatusCode::FORBIDDEN, "this request comes from another page (Origin)"));
    }
    let is_json = text(headers, header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
    if changes && !is_json {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send JSON (Content-Type: application/json)"));
    }
    Ok(())
}

/// The name of the session's cookie. Browsers do not separate cookies by port, so each server needs a name of its own, also two that are
/// reached under one address (`ssh -L`).
///
/// # Errors
/// If there are no random numbers.
pub(super) fn cookie_name() -> io::Result<String> {
    let id = token::random()?;
    Ok(format!("pilotlight-{}", &id[..8]))
}

/// The session that a request names.
pub(super) fn session<'a>(headers: &'a HeaderMap, cookie: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find(|(name, _)| *name == cookie).map(|(_, id)| id)
}

/// The cookie of a session, or its removal.
pub(super) fn set_cookie(cookie: &str, id: Option<&str>) -> String {
    let forget = if id.is_some() { "" } else { "; Max-Age=0" };
    format!("{cookie}={}; HttpOnly; SameSite=Strict; Path=/{forget}", id.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn status(method: &Method, path: &str, pairs: &[(&'static str, &str)]) -> Option<u16> {
        let hosts = ["storage1.example.com".to_owned()];
        check(method, path, &headers(pairs), &hosts).err().map(|(status, _)| status.as_u16())
    }

    #[test]
    fn only_names_of_this_server_are_answered() {
        for host in
            ["localhost:9809", "127.0.0.1:9809", "[::1]:9809", "storage1.example.com", "Storage1.Example.com:80"]
        {
            assert_eq!(status(&Method::GET, "/", &[("host", host)]), None, "{host}");
        }
        for host in ["", "example.com", "storage1.example.com.evil.test:9809", "evil-storage1.example.com"] {
            assert_eq!(status(&Method::GET, "/", &[("host", host)]), Some(421), "{host}");
        }
        assert_eq!(status(&Method::GET, "/", &[]), Some(421));
    }

    #[test]
    fn a_change_comes_from_the_page_itself() {
        const HOST: (&str, &str) = ("host", "localhost:9809");
        const JSON: (&str, &str) = ("content-type", "application/json");
        let post = |pairs: &[(&'static str, &str)]| status(&Method::POST, "/change", pairs);
        assert_eq!(post(&[HOST, JSON, ("origin", "http://localhost:9809")]), None);
        assert_eq!(post(&[HOST, JSON, ("origin", "https://localhost:9809")]), None, "a proxy with TLS");
        for origin in ["http://localhost:8080", "http://localhost", "null", "", "http://evil.test", "localhost:9809"] {
            assert_eq!(post(&[HOST, JSON, ("origin", origin)]), Some(403), "{origin}");
        }
        assert_eq!(post(&[HOST, JSON]), Some(403), "without an origin");
        let same_site = ("sec-fetch-site", "same-site");
        assert_eq!(post(&[HOST, JSON, ("origin", "http://localhost:9809"), same_site]), Some(403));
        let form = ("content-type", "application/x-www-form-urlencoded");
        assert_eq!(post(&[HOST, form, ("origin", "http://localhost:9809")]), Some(415));
        assert_eq!(status(&Method::DELETE, "/", &[HOST, JSON]), Some(403));
    }

    #[test]
    fn events_are_for_no_other_page() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:9809");
        let get = |pairs: &[(&'static str, &str)]| status(&Method::GET, "/events", pairs);
        assert_eq!(get(&[HOST]), None, "browsers send no Origin to where the page is from");
        assert_eq!(get(&[HOST, ("sec-fetch-site", "same-origin")]), None);
        assert_eq!(get(&[HOST, ("sec-fetch-site", "same-site")]), Some(403));
        assert_eq!(get(&[HOST, ("origin", "http://127.0.0.1:8080")]), Some(403));
        assert_eq!(get(&[HOST, ("origin", "http://127.0.0.1:9809")]), None);
    }

    #[test]
    fn the_session_cookie_is_found_and_is_server_specific() {
        assert_ne!(cookie_name().unwrap(), cookie_name().unwrap());
        let all = headers(&[("cookie", "other=1; pilotlight-x=abc; pilotlight-xy=def")]);
        assert_eq!(session(&all, "pilotlight-x"), Some("abc"));
        assert_eq!(session(&all, "pilotlight"), None);
        assert_eq!(set_cookie("a", Some("b")), "a=b; HttpOnly; SameSite=Strict; Path=/");
        assert_eq!(set_cookie("a", None), "a=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    }
}
