//! Contents of trace files, which are identified by their bytes, not their path.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};

use sha2::{Digest as _, Sha256};

use crate::simulated::experiment::schema::Trace;

/// Size of a read.
const CHUNK: usize = 1 << 20;

/// SHA-256 of files by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents(BTreeMap<String, String>);

impl Contents {
    /// Reads a file once.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn add(&mut self, path: &str) -> io::Result<()> {
        if !self.0.contains_key(path) {
            self.0.insert(path.to_owned(), hash(path)?);
        }
        Ok(())
    }

    /// A trace with hashes in place of paths. A surrogate keeps its name.
    pub(super) fn with_hashes(&self, trace: &Trace) -> Trace {
        let content = |path: &String| self.0.get(path).unwrap_or(path).clone();
        let is_surrogate = !trace.files().any(|path| path == trace.source);
        let source = if is_surrogate { trace.source.clone() } else { content(&trace.source) };
        Trace { source, sizes: trace.sizes.as_ref().map(content), ..trace.clone() }
    }
}

fn hash(path: &str) -> io::Result<String> {
    let (mut file, mut hasher, mut chunk) = (File::open(path)?, Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            length => hasher.update(&chunk[..length]),
        }
    }
    Ok(hasher.finalize().iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
        text
    }))
}
