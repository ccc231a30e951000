//! Secrets of hosts.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const SUBSYSTEM: &str =
    "[[subsystem]]\nnqn = \"nqn.2024-05.com.example:a\"\nallowed_hosts = \"nqn.2024-05.com.example:host-1\"";

/// The output for this `[security]` section.
fn output(config_dir: &ConfigDir, security: &str) -> String {
    config_dir.output(&format!("[security]\n{security}\n{SUBSYSTEM}\n"))
}

#[test]
fn a_file_of_secrets_must_be_private() {
    let config_dir = ConfigDir::new();
    assert_eq!(output(&config_dir, "secrets_file = \"secrets\"\nallow_plain = true"), "");
    fs::set_permissions(config_dir.path().join("secrets"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = output(&config_dir, "secrets_file = \"secrets\"");
    assert!(refused.contains("server.toml:2:16") && refused.contains("chmod 600"), "{refused}");
    let missing = output(&config_dir, "secrets_file = \"none\"");
    assert!(missing.contains("cannot be read"), "{missing}");
}

#[test]
fn a_subsystem_of_any_host_beside_secrets_is_a_warning() {
    let config_dir = ConfigDir::new();
    let with = |security: &str, subsystems: &str| config_dir.output(&format!("[security]\n{security}\n{subsystems}\n"));
    let secrets = "secrets_file = \"secrets\"\nallow_plain = true";
    let open = in_subsystem("").replace(":a", ":b");
    let warned = with(secrets, &format!("{SUBSYSTEM}\n{open}"));
    let expected =
        "warning: subsystem[1]: a host without a secret can connect too: it needs only a name that is not in";
    assert!(warned.starts_with(expected) && warned.contains("server.toml:7:1"), "{warned}");
    assert!(warned.matches("warning").count() == 1 && warned.contains("`allowed_hosts`"), "{warned}");
    assert_eq!(with("", &open), "", "without secrets any host is what was asked for");
    let file = config_dir.path().join("secrets").display().to_string();
    let flags = ["--secrets-file", &file, "--tls-listen", "127.0.0.1:4421"];
    let warned = super::flags(&flags).unwrap().warnings(false);
    assert!(warned.contains("--secrets-file: a host without") && warned.contains("--allow-host"), "{warned}");
    assert_eq!(super::flags(&[&flags[..], &["--allow-host", AUTHENTICATED]].concat()).unwrap().warnings(false), "");
}

#[test]
fn a_malformed_secret_is_named_by_its_line_and_not_quoted() {
    let config_dir = ConfigDir::new();
    let text = format!("{AUTHENTICATED} dhchap_key DHHC-1:00:c2VjcmV0:\n");
    fs::write(config_dir.path().join("secrets"), text).unwrap();
    let refused = output(&config_dir, "secrets_file = \"secrets\"");
    assert!(refused.contains("line 1") && !refused.contains("c2VjcmV0"), "{refused}");
}

#[test]
fn mutual_authentication_needs_a_secret_of_the_controller() {
    let config_dir = ConfigDir::new();
    let text = format!("{AUTHENTICATED} dhchap_key {}\n", secret(1).to_text().as_str());
    fs::write(config_dir.path().join("secrets"), text).unwrap();
    let refused = output(&config_dir, "secrets_file = \"secrets\"\nmutual = true");
    assert!(refused.contains("has no dhchap_ctrl_key"), "{refused}");
}

#[test]
fn unknown_hash_functions_and_groups_are_refused() {
    let config_dir = ConfigDir::new();
    let refused = output(&config_dir, "hashes = [\"sha1\"]\ndh_groups = [\"ffdhe1024\"]");
    assert!(refused.contains("expected sha256") && refused.contains("expected null, ffdhe2048"), "{refused}");
}

/// SHA-512 has no cipher suite of TLS 1.3, and without a group there is no secret of the session.
#[test]
fn an_address_for_generated_keys_needs_a_hash_function_and_a_group_for_them() {
    let config_dir = ConfigDir::new();
    fs::write(
        config_dir.path().join("secrets"),
        format!("{AUTHENTICATED} dhchap_key {}\n", secret(1).to_text().as_str()),
    )
    .unwrap();
    let output = |more: &str| {
        let security = format!("[security]\nsecrets_file = \"secrets\"\n{more}");
        config_dir.output(&format!("[server]\nconcat_listen = \"127.0.0.1:4423\"\n{security}\n{SUBSYSTEM}\n"))
    };
    assert_eq!(output("hashes = [\"sha512\", \"sha384\"]\ndh_groups = [\"null\", \"ffdhe2048\"]"), "");
    for unusable in ["hashes = [\"sha512\"]", "dh_groups = [\"null\"]"] {
        let refused = output(unusable);
        assert!(refused.contains("generate no key of TLS") && refused.contains("sha384"), "{refused}");
    }
}

#[test]
fn a_credential_needs_systemd() {
    let refused = output(&ConfigDir::new(), "secrets_file = \"credential:secrets\"");
    assert!(refused.contains("LoadCredential="), "{refused}");
}

#[test]
fn keys_of_tls_and_listeners_with_tls_belong_together() {
    let config_dir = ConfigDir::new();
    let server = |server: &str, security: &str| {
        config_dir.output(&format!("[server]\n{server}\n[security]\n{security}\n{SUBSYSTEM}\n"))
    };
    let (listen, secrets) = ("tls_listen = \"127.0.0.1:4421\"", "secrets_file = \"secrets\"");
    assert_eq!(server(listen, secrets), "");
    assert_eq!(server("", &format!("{secrets}\nallow_plain = true")), "");
    let no_keys = server(listen, "");
    assert!(no_keys.contains("no tls_key") && no_keys.contains("gen-tls-key"), "{no_keys}");
    let no_listener = server("", secrets);
    assert!(no_listener.contains("does not listen with TLS"), "{no_listener}");
    let twice = server("listen = \"127.0.0.1:4421\"\ntls_listen = \"127.0.0.1:4421\"", secrets);
    assert!(twice.contains("duplicate"), "{twice}");
}
