//! A configuration file with the values of the flags.

use std::path::Path;

use anyhow::Context as _;
use pilotlight_nvmf_target::config::ServerConfig;
use toml_edit::Value;

use super::args::ServeArgs;
use super::edit::Edit;
use super::flags::{FlagValue, keyed};
use crate::policies::{PolicyChoice, key_and_value};

/// The file for these flags, which yielded this configuration. Paths relative to `here` become absolute.
///
/// # Errors
/// If a flag has no key, which is a mistake in this program.
pub(crate) fn of_flags(args: &ServeArgs, config: &ServerConfig, here: &Path) -> anyhow::Result<Edit> {
    let mut edit = Edit::parse("")?;
    for (section, key, value) in keyed(args) {
        edit.set(section, key, Some(to_value(value, here)));
    }
    if args.policy.is_some() || !args.policy_set.is_empty() {
        let parameters: Option<_> = args.policy_set.iter().map(|text| key_and_value(text)).collect();
        let name = args.policy.clone().unwrap_or_else(|| PolicyChoice::default().name);
        edit.set_policy(&PolicyChoice { name, parameters: parameters.context("--policy-set needs KEY=VALUE")? });
    }
    for subsystem in &config.subsystems {
        let mut subsystem = subsystem.clone();
        for namespace in &mut subsystem.namespaces {
            namespace.backend = namespace.backend.clone().relative_to(here);
        }
        edit.add_whole_subsystem(&subsystem);
    }
    Ok(edit)
}

fn to_value(value: FlagValue<'_>, here: &Path) -> Value {
    let absolute = |path: &str| here.join(path).display().to_string();
    match value {
        FlagValue::Text(text) => text.into(),
        FlagValue::Path(path) => absolute(path).into(),
        FlagValue::PathOrNone(path) if path == crate::admin::NONE => path.into(),
        FlagValue::PathOrNone(path) => absolute(path).into(),
        FlagValue::Prefixed(prefix, text) => match text.strip_prefix(prefix) {
            Some(path) => format!("{prefix}{}", absolute(path)).into(),
            None => text.into(),
        },
        FlagValue::Number(number) => i64::from(number).into(),
        FlagValue::Set => true.into(),
        FlagValue::List(texts) => Value::Array(texts.iter().map(String::as_str).collect()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    /// Flags that have a key under another name, or none.
    const OTHERS: [&str; 12] = [
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
        "privileged-helper",
    ];

    #[test]
    fn every_flag_has_its_key_with_the_whole_path() {
        let args = ServeArgs {
            listen: vec!["127.0.0.1:0".to_owned()],
            tls_listen: vec!["127.0.0.1:1".to_owned()],
            concat_listen: vec!["127.0.0.1:2".to_owned()],
            page: Some("unix:page.sock".to_owned()),
            page_token_file: Some("token".to_owned()),
            log_format: Some("json".to_owned()),
            seccomp: Some("log".to_owned()),
            user: Some("nobody".to_owned()),
            group: Some("nogroup".to_owned()),
            secrets_file: Some("secrets".to_owned()),
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
            placement: Some("host".to_owned()),
            max_memory: Some("1GiB".to_owned()),
            drain_timeout: Some("1s".to_owned()),
            hotplug: true,
            power_states: true,
            budget: Some("300W".to_owned()),
            budget_domain: Some("cpu".to_owned()),
            budget_schedule: Some("s".to_owned()),
            budget_profile: Some("p".to_owned()),
            keep_limits: true,
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
        let serve = ServeArgs::augment_args(clap::Command::new("serve"));
        let flags = serve.get_arguments().filter_map(|flag| flag.get_long());
        let with_key: Vec<&str> = flags.filter(|flag| !OTHERS.contains(flag)).collect();
        assert_eq!(keyed(&args).len(), with_key.len(), "{with_key:?}\n{text}");
    }
}
