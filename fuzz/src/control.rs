//! Lines over the control socket: any user whom the socket admits can send them.
//!
//! Properties for all bytes, line by line: no panic; a request that is accepted is written as one line and read back as the same one, and
//! targets what it names; a refusal is one line of JSON, with a message, and not much longer than the line that it refuses.

use crate::admin::request::Request;

/// Parses every line.
pub fn check(bytes: &[u8]) {
    bytes.split(|&byte| byte == b'\n').for_each(check_line);
}

fn check_line(line: &[u8]) {
    match Request::parse(line) {
        Ok(request) => {
            let written = request.to_line();
            assert!(!written.contains('\n'), "{written}");
            let again = Request::parse(written.as_bytes());
            assert_eq!(again.as_ref(), Ok(&request), "{written}");
            let is_list = matches!(request, Request::HostList { .. } | Request::NamespaceList { .. });
            let is_report = matches!(request, Request::Status {} | Request::Counters { .. } | Request::Connections {});
            assert_eq!(request.is_read_only(), is_list || is_report, "what members of read_group may send: {written}");
        }
        Err(refusal) => {
            assert!(!refusal.message.is_empty());
            let answer = serde_json::to_string(&refusal).expect("a refusal is JSON");
            assert!(!answer.contains('\n') && answer.len() < 4000 + 20 * line.len(), "{answer}");
        }
    }
}
