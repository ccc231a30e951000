//! The rack whose budget this server shares: etcd, names, floor and full power.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use pilotlight_auth::secrets_file;
use pilotlight_fleet::documents::is_name;
use pilotlight_policy::fleet::{Work, estimate};
use pilotlight_policy::pass::profile::Profile;

use super::Checker;
use super::security::{credentials, open_secret};
use crate::config::keys;
use crate::config::operation::{Etcd, Fleet};
use crate::config::power::{BUDGETS_UW, parse_budget};
use crate::config::problem::{Problem, Text};
use crate::config::storage::cause;
use crate::config::units::{format_duration, parse_duration};
use crate::privileges::files::read_text;

/// Time without etcd until a server falls back to its floor.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3600);
/// A quarter is the time for power to fall: `pass` takes at most 4 s (PROMISES.md).
const LEASE: Duration = Duration::from_secs(20);

impl Checker<'_> {
    /// The rack; `None` if the server shares no budget.
    pub(super) fn fleet(&mut self, written: &keys::Fleet, profile: Option<&String>) -> Option<Fleet> {
        if written.etcd.is_empty() {
            self.fleet_without_etcd(written);
            return None;
        }
        let endpoints = written.etcd.iter().filter_map(|text| self.endpoint(text)).collect();
        let (ca, identity) = self.etcd_tls(written);
        let user = self.etcd_user(written);
        let rack = self.required(written, written.rack.as_ref(), "rack", "name the rack, such as `rack = \"rack-7\"`");
        let rack = rack.and_then(|text| self.fleet_name(&text));
        let help = "name this server, as no other of the rack is named, such as `name = \"storage-1\"`";
        let name = self.required(written, written.name.as_ref(), "name", help);
        let name = name.and_then(|text| self.fleet_name(&text));
        let floor = self.required(
            written,
            written.floor.as_ref(),
            "floor",
            "add the power that this server keeps in any case, such as `floor = \"120W\"`",
        );
        let floor_uw = floor.and_then(|text| self.power(&text));
        let full_uw = match &written.full {
            Some(text) => self.power(text),
            None => self.full_of_profile(written, profile),
        };
        let priority = self.number(written.priority.as_ref(), 0..=u8::MAX, 0, "is not a priority");
        let lease = self.lease(written.lease.as_ref());
        let (floor_uw, full_uw) = (floor_uw?, full_uw?);
        if floor_uw > full_uw {
            let at = written.floor.as_ref().map_or(&written.at, |text| &text.at);
            self.problem(Problem::error(at, "`floor` is above `full`").help("the floor is the least power"));
        }
        let etcd = Etcd { endpoints, ca, identity, user };
        Some(Fleet { etcd, rack: rack?, name: name?, floor_uw, full_uw, priority, lease })
    }

    fn fleet_without_etcd(&mut self, written: &keys::Fleet) {
        let texts = [&written.rack, &written.name, &written.floor, &written.full, &written.lease];
        let first = texts.into_iter().flatten().map(|text| &text.at).next();
        let Some(at) = first.or(written.priority.as_ref().map(|number| &number.at)) else { return };
        let problem = Problem::error(at, "has no effect without `etcd`");
        self.problem(problem.help("add the client addresses of etcd, such as `etcd = [\"https://192.0.2.1:2379\"]`"));
    }

    fn endpoint(&mut self, text: &Text) -> Option<String> {
        let rest = ["http://", "https://"].iter().find_map(|scheme| text.value.strip_prefix(scheme));
        let is_good = |rest: &str| rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if rest.is_some_and(is_good) {
            return Some(text.value.clone());
        }
        let what = format!("`{}` is not an address of etcd", text.value);
        self.problem(Problem::error(&text.at, what).help("write https://ADDRESS:PORT, or http:// without TLS"));
        None
    }

    /// A key that a rack needs.
    fn required(&mut self, written: &keys::Fleet, text: Option<&Text>, key: &str, help: &str) -> Option<Text> {
        if text.is_none() {
            self.problem(Problem::error(&written.at, format!("`{key}` is missing")).help(help));
        }
        text.cloned()
    }

    /// Part of keys in etcd.
    fn fleet_name(&mut self, text: &Text) -> Option<String> {
        if is_name(&text.value) {
            return Some(text.value.clone());
        }
        let what = format!("`{}` is not a name for etcd", text.value);
        let help = "use 1 to 64 letters, digits, and `-`, `_` or `.`";
        self.problem(Problem::error(&text.at, what).help(help));
        None
    }

    fn power(&mut self, text: &Text) -> Option<u64> {
        let parse = |text: &str| parse_budget(text)?.ok_or_else(|| "expected a power such as 120W".to_owned());
        self.parsed(Some(text), parse)
    }

    fn full_of_profile(&mut self, written: &keys::Fleet, profile: Option<&String>) -> Option<u64> {
        let full_uw = profile.and_then(|text| Profile::parse(text).ok());
        let full_uw = full_uw.map(|profile| estimate(&profile, *BUDGETS_UW.start(), Work::default()).full_uw());
        if full_uw.is_none() {
            let help = "add the power above which this server gains nothing, such as `full = \"400W\"`, or a profile of this machine in [goals]";
            self.problem(Problem::error(&written.at, "`full` is missing").help(help));
        }
        full_uw
    }

    fn lease(&mut self, written: Option<&Text>) -> Duration {
        let parse = |text: &str| {
            let time = parse_duration(text)?;
            let range = || format!("use {} to {}", format_duration(*LEASES.start()), format_duration(*LEASES.end()));
            if LEASES.contains(&time) { Ok(time) } else { Err(range()) }
        };
        self.parsed(written, parse).unwrap_or(LEASE)
    }

    /// Authorities, and certificate and key.
    fn etcd_tls(&mut self, written: &keys::Fleet) -> (Option<String>, Option<(String, String)>) {
        let base = self.base;
        let mut pem = |text: Option<&Text>| self.parsed(text, |file| read(&base.join(file)));
        let (ca, cert) = (pem(written.ca_file.as_ref()), pem(written.cert_file.as_ref()));
        let key = self.parsed(written.key_file.as_ref(), |file| read_secret(&base.join(file)));
        let alone = match (&written.cert_file, &written.key_file) {
            (Some(text), None) => Some((text, "key_file")),
            (None, Some(text)) => Some((text, "cert_file")),
            _ => None,
        };
        if let Some((text, missing)) = alone {
            self.problem(Problem::error(&text.at, format!("needs `{missing}` too")));
        }
        if let Some(text) =
            written.etcd.iter().find(|text| text.value.starts_with("https://") && written.ca_file.is_none())
        {
            let problem = Problem::error(&text.at, "needs `ca_file`: the authorities that sign certificates of etcd");
            self.problem(problem.help("for etcd without TLS write http://"));
        }
        let plain = written.etcd.iter().find(|text| text.value.starts_with("http://"));
        if let Some(text) = plain.filter(|_| written.ca_file.is_some() || written.cert_file.is_some()) {
            let what = "this address is without TLS, so that `ca_file` and `cert_file` have no effect";
            self.problem(Problem::error(&text.at, what).help("write https://"));
        }
        (ca, cert.zip(key))
    }

    fn etcd_user(&mut self, written: &keys::Fleet) -> Option<(String, String)> {
        let base = self.base;
        let password = self.parsed(written.password_file.as_ref(), |file| read_secret(&base.join(file)));
        match (&written.user, &written.password_file) {
            (Some(user), Some(file)) => {
                if written.etcd.iter().any(|text| text.value.starts_with("http://")) {
                    let what = "the password can be read on the network: there is an address of etcd without TLS";
                    self.problem(Problem::warning(&file.at, what).help("write https://, and `ca_file`"));
                }
                Some((user.value.clone(), password?.trim_end().to_owned()))
            }
            (Some(text), None) => {
                self.problem(Problem::error(&text.at, "needs `password_file` too"));
                None
            }
            (None, Some(text)) => {
                self.problem(Problem::error(&text.at, "needs `user` too"));
                None
            }
            (None, None) => None,
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    read_text(path).map_err(|error| format!("{}: {}", path.display(), cause(&error)))
}

/// A file that other users may not access.
fn read_secret(path: &Path) -> Result<String, String> {
    let text = secrets_file::read_by(path, credentials().as_deref(), open_secret);
    text.map(|text| text.to_string()).map_err(|error| error.to_string())
}
