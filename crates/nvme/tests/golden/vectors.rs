//! Reads the golden vectors: annotated hexadecimal, see `golden/README.md`. An invalid file is a panic that names file and
//! line.

use std::fs;
use std::path::{Path, PathBuf};

/// Directory of the vectors.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The bytes of `golden/NAME.hex`.
pub(crate) fn vector(name: &str) -> Vec<u8> {
    read(&directory().join(name).with_extension("hex"))
}

/// Every `*.hex` and `*.bin` file in `directory` and below it, sorted.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "hex" || extension == "bin") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|extension| extension == "bin") {
        return fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    for (number, line) in text.lines().enumerate() {
        read_line(line, &mut bytes).unwrap_or_else(|why| panic!("{}:{}: {why}", path.display(), number + 1));
    }
    bytes
}

/// Checks the offset of a line and appends its bytes.
pub(crate) fn read_line(line: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() {
        return Ok(());
    }
    let (offset, rest) = line.split_once(':').ok_or("no offset")?;
    let offset = usize::from_str_radix(offset.trim(), 16).map_err(|error| format!("offset: {error}"))?;
    if offset != bytes.len() {
        return Err(format!("offset {offset:x} after {:x} bytes", bytes.len()));
    }
    let mut rest = rest.trim();
    while !rest.is_empty() {
        rest = match rest.strip_prefix('"') {
            Some(quoted) => read_text(quoted, bytes)?,
            None => read_byte(rest, bytes)?,
        }
        .trim_start();
    }
    Ok(())
}

/// `0a` or `0a*16`.
fn read_byte<'a>(rest: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let (token, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let (byte, count) = token.split_once('*').unwrap_or((token, "1"));
    if byte.len() != 2 {
        return Err(format!("{byte}: not a byte"));
    }
    let byte = u8::from_str_radix(byte, 16).map_err(|error| format!("{byte}: {error}"))?;
    let count = count.parse::<usize>().map_err(|error| format!("{count}: {error}"))?;
    bytes.extend(std::iter::repeat_n(byte, count));
    Ok(rest)
}

/// `"text"`, `"text"*32` or `"text":256`, without the first quotation mark.
fn read_text<'a>(quoted: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let (text, rest) = quoted.split_once('"').ok_or("no second quotation mark")?;
    let (suffix, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let count = |digits: &str| digits.parse::<usize>().map_err(|error| format!("{digits}: {error}"));
    if let Some(times) = suffix.strip_prefix('*') {
        bytes.extend(text.repeat(count(times)?).bytes());
    } else if let Some(length) = suffix.strip_prefix(':') {
        let padding = count(length)?.checked_sub(text.len()).ok_or("the text is longer than its field")?;
        bytes.extend(text.bytes().chain(std::iter::repeat_n(0, padding)));
    } else {
        bytes.extend(text.bytes());
    }
    Ok(rest)
}
