//! A configuration file with the values of the flags.

use std::path::{Path, PathBuf};

use pilotlight_nvmf_target::config::ServerConfig;
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
    for (section, key, to) in stated(args, here) {
        edit.set(section, key, Some(to));
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

/// Section, key and value of every flag that has a key of its own.
fn stated(args: &ServeArgs, here: &Path) -> Vec<(&'static str, &'static str, Value)> {
    // Destructured without `..`, so that a new flag does not compile without a decision here.
    let ServeArgs {
        listen,
        advertise,
        mdns,
        cores,
        main_core,
        reactors,
        io_threads,
        max_memory,
        drain_timeout,
        hotplug,
        power_states,
        budget,
        budget_domain,
        budget_schedule,
        budget_profile,
        tolerance,
        sensor,
        sleep_after,
        admin_socket,
        admin_read_group,
        state,
        energy_shares,
        metrics,
        log_format,
        page,
        page_token_file,
        // [policy] is written as a whole
        policy: _,
        policy_set: _,
        // they are in the subsystem that runs
        namespace: _,
        block_size: _,
        nqn: _,
        allow_host: _,
        // command line only: the file itself, output, and options for tests
        config: _,
        check: _,
        json: _,
        roots: _,
        page_tick: _,
    } = args;
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let number = |number: &Option<u32>| number.map(|number| Value::from(i64::from(number)));
    let path = |text: &Option<String>| text.as_ref().map(|text| in_full(text, here).into());
    let path_or_none = |text: &Option<String>| text.as_ref().map(|text| or_none(text, here));
    let is_set = |set: &bool| set.then(|| Value::from(true));
    let listeners: Array = listen.iter().map(String::as_str).collect();
    let stated = [
        ("server", "listen", (!listeners.is_empty()).then_some(Value::Array(listeners))),
        ("server", "advertise", text(advertise)),
        ("server", "cores", text(cores)),
        ("server", "main_core", number(main_core)),
        ("server", "reactors", number(reactors)),
        ("server", "io_threads", number(io_threads)),
        ("server", "sleep_after", text(sleep_after)),
        ("server", "hotplug", is_set(hotplug)),
        ("server", "power_states", is_set(power_states)),
        ("server", "sensor", behind("modelled:", sensor, here)),
        ("server", "energy_shares", text(energy_shares)),
        ("goals", "budget", text(budget)),
        ("goals", "domain", text(budget_domain)),
        ("goals", "schedule", path(budget_schedule)),
        ("goals", "profile", path(budget_profile)),
        ("goals", "tolerance", text(tolerance)),
        ("admin", "socket", path_or_none(admin_socket)),
        ("admin", "read_group", text(admin_read_group)),
        ("admin", "state", path_or_none(state)),
        ("metrics", "listen", text(metrics)),
        ("page", "listen", behind("unix:", page, here)),
        ("page", "token_file", path(page_token_file)),
        ("log", "format", text(log_format)),
        ("discovery", "mdns", is_set(mdns)),
        ("limits", "max_memory", text(max_memory)),
        ("limits", "drain_timeout", text(drain_timeout)),
    ];
    stated.into_iter().filter_map(|(section, key, to)| Some((section, key, to?))).collect()
}

/// A text whose path, if it has one, stands behind this prefix.
fn behind(prefix: &str, text: &Option<String>, here: &Path) -> Option<Value> {
    let text = text.as_deref()?;
    Some(match text.strip_prefix(prefix) {
        Some(path) => format!("{prefix}{}", in_full(path, here)).into(),
        None => text.into(),
    })
}

fn in_full(path: &str, here: &Path) -> String {
    let path: PathBuf = here.join(path);
    path.display().to_string()
}

fn or_none(path: &str, here: &Path) -> Value {
    if path == crate::admin::NONE { path.into() } else { in_full(path, here).into() }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Flags that have a key under another name, or none.
    const OTHERS: [&str; 14] = [
        "policy",
        "policy-set",
        "namespace",
        "block-size",
        "nqn",
        "allow-host",
        "config",
        "check",
        "json",
        "roots",
        "page-tick",
        "help",
        "verbose",
        "version",
    ];

    #[test]
    fn every_flag_has_its_key_with_the_whole_path() {
        let args = ServeArgs {
            listen: vec!["127.0.0.1:0".to_owned()],
            page: Some("unix:page.sock".to_owned()),
            page_token_file: Some("token".to_owned()),
            log_format: Some("json".to_owned()),
            energy_shares: Some("equal".to_owned()),
            sensor: Some("modelled:machine.toml".to_owned()),
            admin_socket: Some("none".to_owned()),
            state: Some("state.json".to_owned()),
            advertise: Some("a:1".to_owned()),
            mdns: true,
            cores: Some("0".to_owned()),
            main_core: Some(0),
            reactors: Some(1),
            io_threads: Some(1),
            max_memory: Some("1GiB".to_owned()),
            drain_timeout: Some("1s".to_owned()),
            hotplug: true,
            power_states: true,
            budget: Some("300W".to_owned()),
            budget_domain: Some("cpu".to_owned()),
            budget_schedule: Some("s".to_owned()),
            budget_profile: Some("p".to_owned()),
            tolerance: Some("0.2".to_owned()),
            sleep_after: Some("never".to_owned()),
            admin_read_group: Some("readers".to_owned()),
            metrics: Some("9808".to_owned()),
            ..ServeArgs::default()
        };
        let text = of_flags(&args, &ServerConfig::default(), Path::new("/here")).unwrap().finish().0;
        for line in [
            "listen = \"unix:/here/page.sock\"",
            "token_file = \"/here/token\"",
            "format = \"json\"",
            "energy_shares = \"equal\"",
            "sensor = \"modelled:/here/machine.toml\"",
            "socket = \"none\"",
            "state = \"/here/state.json\"",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        let command = crate::cli::Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let flags = serve.get_arguments().filter_map(|flag| flag.get_long());
        let with_key: Vec<&str> = flags.filter(|flag| !OTHERS.contains(flag)).collect();
        assert_eq!(stated(&args, Path::new("/here")).len(), with_key.len(), "{with_key:?}\n{text}");
    }
}
