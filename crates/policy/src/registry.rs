//! Policies by name: the registry behind `policy = "sandman"` and `window = 64`.

use pilotlight_plant::Policy;

use crate::adaptive::{self, Adaptive};
use crate::budget::single::SingleKnob;
use crate::budget::{self, Mechanism, Zones};
use crate::cpu_bandwidth::CPU_BANDWIDTH;
use crate::cpu_jailing::CPU_JAILING;
use crate::limit::{Limited, Limiter};
use crate::native::{NATIVE, Native, SSD_APST};
use crate::ondemand::{self, Ondemand};
use crate::pacer::{self, Pacer};
use crate::parameter::{self, Parameter, ParameterError, Setting};
use crate::pass::Pass;
use crate::pass::parameters as pass_parameters;
use crate::rapl_only::RAPL_ONLY;
use crate::sandman::{self, Parameters, Sandman};
use crate::ssd_bandwidth::SSD_BANDWIDTH;
use crate::thunderbolt::{self, Rumd};
use crate::{Dynamic, Governor, HybridPoll, Interrupt, Static, dynamic, governor, hybrid_poll};

/// A policy that an operator can choose.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Its behaviour, in one line.
    pub summary: &'static str,
    /// What it needs of the machine beyond cores that can sleep.
    pub needs: Needs,
    /// Its parameters with these settings applied; the defaults if the settings are invalid.
    pub parameters: fn(&[(&str, &str)]) -> Vec<Setting>,
    /// Creates it; settings apply in this order.
    pub build: Builder,
}

/// What a policy needs of a machine; without it, it is refused with the missing feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Frequencies of cores that can be set.
    Frequencies,
    /// A reading of power, and a budget.
    Power,
}

/// Creates a policy from `(key, value)` pairs.
pub type Builder = fn(&[(&str, &str)]) -> Result<Box<dyn Policy>, ParameterError>;

/// Why a policy cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No policy has this name.
    #[error("there is no policy {0:?}; {meant}there are: {names}", meant = meant(.0), names = NAMES.join(", "))]
    Unknown(String),
    /// A parameter is invalid.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

/// "did you mean `sandman`? ", if a name is near.
fn meant(name: &str) -> String {
    pilotlight_input::file::nearest(name, &NAMES).map(|nearest| format!("did you mean {nearest}? ")).unwrap_or_default()
}

/// The names of all policies.
pub const NAMES: [&str; POLICIES.len()] = {
    let mut names = [""; POLICIES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = POLICIES[at].name;
        at += 1;
    }
    names
};

/// All policies.
pub const POLICIES: &[Entry] = &[
    Entry {
        name: "static",
        summary: "every core polls, I/O threads stay where they are (SPDK)",
        needs: Needs::Nothing,
        parameters: |_| Vec::new(),
        build: |settings| without_parameters("static", Static, settings),
    },
    Entry {
        name: "interrupt",
        summary: "every I/O thread waits in the kernel (Linux)",
        needs: Needs::Nothing,
        parameters: |_| Vec::new(),
        build: |settings| without_parameters("interrupt", Interrupt, settings),
    },
    Entry {
        name: governor::NAME,
        summary: "every core polls, at a frequency that follows its load (SPDK's governor)",
        needs: Needs::Frequencies,
        parameters: |settings| governor::Parameters::read(settings).unwrap_or_default().list(),
        build: |settings| Ok(Box::new(Governor::new(governor::Parameters::read(settings)?))),
    },
    Entry {
        name: dynamic::NAME,
        summary: "busy I/O threads fill few cores, the others sleep in the kernel (SPDK's dynamic scheduler)",
        needs: Needs::Nothing,
        parameters: |settings| dynamic::Parameters::read(settings).unwrap_or_default().list(),
        build: |settings| Ok(Box::new(Dynamic::new(dynamic::Parameters::read(settings)?))),
    },
    Entry {
        name: hybrid_poll::NAME,
        summary: "every core polls, and pauses half a request's service time between two polls (hybrid polling)",
        needs: Needs::Nothing,
        parameters: |settings| hybrid_poll::Parameters::read(settings).unwrap_or_default().list(),
        build: |settings| Ok(Box::new(HybridPoll::new(hybrid_poll::Parameters::read(settings)?))),
    },
    Entry {
        name: sandman::NAME,
        summary: "few cores poll, the others sleep until a burst arrives (SANDMAN)",
        needs: Needs::Nothing,
        parameters: |settings| Parameters::read(settings).unwrap_or_default().list(),
        build: |settings| Ok(Box::new(sandman(settings)?)),
    },
    Entry {
        name: adaptive::NAME,
        summary: "the fewest cores within a latency tolerance, waiting in the kernel; more at once for a burst",
        needs: Needs::Nothing,
        parameters: |settings| adaptive::Parameters::read(settings).unwrap_or_default().list(),
        build: |settings| Ok(Box::new(Adaptive::new(adaptive::Parameters::read(settings)?))),
    },
    Entry {
        name: pass_parameters::NAME,
        summary: "another policy under a power budget that is divided between CPU and drives by need (PASS)",
        needs: Needs::Power,
        parameters: |settings| pass_parameters::Parameters::read(&of_inner(settings).0).unwrap_or_default().list(),
        build: |settings| {
            let (own, inner) = of_inner(settings);
            let parameters = pass_parameters::Parameters::read(&own)?;
            let name = parameters.common.inner;
            limited(Pass::new(parameters), name, &inner)
        },
    },
    Entry {
        name: thunderbolt::NAME,
        summary: "as dynamic, under a power budget enforced by a randomized quota of CPU time (Google's Thunderbolt)",
        needs: Needs::Power,
        parameters: |settings| thunderbolt::Parameters::read(&of_inner(settings).0).unwrap_or_default().list(),
        build: |settings| {
            let (own, inner) = of_inner(settings);
            let parameters = thunderbolt::Parameters::read(&own)?;
            let name = parameters.common.inner;
            let rule = Rumd::new(parameters.rates.clone());
            let period_ns = parameters.rates.period_ns;
            limited(SingleKnob::new(&thunderbolt::MECHANISM, parameters.common, period_ns, rule), name, &inner)
        },
    },
    Entry {
        name: RAPL_ONLY.name,
        summary: "as static, under a power budget enforced by the power limits of the CPU packages (PASS's RAPL baseline)",
        needs: Needs::Power,
        parameters: |settings| budget_parameters(&RAPL_ONLY, settings),
        build: |settings| single_knob(&RAPL_ONLY, settings),
    },
    Entry {
        name: CPU_BANDWIDTH.name,
        summary: "as static, under a power budget enforced by a quota of CPU time (PASS's CPU bandwidth baseline)",
        needs: Needs::Power,
        parameters: |settings| budget_parameters(&CPU_BANDWIDTH, settings),
        build: |settings| single_knob(&CPU_BANDWIDTH, settings),
    },
    Entry {
        name: CPU_JAILING.name,
        summary: "as static, under a power budget enforced by the number of polling cores (PASS's CPU jailing baseline)",
        needs: Needs::Power,
        parameters: |settings| budget_parameters(&CPU_JAILING, settings),
        build: |settings| single_knob(&CPU_JAILING, settings),
    },
    Entry {
        name: SSD_BANDWIDTH.name,
        summary: "as static, under a power budget enforced by bandwidth caps of namespaces (PASS's SSD bandwidth baseline)",
        needs: Needs::Power,
        parameters: |settings| budget_parameters(&SSD_BANDWIDTH, settings),
        build: |settings| single_knob(&SSD_BANDWIDTH, settings),
    },
    Entry {
        name: pacer::NAME,
        summary: "few cores at a low frequency while load is steady, within a latency tolerance (PACER)",
        needs: Needs::Nothing,
        parameters: |settings| pacer_parameters(&[], settings),
        build: |settings| pacer(pacer::NAME, &[], settings),
    },
    Entry {
        name: "pg",
        summary: "as pacer, with the number of cores alone (PACER's power gating)",
        needs: Needs::Nothing,
        parameters: |settings| pacer_parameters(&CORES, settings),
        build: |settings| pacer("pg", &CORES, settings),
    },
    Entry {
        name: "dvfs",
        summary: "as pacer, with the frequency alone (PACER's DVFS)",
        needs: Needs::Frequencies,
        parameters: |settings| pacer_parameters(&FREQUENCY, settings),
        build: |settings| pacer("dvfs", &FREQUENCY, settings),
    },
    Entry {
        name: ondemand::NAME,
        summary: "every core polls, at a frequency in proportion to its load (Linux's ondemand governor)",
        needs: Needs::Frequencies,
        parameters: |settings| ondemand::Parameters::read(settings).unwrap_or_default().list(),
        build: |settings| Ok(Box::new(Ondemand::new(ondemand::Parameters::read(settings)?))),
    },
    Entry {
        name: NATIVE,
        summary: "every core polls at its highest frequency (PACER's baseline without power saving)",
        needs: Needs::Nothing,
        parameters: |_| Vec::new(),
        build: |settings| without_parameters(NATIVE, Native::default(), settings),
    },
    Entry {
        name: SSD_APST,
        summary: "as native, and drives may enter all their idle states (PACER, Table I)",
        needs: Needs::Nothing,
        parameters: |_| Vec::new(),
        build: |settings| without_parameters(SSD_APST, Native::with_drives(), settings),
    },
];

/// Settings of `pacer` that `pg` and `dvfs` apply before the operator's.
const CORES: [(&str, &str); 1] = [("adapt", "cores")];
const FREQUENCY: [(&str, &str); 1] = [("adapt", "frequency")];

/// The policy of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<Entry> {
    POLICIES.iter().copied().find(|entry| entry.name == name)
}

/// The parameters of a policy, with their defaults; `None` if it does not exist.
#[must_use]
pub fn parameters(name: &str) -> Option<Vec<Setting>> {
    by_name(name).map(|entry| (entry.parameters)(&[]))
}

/// As [`parameters`], with the values printed in the policy's paper: `sandman` without guards, `pass` with a start at full power.
#[must_use]
pub fn as_printed(name: &str) -> Option<Vec<Setting>> {
    let printed: &[_] = match name {
        sandman::NAME => &[("guards", "printed")],
        pass_parameters::NAME => &[("start", "full")],
        _ => &[],
    };
    by_name(name).map(|entry| (entry.parameters)(printed))
}

/// Creates a policy; settings apply in this order.
///
/// # Errors
/// If the policy or a parameter does not exist, or a value is not allowed.
pub fn build(name: &str, settings: &[(&str, &str)]) -> Result<Box<dyn Policy>, BuildError> {
    let entry = by_name(name).ok_or_else(|| BuildError::Unknown(name.to_owned()))?;
    Ok((entry.build)(settings)?)
}

/// `sandman` with these parameters.
///
/// # Errors
/// If a parameter does not exist or a value is not allowed.
pub fn sandman(settings: &[(&str, &str)]) -> Result<Sandman, ParameterError> {
    Parameters::read(settings).map(Sandman::new)
}

fn budget_parameters(mechanism: &Mechanism, settings: &[(&str, &str)]) -> Vec<Setting> {
    budget::Parameters::read(mechanism, &of_inner(settings).0)
        .unwrap_or_else(|_| budget::Parameters::new(mechanism))
        .list(mechanism)
}

fn single_knob(mechanism: &'static Mechanism, settings: &[(&str, &str)]) -> Result<Box<dyn Policy>, ParameterError> {
    let (own, inner) = of_inner(settings);
    let parameters = budget::Parameters::read(mechanism, &own)?;
    let name = parameters.common.inner;
    let (common, period_ns) = (parameters.common.clone(), parameters.own.period_ns);
    limited(SingleKnob::new(mechanism, common, period_ns, Zones::new(parameters)), name, &inner)
}

/// Keys and values.
type Settings<'a> = Vec<(&'a str, &'a str)>;

/// Splits settings into those of a policy and those of its inner policy: `inner_KEY` sets KEY.
fn of_inner<'a>(settings: &[(&'a str, &'a str)]) -> (Settings<'a>, Settings<'a>) {
    let (inner, own): (Settings<'a>, Settings<'a>) = settings.iter().partition(|(key, _)| key.starts_with("inner_"));
    (own, inner.into_iter().map(|(key, value)| (&key["inner_".len()..], value)).collect())
}

/// A limiter around the policy of this name.
fn limited(
    limiter: impl Limiter + 'static,
    inner: &'static str,
    settings: &[(&str, &str)],
) -> Result<Box<dyn Policy>, ParameterError> {
    match build(inner, settings) {
        Ok(policy) => Ok(Box::new(Limited::new(limiter, policy))),
        Err(BuildError::Parameter(error)) => Err(error),
        Err(BuildError::Unknown(name)) => Err(ParameterError::Conflict(format!("there is no policy {name:?}"))),
    }
}

fn pacer_parameters(preset: &[(&str, &str)], settings: &[(&str, &str)]) -> Vec<Setting> {
    let read = |settings: &[_]| pacer::Parameters::read(settings);
    let all = [preset, settings].concat();
    read(&all).or_else(|_| read(preset)).unwrap_or_default().list()
}

fn pacer(
    name: &'static str,
    preset: &[(&str, &str)],
    settings: &[(&str, &str)],
) -> Result<Box<dyn Policy>, ParameterError> {
    let parameters = pacer::Parameters::read(&[preset, settings].concat())?;
    Ok(Box::new(Pacer::named(name, parameters)))
}

fn without_parameters(
    name: &'static str,
    policy: impl Policy + 'static,
    settings: &[(&str, &str)],
) -> Result<Box<dyn Policy>, ParameterError> {
    const NONE: [Parameter<()>; 0] = [];
    for (key, value) in settings {
        parameter::set(name, &NONE, &mut (), key, value)?;
    }
    Ok(Box::new(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_creates_the_policy_of_that_name() {
        for name in NAMES {
            assert_eq!(build(name, &[]).unwrap().name(), name);
        }
        assert_eq!(parameters("static"), Some(Vec::new()));
        let value = |name, key, settings: &[(&str, &str)]| {
            let list = (by_name(name).unwrap().parameters)(settings);
            list.into_iter().find(|setting| setting.key == key).unwrap().value
        };
        assert_eq!(value("dynamic", "interval", &[]), "10us");
        assert_eq!(value("dynamic", "interval", &[("interval", "1s")]), "1s");
        assert_eq!(value("dynamic", "interval", &[("interval", "never")]), "10us");
        assert_eq!(value("governor", "up_threshold", &[]), "50%");
        assert_eq!(value("hybrid-poll", "initial_rest", &[]), "10us");
        assert!(parameters("sandman").unwrap().iter().any(|setting| setting.key == "window"));
    }

    #[test]
    fn error_messages_list_valid_names_and_values() {
        let message = |name, settings: &[(&str, &str)]| match build(name, settings) {
            Ok(_) => panic!("{name} {settings:?} was built"),
            Err(error) => error.to_string(),
        };
        assert!(
            message("sandmen", &[])
                .contains("static, interrupt, governor, dynamic, hybrid-poll, sandman, adaptive, pass, thunderbolt")
        );
        assert!(
            message("static", &[("window", "4")]).contains("static has no parameter \"window\"; it has no parameters")
        );
        assert!(
            message("governor", &[("min_threshold", "60")]).contains("min_threshold must not be above up_threshold")
        );
        assert!(message("dynamic", &[("core_busy", "70")]).contains("core_limit must not be above core_busy"));
        assert!(message("dynamic", &[("sleep", "goal")]).contains("software or monitor"));
        assert!(message("hybrid-poll", &[("max_rest", "9us")]).contains("initial_rest must not be above max_rest"));
        assert!(message("sandman", &[("window", "x")]).contains("window is a whole number"));
        assert!(message("sandman", &[("healthy_threshold", "20%")]).contains("idle_threshold"));
    }
}
