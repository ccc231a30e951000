//! Power sensors, budgets and domains, as text and as numbers.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use pilotlight_input::quantity::{self, POWERS};
use pilotlight_power::shares::Idle;

/// Removes a goal.
const OFF: &str = "off";
/// Restores the goal of the configuration.
const DEFAULT: &str = "default";
/// Budgets that a server can be given, in microwatts: 1 W to 1 MW.
const BUDGETS_UW: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

/// Which sensor measures power.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SensorChoice {
    /// RAPL, else the firmware's power meter; none where there is neither.
    #[default]
    Auto,
    /// None.
    None,
    /// RAPL.
    Rapl,
    /// A sensor chip that measures the whole system: of this driver, else the firmware's power meter.
    Hwmon(Option<String>),
    /// None: watts are modelled from CPU time, with the constants of this power profile, else of the one that is built in.
    Modelled(Option<PathBuf>),
}

impl SensorChoice {
    /// Reads what was written; a relative path starts at `base`.
    pub(crate) fn parse(text: &str, base: &Path) -> anyhow::Result<Self> {
        match text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest))) {
            ("auto", None) => Ok(Self::Auto),
            ("none", None) => Ok(Self::None),
            ("rapl", None) => Ok(Self::Rapl),
            ("hwmon", chip) if chip != Some("") => Ok(Self::Hwmon(chip.map(str::to_owned))),
            ("modelled", file) if file != Some("") => Ok(Self::Modelled(file.map(|file| base.join(file)))),
            _ => bail!(
                "there is no sensor `{text}`: use auto, none, rapl, hwmon, hwmon:CHIP, modelled or modelled:PROFILE.toml"
            ),
        }
    }
}

/// Parses how idle energy is divided; `None`: energy is not divided.
pub(crate) fn parse_energy_shares(text: &str) -> anyhow::Result<Option<Idle>> {
    if text == OFF {
        return Ok(None);
    }
    let found = [Idle::Unassigned, Idle::Equal, Idle::Proportional].into_iter().find(|idle| format_idle(*idle) == text);
    found.map(Some).with_context(|| {
        format!("`{text}` is not a division of idle energy: use off, unassigned, equal or proportional")
    })
}

/// Who gets idle energy, as it is written.
pub(crate) fn format_idle(idle: Idle) -> &'static str {
    match idle {
        Idle::Unassigned => "unassigned",
        Idle::Equal => "equal",
        Idle::Proportional => "proportional",
    }
}

/// A requested power budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetRequest {
    /// This power in microwatts.
    Power(u64),
    /// No limit.
    Off,
    /// As in the schedule or the configuration.
    Default,
}

impl BudgetRequest {
    /// As it is written.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Power(uw) => format_budget(Some(uw)),
            Self::Off => OFF.to_owned(),
            Self::Default => DEFAULT.to_owned(),
        }
    }
}

/// A power budget, `off` or `default`.
pub(crate) fn parse_budget_request(text: &str) -> anyhow::Result<BudgetRequest> {
    match text {
        DEFAULT => Ok(BudgetRequest::Default),
        _ => Ok(parse_budget(text)?.map_or(BudgetRequest::Off, BudgetRequest::Power)),
    }
}

/// A power in microwatts: `120W`.
pub(crate) fn parse_power(text: &str) -> anyhow::Result<u64> {
    parse_budget(text)?.context("expected a power such as 120W")
}

/// A power budget in microwatts: `300W`; `None` for `off`.
pub(crate) fn parse_budget(text: &str) -> anyhow::Result<Option<u64>> {
    if text == OFF {
        return Ok(None);
    }
    let wrong = || format!("`{text}` is not a budget: write a power such as 300W, from 1W to 1000kW, or {OFF}");
    quantity::parse(text, POWERS).ok().filter(|uw| BUDGETS_UW.contains(uw)).map(Some).with_context(wrong)
}

/// A budget as it is written: `300W`, or `off`.
pub(crate) fn format_budget(budget_uw: Option<u64>) -> String {
    budget_uw.map_or(OFF.to_owned(), |uw| quantity::format(uw, POWERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_come_back_as_they_were_written() {
        for (text, uw) in [("300W", 300_000_000), ("1.5kW", 1_500_000_000), ("off", 0)] {
            assert_eq!(parse_budget(text).unwrap(), Some(uw).filter(|&uw| uw > 0), "{text}");
        }
        assert_eq!([Some(300_000_000), Some(1_500_000_000), None].map(format_budget), ["300W", "1500W", "off"]);
        for text in ["", "300", "0W", "2MW", "1001kW", "-1W", "many"] {
            assert!(parse_budget(text).unwrap_err().to_string().contains("300W"), "{text}");
        }
    }

    #[test]
    fn sensors_are_named_with_what_they_need() {
        let parse = |text| SensorChoice::parse(text, Path::new("/etc"));
        assert_eq!(parse("auto").unwrap(), SensorChoice::Auto);
        assert_eq!(parse("hwmon:ina226").unwrap(), SensorChoice::Hwmon(Some("ina226".into())));
        assert_eq!(parse("modelled:own.toml").unwrap(), SensorChoice::Modelled(Some("/etc/own.toml".into())));
        for text in ["", "rapl:0", "hwmon:", "ipmi"] {
            assert!(parse(text).unwrap_err().to_string().contains("auto, none, rapl"), "{text}");
        }
    }
}
