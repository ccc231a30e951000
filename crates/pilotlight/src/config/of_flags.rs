//! A configuration file that says what the flags of a server say.

use std::path::{Path, PathBuf};

use pilotlight_target::config::ServerConfig;
use toml_edit::{Array, Value};

use super::edit::Edit;
use crate::cli::ServeArgs;
use crate::policies::{PolicyChoice, key_and_value};

/// Of these flags, which led to this configuration. Paths become absolute: those of flags start at the directory `here`.
///
/// # Errors
/// If a flag has no key, which is a mistake in this program.
pub(crate) fn of_flags(args: &ServeArgs, config: &ServerConfig, here: &Path) -> Result<Edit, String> {
    let mut edit = Edit::of("")?;
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let number = |number: Option<u32>| number.map(|number| Value::from(i64::from(number)));
    let path = |text: &Option<String>| text.as_ref().map(|text| in_full(text, here).into());
    let listen: Array = args.listen.iter().map(String::as_str).collect();
    let is_set = |set: bool| set.then(|| Value::from(true));
    let sensor = args.sensor.as_ref().map(|text| match text.strip_prefix("modelled:") {
        Some(profile) => format!("modelled:{}", in_full(profile, here)).into(),
        None => text.as_str().into(),
    });
    let (budget, tolerance) = (text(&args.budget), text(&args.tolerance));
    let stated = [
        ("server", "listen", (!listen.is_empty()).then_some(Value::Array(listen))),
        ("server", "advertise", text(&args.advertise)),
        ("server", "cores", text(&args.cores)),
        ("server", "main_core", number(args.main_core)),
        ("server", "reactors", number(args.reactors)),
        ("server", "io_threads", number(args.io_threads)),
        ("server", "sleep_after", text(&args.sleep_after)),
        ("server", "hotplug", is_set(args.hotplug)),
        ("server", "power_states", is_set(args.power_states)),
        ("server", "sensor", sensor),
        ("goals", "budget", budget),
        ("goals", "domain", text(&args.budget_domain)),
        ("goals", "schedule", path(&args.budget_schedule)),
        ("goals", "profile", path(&args.budget_profile)),
        ("goals", "tolerance", tolerance),
        ("admin", "socket", args.admin_socket.as_ref().map(|socket| or_none(socket, here))),
        ("admin", "read_group", text(&args.admin_read_group)),
        ("admin", "state", args.state.as_ref().map(|state| or_none(state, here))),
        ("metrics", "listen", text(&args.metrics)),
        ("discovery", "mdns", is_set(args.mdns)),
        ("limits", "max_memory", text(&args.max_memory)),
        ("limits", "drain_timeout", text(&args.drain_timeout)),
    ];
    for (section, key, to) in stated.into_iter().filter(|(.., to)| to.is_some()) {
        edit.set(section, key, to);
    }
    if args.policy.is_some() || !args.policy_set.is_empty() {
        let parameters: Option<_> = args.policy_set.iter().map(|text| key_and_value(text)).collect();
        let name = args.policy.clone().unwrap_or_else(|| PolicyChoice::default().name);
        edit.set_policy(&PolicyChoice { name, parameters: parameters.ok_or("--policy-set sets nothing")? });
    }
    for subsystem in &config.subsystems {
        edit.add_subsystem(&subsystem.nqn);
        edit.set_allowed_hosts(&subsystem.nqn, &subsystem.allowed_hosts);
        for namespace in &subsystem.namespaces {
            let mut namespace = namespace.clone();
            namespace.backend = namespace.backend.relative_to(here);
            edit.add_namespace(&subsystem.nqn, &namespace);
        }
    }
    Ok(edit)
}

fn in_full(path: &str, here: &Path) -> String {
    let path: PathBuf = here.join(path);
    path.display().to_string()
}

fn or_none(path: &str, here: &Path) -> Value {
    if path == crate::admin::NONE { path.into() } else { in_full(path, here).into() }
}
