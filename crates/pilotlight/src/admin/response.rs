//! Responses of the control socket: `{"version":1,"ok":...}` or `{"version":1,"error":...}`, on one line.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::request::VERSION;

/// The envelope of a response.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
    ok: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    error: Option<Refusal>,
}

/// The response as a line, without the line feed.
pub(crate) fn to_line<T: Serialize>(result: Result<T, Refusal>) -> String {
    let (ok, error) = match result {
        Ok(ok) => (Some(ok), None),
        Err(error) => (None, Some(error)),
    };
    let envelope = Envelope { version: VERSION, ok, error };
    serde_json::to_string(&envelope).unwrap_or_else(|error| {
        let failed = Envelope::<()> { version: VERSION, ok: None, error: Some(Refusal::new(error.to_string())) };
        serde_json::to_string(&failed).unwrap_or_default()
    })
}

/// Parses a response; the error says why it is invalid.
pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> Result<Result<T, Refusal>, String> {
    let version: serde_json::Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if version["version"].as_u64() != Some(VERSION) {
        return Err(format!("protocol version {}, this program has {VERSION}", version["version"]));
    }
    let envelope: Envelope<T> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    match envelope {
        Envelope { ok: Some(ok), error: None, .. } => Ok(Ok(ok)),
        Envelope { ok: None, error: Some(refusal), .. } => Ok(Err(refusal)),
        _ => Err("it has neither `ok` nor `error`, or both".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_survive_a_round_trip() {
        let line = to_line(Ok(vec![1, 2]));
        assert_eq!(line, r#"{"version":1,"ok":[1,2]}"#);
        assert_eq!(parse::<Vec<u32>>(&line), Ok(Ok(vec![1, 2])));
        let refusal = Refusal::of("nsid", "no").help("yes");
        let line = to_line::<()>(Err(refusal.clone()));
        assert_eq!(line, r#"{"version":1,"error":{"field":"nsid","message":"no","help":["yes"]}}"#);
        assert_eq!(parse::<Vec<u32>>(&line), Ok(Err(refusal)));
    }

    #[test]
    fn invalid_responses_have_a_reason() {
        for (line, expected) in [
            (r#"{"version":2,"ok":[1]}"#, "version 2"),
            (r#"{"version":1}"#, "neither"),
            (r#"{"version":1,"ok":7}"#, "invalid type"),
            ("", "EOF"),
        ] {
            let reason = parse::<Vec<u32>>(line).unwrap_err();
            assert!(reason.contains(expected), "{line}: {reason}");
        }
    }
}
