//! docs/configuration-keys.md, written from the definition of the keys.

use std::fmt::Write as _;
use std::path::Path;

use pilotlight_policy::POLICIES;

use super::*;
use crate::config::keys::SCHEMAS;
use crate::config::schema::{Applies, Key, Schema};

const HEAD: &str = "\
<!-- Written by `WRITE_DOCS=1 cargo test -p pilotlight the_reference_has_every_key`. Do not edit. -->

# Configuration keys

For operators: which keys does the configuration file have, and what are their defaults?

Unknown keys are refused. A duration is a string of an integer and `us`, `ms`, `s`, `min` or `h`, such as `10s`; a size is a string such as
`512MiB`, or a number of bytes. A change applies at SIGHUP or at a restart.
";

fn type_of(key: &Key) -> &'static str {
    match key.kind {
        "text" => "string",
        "plain" => "string or number",
        "quantity" => "string with a unit, or number",
        "number" => "integer",
        "switch" => "boolean",
        "texts" => "string, or list of strings",
        "cores" => "list of integers, or string",
        other => panic!("a new kind: {other}"),
    }
}

fn row(page: &mut String, key: &Key) {
    let flag = if key.flag.is_empty() { String::new() } else { format!("`{}`", key.flag) };
    let applies = match key.applies {
        Applies::Reload => "SIGHUP",
        Applies::Restart => "restart",
    };
    let (name, default, meaning) = (key.name, key.default, key.meaning.trim());
    let _ = writeln!(page, "| `{name}` | {} | {flag} | {default} | {applies} | {meaning} |", type_of(key));
}

fn section(page: &mut String, schema: &Schema) {
    let _ = writeln!(page, "\n## `{}`\n\n{}\n", schema.heading(), schema.about.trim());
    page.push_str("| key | type | flag | default | change at | meaning |\n|---|---|---|---|---|---|\n");
    schema.keys.iter().for_each(|key| row(page, key));
}

fn parameters(page: &mut String) {
    page.push_str(
        "\n## Parameters of policies\n\nKeys of `[policy]`; `pilotlight set policy --help` describes them. With a policy that wraps another one, \
         `inner_KEY` sets KEY of the `inner` policy.\n",
    );
    for policy in POLICIES {
        let settings = (policy.parameters)(&[]);
        if settings.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n### `{}`\n\n| key | default | values |\n|---|---|---|", policy.name);
        for setting in settings {
            let _ = writeln!(page, "| `{}` | `{}` | {} |", setting.key, setting.value, setting.allowed);
        }
    }
}

/// Run with `WRITE_DOCS=1` to write the page.
#[test]
fn the_reference_has_every_key() {
    let mut page = HEAD.to_owned();
    SCHEMAS.iter().for_each(|schema| section(&mut page, schema));
    parameters(&mut page);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration-keys.md");
    if std::env::var_os("WRITE_DOCS").is_some() {
        return fs::write(&path, page).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), page, "WRITE_DOCS=1 writes it");
}

#[test]
fn flags_of_the_schema_exist() {
    let serve = <ServeArgs as clap::Args>::augment_args(clap::Command::new("serve"));
    let flags: Vec<String> = serve.get_arguments().filter_map(|flag| Some(format!("--{}", flag.get_long()?))).collect();
    let keys = SCHEMAS.iter().flat_map(|schema| schema.keys).filter(|key| !key.flag.is_empty());
    keys.for_each(|key| assert!(flags.iter().any(|flag| flag == key.flag), "there is no flag {}", key.flag));
}
