//! Responses of the control socket: `{"version":1,"ok":...}` or `{"version":1,"error":...}`, on one line.

use anyhow::bail;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
        let failed = Envelope::<()> { version: VERSION, ok: None, error: Some(Refusal::new(error)) };
        serde_json::to_string(&failed).unwrap_or_default()
    })
}

/// Parses a response; the error says why it is invalid. All of its text can be printed on a terminal.
pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> anyhow::Result<Result<T, Refusal>> {
    let response: Value = serde_json::from_str(line)?;
    let response = printable(response);
    if response["version"].as_u64() != Some(VERSION) {
        bail!("protocol version {}, this program has {VERSION}", response["version"]);
    }
    let envelope: Envelope<T> = serde_json::from_value(response)?;
    match envelope {
        Envelope { ok: Some(ok), error: None, .. } => Ok(Ok(ok)),
        Envelope { ok: None, error: Some(refusal), .. } => Ok(Err(refusal)),
        _ => bail!("it has neither `ok` nor `error`, or both"),
    }
}

/// A value whose strings and keys have escapes in place of the characters that control a terminal. Names of hosts, paths and errors of
/// the system are in responses, and who chose them need not be the server's operator.
fn printable(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(escaped(text)),
        Value::Array(values) => values.into_iter().map(printable).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (escaped(key), printable(value))).collect(),
        other => other,
    }
}

fn escaped(text: String) -> String {
    // besides the control characters, those that change the direction of text (Unicode Standard Annex 9)
    let controls = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(controls) {
        return text;
    }
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if controls(c) { printable.extend(c.escape_unicode()) } else { printable.push(c) }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_survive_a_round_trip() {
        let line = to_line(Ok(vec![1, 2]));
        assert_eq!(line, r#"{"version":1,"ok":[1,2]}"#);
        assert_eq!(parse::<Vec<u32>>(&line).unwrap(), Ok(vec![1, 2]));
        let refusal = Refusal::for_field("nsid", "no").help("yes");
        let line = to_line::<()>(Err(refusal.clone()));
        assert_eq!(line, r#"{"version":1,"error":{"field":"nsid","message":"no","help":["yes"]}}"#);
        assert_eq!(parse::<Vec<u32>>(&line).unwrap(), Err(refusal));
    }

    #[test]
    fn no_text_of_a_response_controls_a_terminal() {
        let hostile = "a\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\u{202e}b\r\u{fc}";
        let harmless = r"a\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\u{202e}b\u{d}ü";
        let line = to_line(Ok(serde_json::json!({ "list": [hostile], hostile: [{ "name": hostile }], "n": 1.5 })));
        let expected = serde_json::json!({ "list": [harmless], harmless: [{ "name": harmless }], "n": 1.5 });
        assert_eq!(parse::<Value>(&line).unwrap(), Ok(expected));
        let line = to_line::<()>(Err(Refusal::for_field(hostile, format!("{hostile}\n")).help(hostile)));
        let refusal = Refusal::for_field(harmless, format!("{harmless}\n")).help(harmless);
        assert_eq!(parse::<Value>(&line).unwrap(), Err(refusal));
        let line = format!("{{\"version\":1,\"ok\":{}}}", serde_json::to_string(hostile).unwrap());
        assert!(
            !parse::<u32>(&line).unwrap_err().to_string().contains(char::is_control),
            "also where it has another form"
        );
    }

    #[test]
    fn invalid_responses_have_a_reason() {
        for (line, expected) in [
            (r#"{"version":2,"ok":[1]}"#, "version 2"),
            (r#"{"version":1}"#, "neither"),
            (r#"{"version":1,"ok":7}"#, "invalid type"),
            ("", "EOF"),
        ] {
            let reason = parse::<Vec<u32>>(line).unwrap_err().to_string();
            assert!(reason.contains(expected), "{line}: {reason}");
        }
    }
}
