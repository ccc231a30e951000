//! The shape of a configuration file: sections and their keys.

/// A section.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "the reference uses all fields"))]
pub(crate) struct Schema {
    /// As in the file: `server`, `subsystem.namespace`.
    pub(crate) header: &'static str,
    pub(crate) about: &'static str,
    pub(crate) keys: &'static [Key],
    /// Lists of tables within it.
    pub(crate) lists: &'static [&'static str],
}

/// A key.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "the reference uses all fields"))]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// The method of `Section` that reads it.
    pub(crate) kind: &'static str,
    /// The flag with the same effect; empty if there is none.
    pub(crate) flag: &'static str,
    pub(crate) default: &'static str,
    pub(crate) applies: Applies,
    pub(crate) meaning: &'static str,
}

/// When a change applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applies {
    /// At SIGHUP.
    Reload,
    Restart,
}

impl Schema {
    /// The header as a user writes it.
    pub(crate) fn heading(&self) -> String {
        let is_list = matches!(self.header, "subsystem" | "host" | "class") || self.header.contains('.');
        if is_list { format!("[[{}]]", self.header) } else { format!("[{}]", self.header) }
    }

    /// Names of keys and lists.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name).chain(self.lists.iter().copied())
    }
}

/// Names at the top of a file.
pub(crate) fn top_level(schemas: &'static [Schema]) -> impl Iterator<Item = &'static str> {
    schemas.iter().map(|schema| schema.header).filter(|header| !header.contains('.'))
}
