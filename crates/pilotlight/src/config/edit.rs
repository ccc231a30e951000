//! A configuration file with other values: comments, order and everything that is not changed stay as they are.

use std::net::SocketAddr;

use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::config::{DEFAULT_GROUP, NamespaceConfig, PathRule, SubsystemConfig};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TomlError, Value, value};

use crate::policies::PolicyChoice;

/// A configuration file that is being changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    document: DocumentMut,
    /// The changes, as text.
    changes: Vec<String>,
}

impl Edit {
    /// Of this text, which has been read as a configuration before.
    ///
    /// # Errors
    /// Why it is not TOML.
    pub(crate) fn parse(text: &str) -> Result<Self, TomlError> {
        Ok(Self { document: text.parse()?, changes: Vec::new() })
    }

    /// The text, and what has been changed in it.
    pub(crate) fn finish(self) -> (String, Vec<String>) {
        (self.document.to_string(), self.changes)
    }

    /// Sets a key of a section such as `goals`; `None`: it is not there.
    pub(crate) fn set(&mut self, section: &str, key: &str, to: Option<Value>) {
        self.note(format!("{key} in [{section}]"));
        let Some(table) = self.document.entry(section).or_insert_with(new_table).as_table_like_mut() else { return };
        put(table, key, to);
    }

    /// Replaces the policy and its parameters.
    pub(crate) fn set_policy(&mut self, policy: &PolicyChoice) {
        self.note("[policy]".to_owned());
        let section = self.document.entry("policy").or_insert_with(new_table);
        let Some(table) = section.as_table_like_mut() else { return };
        let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
        let stays = |key: &String| key == "name" || policy.parameters.iter().any(|(known, _)| known == key);
        for key in keys.iter().filter(|key| !stays(key)) {
            table.remove(key);
        }
        put(table, "name", Some(policy.name.as_str().into()));
        let parameters = policy.in_force();
        for (key, to) in &parameters {
            put(table, key, Some(to.as_str().into()));
        }
        // parameters are applied in the order of the file; the name comes first
        let rank = |key: &toml_edit::Key| parameters.iter().position(|(known, _)| known == key.get());
        match section {
            Item::Table(table) => table.sort_values_by(|a, _, b, _| rank(a).cmp(&rank(b))),
            Item::Value(Value::InlineTable(table)) => table.sort_values_by(|a, _, b, _| rank(a).cmp(&rank(b))),
            _ => {}
        }
    }

    /// Sets a key of a namespace or a host; `None` removes it. A missing host is added.
    pub(crate) fn set_of(&mut self, of: &Capped, key: &str, to: Option<Value>) {
        match of {
            Capped::Namespace { nqn, nsid } => self.set_in_namespace((nqn, *nsid), key, to),
            Capped::Host { nqn } => {
                self.note(format!("{key} of host {nqn}"));
                let is_meant = |table: &Table| text(table, "nqn") == Some(nqn);
                let new = || with_key("nqn", nqn.as_str().into());
                set_in(self.array("host"), is_meant, new, key, to);
            }
        }
    }

    /// Sets the minimum of a priority; `None`: there is none.
    pub(crate) fn set_minimum(&mut self, priority: u8, to: Option<Value>) {
        self.note(format!("min_bytes_per_s of priority {priority}"));
        let is_meant = |table: &Table| integer(table, "priority") == Some(i64::from(priority));
        let new = || with_key("priority", i64::from(priority).into());
        let Some(to) = to else {
            self.array("class").into_iter().for_each(|all| all.retain(|table| !is_meant(table)));
            return;
        };
        set_in(self.array("class"), is_meant, new, "min_bytes_per_s", Some(to));
    }

    /// Sets a key of a namespace.
    pub(crate) fn set_in_namespace(&mut self, (nqn, nsid): (&str, u32), key: &str, to: Option<Value>) {
        self.note(format!("{key} of namespace {nsid} of {nqn}"));
        let found = self.namespaces(nqn).and_then(|all| all.iter_mut().find(|table| is_numbered(table, nsid)));
        if let Some(table) = found {
            put(table, key, to);
        }
    }

    /// Changes the text that a namespace has under `backend`.
    pub(crate) fn change_backend(&mut self, (nqn, nsid): (&str, u32), change: impl FnOnce(&str) -> String) {
        let found = self.namespaces(nqn).and_then(|all| all.iter_mut().find(|table| is_numbered(table, nsid)));
        let Some(table) = found else { return };
        let before = text(table, "backend").unwrap_or_default().to_owned();
        let after = change(&before);
        if after != before {
            put(table, "backend", Some(after.into()));
            self.note(format!("backend of namespace {nsid} of {nqn}"));
        }
    }

    /// Other storage under the number of a namespace. What is written about the number stays: its cap, its priority, its tolerance, and that
    /// `shrink`. Keys about the old storage are removed.
    pub(crate) fn replace_storage(&mut self, nqn: &str, namespace: &NamespaceConfig) {
        let of = (nqn, namespace.nsid);
        for key in ["checksums", "checksums_file", "trim"] {
            self.set_in_namespace(of, key, None); // as far as they hold they are in the text of the backend
        }
        self.set_in_namespace(of, "backend", Some(namespace.backend.to_string().into()));
        self.set_format(of, namespace);
        self.set_in_namespace(of, "hosts", list(&namespace.hosts));
    }

    /// The block size and the UUID of a namespace.
    pub(crate) fn set_format(&mut self, of: (&str, u32), namespace: &NamespaceConfig) {
        self.set_in_namespace(of, "block_size", Some(i64::from(namespace.block_size).into()));
        self.set_in_namespace(of, "uuid", uuid_of(namespace));
    }

    /// The hosts that may connect to a subsystem; none: any.
    pub(crate) fn set_allowed_hosts(&mut self, nqn: &str, hosts: &[String]) {
        self.note(format!("allowed_hosts of {nqn}"));
        let found = self.subsystem(nqn);
        found.into_iter().for_each(|table| put(table, "allowed_hosts", list(hosts)));
    }

    /// One more namespace.
    pub(crate) fn add_namespace(&mut self, nqn: &str, namespace: &NamespaceConfig) {
        self.note(format!("namespace {} of {nqn}", namespace.nsid));
        let Some(subsystem) = self.subsystem(nqn) else { return };
        let all = subsystem.entry("namespace").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        let mut table = with_key("nsid", i64::from(namespace.nsid).into());
        put(&mut table, "backend", Some(namespace.backend.to_string().into()));
        put(&mut table, "block_size", Some(i64::from(namespace.block_size).into()));
        put(&mut table, "uuid", uuid_of(namespace));
        put(&mut table, "hosts", list(&namespace.hosts));
        let group = Some(namespace.ana_group).filter(|group| *group != DEFAULT_GROUP);
        put(&mut table, "ana_group", group.map(|group| i64::from(group).into()));
        all.as_array_of_tables_mut().into_iter().for_each(|all| all.push(table.clone()));
    }

    /// A namespace no longer.
    pub(crate) fn remove_namespace(&mut self, nqn: &str, nsid: u32) {
        self.note(format!("namespace {nsid} of {nqn}"));
        self.namespaces(nqn).into_iter().for_each(|all| all.retain(|table| !is_numbered(table, nsid)));
    }

    /// The addresses on which a subsystem is offered; none: all.
    pub(crate) fn set_subsystem_listen(&mut self, nqn: &str, listen: &[SocketAddr]) {
        self.note(format!("listen of {nqn}"));
        self.subsystem(nqn).into_iter().for_each(|table| put(table, "listen", addresses(listen)));
    }

    /// One more subsystem, with its namespaces.
    pub(crate) fn add_whole_subsystem(&mut self, subsystem: &SubsystemConfig) {
        let SubsystemConfig { nqn, allowed_hosts, listen, namespaces, serial: _, controller_ids: _ } = subsystem;
        self.note(format!("subsystem {nqn}"));
        let table = with_key("nqn", nqn.as_str().into());
        self.array("subsystem").into_iter().for_each(|all| all.push(table.clone()));
        self.set_allowed_hosts(nqn, allowed_hosts);
        self.set_subsystem_listen(nqn, listen);
        namespaces.iter().for_each(|namespace| self.add_namespace(nqn, namespace));
    }

    /// The states of paths.
    pub(crate) fn set_paths(&mut self, rules: &[PathRule]) {
        self.note("[[path]]".to_owned());
        let table = |rule: &PathRule| {
            let mut table = with_key("address", rule.address.to_string().into());
            put(&mut table, "state", Some(rule.state.name().into()));
            put(&mut table, "group", rule.group.map(|group| i64::from(group).into()));
            table
        };
        self.document.remove("path");
        if !rules.is_empty() {
            self.document.insert("path", Item::ArrayOfTables(rules.iter().map(table).collect()));
        }
    }

    /// A subsystem no longer.
    pub(crate) fn remove_subsystem(&mut self, nqn: &str) {
        self.note(format!("subsystem {nqn}"));
        self.array("subsystem").into_iter().for_each(|all| all.retain(|table| text(table, "nqn") != Some(nqn)));
    }

    fn note(&mut self, what: String) {
        if !self.changes.contains(&what) {
            self.changes.push(what);
        }
    }

    fn array(&mut self, key: &str) -> Option<&mut ArrayOfTables> {
        in_full(self.document.as_table_mut(), key);
        let item = self.document.entry(key).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        item.as_array_of_tables_mut()
    }

    fn subsystem(&mut self, nqn: &str) -> Option<&mut Table> {
        self.array("subsystem")?.iter_mut().find(|table| text(table, "nqn") == Some(nqn))
    }

    fn namespaces(&mut self, nqn: &str) -> Option<&mut ArrayOfTables> {
        let subsystem = self.subsystem(nqn)?;
        in_full(subsystem, "namespace");
        subsystem.get_mut("namespace")?.as_array_of_tables_mut()
    }
}

/// Writes a list of inline tables as tables of their own, which can be added to.
fn in_full(table: &mut Table, key: &str) {
    let Some(item) = table.get_mut(key).filter(|item| item.is_array()) else { return };
    let written = std::mem::take(item);
    *item = match written.into_array_of_tables() {
        Ok(tables) => Item::ArrayOfTables(tables),
        Err(other) => other,
    };
}

fn new_table() -> Item {
    Item::Table(Table::new())
}

fn with_key(key: &str, to: Value) -> Table {
    let mut table = Table::new();
    table.insert(key, Item::Value(to));
    table
}

fn set_in(
    all: Option<&mut ArrayOfTables>,
    is_meant: impl Fn(&Table) -> bool,
    new: impl FnOnce() -> Table,
    key: &str,
    to: Option<Value>,
) {
    let Some(all) = all else { return };
    if let Some(table) = all.iter_mut().find(|table| is_meant(table)) {
        return put(table, key, to);
    }
    if to.is_some() {
        let mut table = new();
        put(&mut table, key, to);
        all.push(table);
    }
}

/// Sets a key and keeps the comment after it.
fn put(table: &mut (impl toml_edit::TableLike + ?Sized), key: &str, to: Option<Value>) {
    let Some(mut to) = to else {
        table.remove(key);
        return;
    };
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(known) => {
            *to.decor_mut() = known.decor().clone();
            *known = to;
        }
        None => {
            table.insert(key, value(to));
        }
    }
}

fn uuid_of(namespace: &NamespaceConfig) -> Option<Value> {
    namespace.uuid.map(|uuid| uuid::Uuid::from_bytes(uuid).to_string().into())
}

/// A list of hosts; `None` where there are none.
fn list(hosts: &[String]) -> Option<Value> {
    (!hosts.is_empty()).then(|| Value::Array(hosts.iter().map(String::as_str).collect::<Array>()))
}

/// A list of addresses; `None` where there are none.
pub(crate) fn addresses(addresses: &[SocketAddr]) -> Option<Value> {
    let texts = || addresses.iter().map(ToString::to_string).collect::<Array>();
    (!addresses.is_empty()).then(|| Value::Array(texts()))
}

fn text<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    table.get(key)?.as_str()
}

fn integer(table: &Table, key: &str) -> Option<i64> {
    table.get(key)?.as_integer()
}

fn is_numbered(table: &Table, nsid: u32) -> bool {
    integer(table, "nsid") == Some(i64::from(nsid))
}

#[cfg(test)]
mod tests;
