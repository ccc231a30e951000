//! Policies as an operator chooses them: a name and parameters, from the configuration or over the control socket.

use anyhow::Context as _;
use pilotlight_input::file::nearest;
use pilotlight_plant::{Goal, Policy};
use pilotlight_policy::registry::{Entry, POLICIES};
use pilotlight_policy::sandman::NAME as SANDMAN;
use pilotlight_policy::{BuildError, NAMES, ParameterError, Setting, by_name};
use serde::{Deserialize, Serialize};

/// The default policy: it saves power on an idle server.
pub(crate) const DEFAULT: &str = SANDMAN;

/// The parameter that sets the domain of a power budget, and that with a profile of the machine.
const DOMAIN: &str = "domain";
const PROFILE: &str = "profile";

/// The names of the policies that use a goal, as a list.
pub(crate) fn users_of(goal: Goal) -> String {
    let uses = |entry: &&Entry| (entry.build)(&[]).is_ok_and(|policy| policy.uses(goal));
    let names: Vec<&str> = POLICIES.iter().filter(uses).map(|entry| entry.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A policy with its parameters; serde: as a request over the control socket has it.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyChoice {
    #[serde(rename = "policy")]
    pub(crate) name: String,
    /// In the order in which they are set; all others have their defaults.
    #[serde(default, with = "assignments")]
    pub(crate) parameters: Vec<(String, String)>,
}

/// Parameters as a list of `key=value`.
mod assignments {
    use anyhow::Context as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::key_and_value;

    #[derive(serde::Deserialize)]
    #[serde(try_from = "String")]
    struct Assignment(String, String);

    impl TryFrom<String> for Assignment {
        type Error = anyhow::Error;

        fn try_from(text: String) -> anyhow::Result<Self> {
            let (key, value) = key_and_value(&text).with_context(|| super::not_an_assignment(&text))?;
            Ok(Self(key, value))
        }
    }

    pub(super) fn serialize<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(pairs.iter().map(|(key, value)| format!("{key}={value}")))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
        let all = Vec::<Assignment>::deserialize(deserializer)?;
        Ok(all.into_iter().map(|Assignment(key, value)| (key, value)).collect())
    }
}

impl Default for PolicyChoice {
    fn default() -> Self {
        Self { name: DEFAULT.to_owned(), parameters: Vec::new() }
    }
}

impl PartialEq for PolicyChoice {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.in_force() == other.in_force()
    }
}

/// The domain of a power budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BudgetDomain {
    /// The whole server.
    Server,
    /// Its CPU packages together.
    Cpu,
}

impl BudgetDomain {
    /// As it is written, also as a value of the parameter `domain` of policies.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Cpu => "cpu",
        }
    }

    /// Reads what was written.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let named = [Self::Server, Self::Cpu].into_iter().find(|domain| domain.name() == text);
        named
            .with_context(|| format!("`{text}` is not a domain: write server (the whole system) or cpu (its packages)"))
    }
}

/// Why a choice is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidChoice {
    /// The invalid part.
    pub(crate) part: ChoicePart,
    /// The message.
    pub(crate) what: String,
    /// What the user can do.
    pub(crate) help: String,
}

/// A part of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChoicePart {
    /// The policy's name.
    Name,
    /// This key: the policy has none of that name.
    Key(String),
    /// The value of this key.
    Value(String),
    /// Values that do not go together.
    Together,
}

impl PolicyChoice {
    /// The policy itself.
    pub(crate) fn build(&self) -> Result<Box<dyn Policy>, InvalidChoice> {
        pilotlight_policy::build(&self.name, &self.pairs()).map_err(|error| self.invalid(error))
    }

    /// Keys and values in the order in which they are set, without those that a later value of the same key replaces.
    pub(crate) fn in_force(&self) -> Vec<&(String, String)> {
        let is_last = |at: usize, key: &String| self.parameters[at + 1..].iter().all(|(other, _)| other != key);
        let all = self.parameters.iter().enumerate();
        all.filter(|(at, (key, _))| is_last(*at, key)).map(|(_, parameter)| parameter).collect()
    }

    /// With this profile of the machine, where the policy has one and none is set.
    pub(crate) fn with_profile(&self, profile: Option<&str>) -> Self {
        let mut choice = self.clone();
        let is_set = self.parameters.iter().any(|(key, _)| key == PROFILE);
        if let Some(profile) = profile.filter(|_| !is_set && self.settings().iter().any(|one| one.key == PROFILE)) {
            choice.parameters.push((PROFILE.to_owned(), profile.to_owned()));
        }
        choice
    }

    /// With this domain of power budgets, where the policy has one. What was set as a parameter stays, unless `overrides`.
    pub(crate) fn with_domain(&self, domain: BudgetDomain, overrides: bool) -> Self {
        let has_domain = self.settings().iter().any(|setting| setting.key == DOMAIN);
        let is_set = self.parameters.iter().any(|(key, _)| key == DOMAIN);
        let mut choice = self.clone();
        if has_domain && (overrides || !is_set) {
            choice.parameters.retain(|(key, _)| key != DOMAIN);
            choice.parameters.insert(0, (DOMAIN.to_owned(), domain.name().to_owned()));
        }
        choice
    }

    /// The domain of power budgets that it sets.
    pub(crate) fn domain(&self) -> Option<BudgetDomain> {
        let set = self.parameters.iter().rfind(|(key, _)| key == DOMAIN);
        set.and_then(|(_, value)| BudgetDomain::parse(value).ok())
    }

    /// Whether it acts on a goal.
    pub(crate) fn uses(&self, goal: Goal) -> bool {
        self.build().is_ok_and(|policy| policy.uses(goal))
    }

    /// Every parameter of the policy with the value that it has under this choice.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        // A choice was checked when it was made.
        by_name(&self.name).map(|entry| (entry.parameters)(&self.pairs())).unwrap_or_default()
    }

    fn pairs(&self) -> Vec<(&str, &str)> {
        self.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    fn invalid(&self, error: BuildError) -> InvalidChoice {
        match error {
            BuildError::Unknown(name) => {
                let meant = nearest(&name, &NAMES).map(|nearest| format!("did you mean `{nearest}`? "));
                let help = format!("{}policies: {}", meant.unwrap_or_default(), NAMES.join(", "));
                let what = format!("there is no policy `{name}`");
                InvalidChoice { part: ChoicePart::Name, what, help }
            }
            BuildError::Parameter(ParameterError::Unknown { policy, key, known }) => {
                let what = format!("policy {policy} has no parameter `{key}`");
                InvalidChoice { part: ChoicePart::Key(key), what, help: known }
            }
            BuildError::Parameter(ParameterError::Value { key, value, allowed }) => {
                let what = format!("`{value}` is not a value of {key}");
                InvalidChoice { part: ChoicePart::Value(key.to_owned()), what, help: format!("write {allowed}") }
            }
            BuildError::Parameter(ParameterError::Conflict(what)) => {
                InvalidChoice { part: ChoicePart::Together, what, help: "change one of the two".to_owned() }
            }
        }
    }
}

/// The message about a text without a key and a value.
pub(crate) fn not_an_assignment(text: &str) -> String {
    format!("`{text}` is not an assignment: write KEY=VALUE, such as window=64")
}

/// Splits `key=value`.
pub(crate) fn key_and_value(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    (!key.is_empty() && !value.is_empty()).then(|| (key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(name: &str, parameters: &[(&str, &str)]) -> PolicyChoice {
        let own = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        PolicyChoice { name: name.to_owned(), parameters: parameters.iter().map(own).collect() }
    }

    #[test]
    fn settings_show_what_holds() {
        let value = |choice: PolicyChoice, key| {
            choice.settings().into_iter().find(|setting| setting.key == key).map(|setting| setting.value)
        };
        assert_eq!(value(PolicyChoice::default(), "window").as_deref(), Some("256"));
        assert_eq!(value(choice("sandman", &[("window", "64")]), "window").as_deref(), Some("64"));
        assert_eq!(value(choice("dynamic", &[("interval", "1s")]), "interval").as_deref(), Some("1s"));
        assert_eq!(value(choice("static", &[]), "window"), None);
    }

    #[test]
    fn the_domain_is_set_if_the_policy_has_one_and_it_is_unset() {
        let domain = |choice: PolicyChoice, overrides| choice.with_domain(BudgetDomain::Cpu, overrides).domain();
        assert_eq!(domain(choice("cpu-bandwidth", &[]), false), Some(BudgetDomain::Cpu));
        assert_eq!(domain(choice("cpu-bandwidth", &[("domain", "server")]), false), Some(BudgetDomain::Server));
        assert_eq!(domain(choice("cpu-bandwidth", &[("domain", "server")]), true), Some(BudgetDomain::Cpu));
        assert_eq!(choice("sandman", &[]).with_domain(BudgetDomain::Cpu, true), choice("sandman", &[]));
    }

    #[test]
    fn the_last_value_of_a_key_counts_and_the_order_of_keys() {
        let twice = choice("sandman", &[("min_requests", "3"), ("window", "64"), ("min_requests", "4")]);
        assert_eq!(twice, choice("sandman", &[("window", "64"), ("min_requests", "4")]));
        assert_ne!(twice, choice("sandman", &[("min_requests", "4"), ("window", "64")]));
        assert_ne!(twice, choice("sandman", &[("window", "64"), ("min_requests", "3")]));
    }

    #[test]
    fn a_mistake_names_its_part() {
        let part = |choice: PolicyChoice| choice.build().err().map(|unfit| unfit.part);
        assert_eq!(part(PolicyChoice::default()), None);
        assert_eq!(part(choice("sandmen", &[])), Some(ChoicePart::Name));
        assert_eq!(part(choice("static", &[("window", "3")])), Some(ChoicePart::Key("window".to_owned())));
        assert_eq!(part(choice("sandman", &[("window", "x")])), Some(ChoicePart::Value("window".to_owned())));
        assert_eq!(part(choice("sandman", &[("healthy_threshold", "20%")])), Some(ChoicePart::Together));
    }

    #[test]
    fn keys_and_values() {
        assert_eq!(key_and_value("a = b=c"), Some(("a".to_owned(), "b=c".to_owned())));
        for text in ["", "a", "=b", "a=", " = "] {
            assert_eq!(key_and_value(text), None, "{text}");
        }
    }
}
