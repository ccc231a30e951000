//! Writes changes made at run time to the configuration file.
//!
//! # The algorithm
//! The text that was read last is changed where what runs differs from what was read, and nowhere else. The new text is read as at a
//! SIGHUP: only if that would change nothing is the file replaced (`replace.rs`). Then the running configuration counts as read.
//!
//! # The properties
//! - After a save, a SIGHUP changes nothing.
//! - A file that another program has changed since it was read is replaced only with `force`.
//! - A budget that ends by itself, or that holds over a schedule, stays set manually.

use std::path::{Path, PathBuf};

use pilotlight_nvmf_target::Capped;
use pilotlight_nvmf_target::config::{NamespaceConfig, ServerConfig, SubsystemConfig};
use toml_edit::Value;

use super::Admin;
use crate::admin::refusal::Refusal;
use crate::admin::request::SaveRequest;
use crate::config::{self, Cap, Edit, Loaded, addresses, format_budget, format_cap, format_tolerance};
use crate::replace::replace;
use crate::save::SaveReport;
use crate::serve::budget::{self, Configured, GoalOverrides};
use crate::serve::holder::refresh;
use crate::serve::reload;
use crate::serve::state::{State, exists, find_namespace, find_subsystem};

/// The destination of the configuration.
struct Target {
    path: PathBuf,
    /// Its text when it was read; `None`: a new file of a server that was started with flags.
    before: Option<String>,
}

impl Admin {
    /// Writes what was changed to the configuration file.
    pub(super) fn save(&self, request: &SaveRequest) -> Result<SaveReport, Refusal> {
        let mut state = self.state();
        let target = self.target(&state, request)?;
        let mut edit = match &target.before {
            Some(text) => Edit::parse(text).map_err(Into::into),
            None => std::env::current_dir()
                .map_err(Into::into)
                .and_then(|here| config::of_flags(&self.args, &state.read, &here)),
        }
        .map_err(Refusal::new)?;
        self.change(&state, &mut edit);
        let (text, changes) = edit.finish();
        let file = target.path.display().to_string();
        let mut notes = self.not_saved(&state);
        let loaded = self.check(&state, &target, &text)?;
        if target.before.as_ref() != Some(&text) {
            let failed = |error: std::io::Error| Refusal::new(format!("cannot write {file}: {error}"));
            replace(&target.path, text.as_bytes()).map_err(failed)?;
        }
        if target.before.is_some() {
            self.count_as_read(&mut state, &loaded);
        } else {
            notes.push(format!("the server still uses its flags: start it with --config {file} next time"));
        }
        Ok(SaveReport { file, changes, notes })
    }

    fn target(&self, state: &State, request: &SaveRequest) -> Result<Target, Refusal> {
        let force = "--force (\"force\": true) replaces it";
        if let Some(path) = &self.args.config {
            if request.to.is_some() {
                let what = format!("the server was started with --config {}", path.display());
                return Err(Refusal::for_field("to", what).help("omit it: that file is written"));
            }
            let before = state.text_read.clone().ok_or_else(|| Refusal::new("no configuration file was read"))?;
            let now = config::text_of(path);
            if now.ok().as_ref() != Some(&before) && !request.force {
                let what = format!("{} has changed since the server read it", path.display());
                return Err(Refusal::for_field("force", what).help(format!("SIGHUP lets the server read it; {force}")));
            }
            return Ok(Target { path: path.clone(), before: Some(before) });
        }
        let Some(to) = &request.to else {
            return Err(Refusal::for_field("to", "the server was started without a configuration file")
                .help("name one to write: --to FILE (\"to\": an absolute path)"));
        };
        let path = Path::new(to);
        if !path.is_absolute() {
            return Err(Refusal::for_field("to", format!("`{to}` is a relative path")).help("write the whole path"));
        }
        if path.exists() && !request.force {
            return Err(Refusal::for_field("to", format!("{to} is there already")).help(force));
        }
        Ok(Target { path: path.to_owned(), before: None })
    }

    /// Edits a text to match the running state.
    fn change(&self, state: &State, edit: &mut Edit) {
        if state.operation.policy != state.policy_read {
            edit.set_policy(&state.operation.policy);
        }
        change_listeners(state, edit);
        if state.config.paths != state.read.paths {
            edit.set_paths(&state.config.paths);
        }
        for gone in state.read.subsystems.iter().filter(|read| find_subsystem(&state.config, &read.nqn).is_none()) {
            edit.remove_subsystem(&gone.nqn);
        }
        for running in &state.config.subsystems {
            match find_subsystem(&state.read, &running.nqn) {
                Some(read) => change_subsystem(state, edit, read, running),
                None => edit.add_whole_subsystem(running),
            }
        }
        change_goals(state, edit); // also of namespaces that have just come
        self.change_caps(state, edit);
    }

    /// Caps in force.
    fn caps(&self) -> Vec<Cap> {
        let caps = self.server.stats().caps;
        caps.into_iter().filter_map(|cap| Some((cap.of, cap.stats.operator?))).collect()
    }

    fn change_caps(&self, state: &State, edit: &mut Edit) {
        let set = self.caps();
        let exists = |of: &Capped| exists(&state.config, of);
        for (of, rate) in set.iter().filter(|cap| !state.caps_read.contains(cap) && exists(&cap.0)) {
            edit.set_of(of, "max_bytes_per_s", Some(format_cap(Some(*rate)).into()));
        }
        let is_gone = |of: &Capped| exists(of) && set.iter().all(|(other, _)| other != of);
        for (of, _) in state.caps_read.iter().filter(|(of, _)| is_gone(of)) {
            edit.set_of(of, "max_bytes_per_s", None);
        }
    }

    /// Notes about settings that are not saved.
    fn not_saved(&self, state: &State) -> Vec<String> {
        let mut notes = Vec::new();
        if staying_budget(state).budget.is_some() {
            notes.push("the budget stays set manually: it has an end, or holds over a schedule".to_owned());
        }
        let paused = self.server.stats().background.into_iter().filter(|class| class.is_paused);
        notes.extend(paused.map(|class| format!("the pause of {} is not written: it has no key", class.class.name())));
        notes
    }

    /// Reads a text as at SIGHUP, and refuses it unless that would change nothing.
    fn check(&self, state: &State, target: &Target, text: &str) -> Result<Loaded, Refusal> {
        let read = config::load_text(&self.args, &target.path, text.to_owned(), &self.machine);
        let loaded = read.map_err(|refused| {
            Refusal::new(format!(
                "the running configuration is not valid, and is not saved:\n{}",
                refused.render(false)
            ))
        })?;
        let (mut config, mut operation) = (state.config.clone(), state.operation.clone());
        operation.caps = self.caps();
        if target.before.is_none() {
            let here = std::env::current_dir().map_err(Refusal::new)?;
            reload::in_full(&mut config, &mut operation, &here); // as it is written
        }
        let mut differences = reload::differences((&config, &operation), &loaded.config, &loaded.operation);
        if target.before.is_none() {
            differences.extend(reload::settled_differences((&config, &operation), &loaded.config, &loaded.operation));
        }
        if differences.is_empty() {
            return Ok(loaded);
        }
        let what = format!(
            "the file would differ from the running configuration, and is not saved: {}",
            differences.join("; ")
        );
        Err(Refusal::new(what))
    }

    /// The running configuration counts as read.
    fn count_as_read(&self, state: &mut State, loaded: &Loaded) {
        let staying = staying_budget(state);
        state.read = loaded.config.clone();
        state.policy_read = loaded.operation.policy.clone();
        state.configured =
            Configured { limit_uw: state.configured.limit_uw, ..Configured::from_operation(&loaded.operation) };
        state.caps_read.clone_from(&loaded.operation.caps);
        state.text_read = loaded.text().map(str::to_owned);
        (state.namespace_overrides, state.host_overrides) = (Vec::new(), Vec::new());
        (state.subsystem_overrides, state.offer_overrides, state.listen_override) = (Vec::new(), Vec::new(), None);
        state.path_override = None;
        state.goal_overrides = staying;
        if let Err(why) = refresh(state, self.server.as_ref(), budget::now_s()) {
            tracing::warn!("policy {} stays: {why}", state.active_policy.name);
        }
        self.keep(state);
    }
}

/// The budget that is not written.
fn staying_budget(state: &State) -> GoalOverrides {
    let stays = |budget: &budget::BudgetOverride| budget.until_s.is_some() || state.configured.schedule.is_some();
    GoalOverrides { budget: state.goal_overrides.budget.filter(|budget| stays(budget)), ..GoalOverrides::default() }
}

fn change_goals(state: &State, edit: &mut Edit) {
    let overrides = &state.goal_overrides;
    if let Some(budget) = overrides.budget.filter(|_| staying_budget(state).budget.is_none()) {
        edit.set("goals", "budget", Some(format_budget(budget.budget_uw).into()));
    }
    if let Some(domain) = overrides.domain {
        edit.set("goals", "domain", Some(domain.name().into()));
    }
    for (of, bound) in &overrides.tolerances {
        let text = Value::from(format_tolerance(*bound));
        match of {
            None => edit.set("goals", "tolerance", Some(text)),
            Some(of) => edit.set_of(&of.clone().into(), "tolerance", bound.is_some().then_some(text)),
        }
    }
    for (of, priority) in &overrides.priorities {
        edit.set_of(&of.clone().into(), "priority", priority.map(|priority| i64::from(priority).into()));
    }
    for (priority, rate) in &overrides.minimums {
        edit.set_minimum(*priority, rate.map(|rate| format_cap(Some(rate)).into()));
    }
}

fn change_listeners(state: &State, edit: &mut Edit) {
    let lists = |config: &ServerConfig| {
        [&config.listeners, &config.tls_listeners, &config.concatenation_listeners].map(Vec::clone)
    };
    let keys = ["listen", "tls_listen", "concat_listen"];
    for ((key, read), running) in keys.into_iter().zip(lists(&state.read)).zip(lists(&state.config)) {
        if running != read {
            edit.set("server", key, addresses(&running));
        }
    }
}

fn change_subsystem(state: &State, edit: &mut Edit, read: &SubsystemConfig, running: &SubsystemConfig) {
    let nqn = &running.nqn;
    if running.allowed_hosts != read.allowed_hosts {
        edit.set_allowed_hosts(nqn, &running.allowed_hosts);
    }
    if running.listen != read.listen {
        edit.set_subsystem_listen(nqn, &running.listen);
    }
    for gone in read.namespaces.iter().filter(|one| find_namespace(&state.config, nqn, one.nsid).is_none()) {
        edit.remove_namespace(nqn, gone.nsid);
    }
    for namespace in &running.namespaces {
        match find_namespace(&state.read, nqn, namespace.nsid) {
            None => edit.add_namespace(nqn, namespace),
            Some(known) if known.backend.is_same_storage(&namespace.backend) => {
                change_namespace(edit, nqn, known, namespace);
            }
            Some(_) => edit.replace_storage(nqn, namespace),
        }
    }
}

fn change_namespace(edit: &mut Edit, nqn: &str, read: &NamespaceConfig, running: &NamespaceConfig) {
    if running.hosts != read.hosts {
        let hosts: toml_edit::Array = running.hosts.iter().map(String::as_str).collect();
        let hosts = (!hosts.is_empty()).then_some(Value::Array(hosts));
        edit.set_in_namespace((nqn, running.nsid), "hosts", hosts);
    }
    if (running.block_size, running.uuid) != (read.block_size, read.uuid) {
        edit.set_format((nqn, running.nsid), running);
    }
    if let Some(bytes) = running.backend.size().filter(|bytes| read.backend.size() != Some(*bytes)) {
        edit.change_backend((nqn, running.nsid), |text| {
            match text.parse::<pilotlight_storage::BackendSpec>() {
                Ok(mut spec) => {
                    spec.set_size(bytes); // the path stays as it is written
                    spec.to_string()
                }
                Err(_) => text.to_owned(),
            }
        });
    }
}
