//! Numbers of volumes that have names.

use std::collections::HashMap;

use super::MAX_VOLUMES;
use crate::request::Reason;

/// Numbers of names, in order of appearance.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<Vec<u8>, u32>,
    names: Vec<String>,
    key: Vec<u8>,
}

impl Names {
    /// The number of a name, or of a name and its part.
    pub(super) fn number(&mut self, name: &[u8], part: Option<u32>) -> Result<u32, Reason> {
        self.key.clear();
        self.key.extend_from_slice(name);
        if let Some(part) = part {
            self.key.push(b'.');
            self.key.extend_from_slice(part.to_string().as_bytes());
        }
        if let Some(&number) = self.numbers.get(&self.key) {
            return Ok(number);
        }
        if self.names.len() >= MAX_VOLUMES {
            return Err(Reason::TooManyVolumes);
        }
        let number = self.names.len() as u32;
        self.names.push(String::from_utf8_lossy(&self.key).into_owned());
        self.numbers.insert(self.key.clone(), number);
        Ok(number)
    }

    pub(super) fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }
}
