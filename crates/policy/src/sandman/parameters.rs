//! Parameters of `sandman`: those of the paper with its values, those that it does not print, and guards beyond its rule. Recommended guards are
//! on by default.
//!
//! `table.rs` describes each parameter, README.md the measured effect of guards.

use pilotlight_plant::DEFAULT_IDLE_TIMEOUT_NS;

use super::select::Selection;
use super::table::TABLE;
use crate::parameter::{self, ParameterError, Setting, text};
use crate::sleep::Sleep;

/// All values. Shares of a core are in millionths.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Time between two consolidations.
    pub coarse_interval_ns: u64,
    /// Time between two checks for bursts.
    pub fine_interval_ns: u64,
    /// Load below which a core is emptied.
    pub idle_ppm: u32,
    /// Load up to which a core gets threads.
    pub healthy_ppm: u32,
    /// `Z`, in standard errors.
    pub z: f64,
    /// Ticks in the mean and the standard error.
    pub window: usize,
    /// Longest wake-up time of an emptied core.
    pub wake_within_ns: u64,
    /// How an emptied core sleeps.
    pub sleep: Sleep,
    /// How bursts are detected.
    pub detect: Detect,
    /// Whether siblings are kept asleep in pairs.
    pub siblings: bool,
    /// Whether the main core takes active threads of workers that no other worker can take.
    pub main_takes_active: bool,
    /// Whether the main core gives its active threads to workers, and wakes one if none can take them.
    pub main_gives_active: bool,
    /// Whether a worker sleeps as soon as its last thread has left for a burst, instead of after the coarse interval.
    pub sleep_at_once: bool,
    /// Whether the whole server may sleep while there are no requests.
    pub server_sleep: bool,
    /// Time after its last request until a worker waits in the kernel.
    pub worker_rest_ns: u64,
    /// Unit of `z`: the error of the mean, or the deviation of counts.
    pub spread: Spread,
    /// Fewest requests of a surge, in the fine interval or in the averaged ones.
    pub min_requests: u32,
    /// How often a count must be above the bound.
    pub confirm: Confirm,
    /// Fine intervals in the mean that is tested instead of one count.
    pub average: u32,
    /// Least number of ticks in the window.
    pub min_samples: usize,
    /// Whether a thread that has a worker core to itself stays there.
    pub exempt_alone: bool,
    /// Whether a surging thread may get a worker core that is awake and empty.
    pub reuse_awake: bool,
    /// Whether the coarse interval moves threads from cores above the healthy threshold.
    pub relieve: bool,
    /// Contents of the window after a sleep of the whole server.
    pub after_sleep: AfterSleep,
    /// Time between two checks, which replace consolidations; `u64::MAX` for none.
    pub give_back_ns: u64,
}

/// How bursts are detected (Figure 11(a)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detect {
    /// By requests polled from network queues (SANDMAN).
    Queues,
    /// By the load of cores, as in SPDK's dynamic scheduler.
    Load,
}

/// Unit of the distance of a count from the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The standard error of the forecast of a count, `s sqrt(1 + 1/n)`: the printed rule ("at the current scheduling event based on
    /// previous scheduling events").
    Forecast,
    /// The standard error of the mean, `s / sqrt(n)`: the printed words alone.
    Error,
    /// The standard deviation of counts, `s`.
    Deviation,
}

/// "Above the bound in `times` of the last `ticks` ticks".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// At least 1.
    pub times: u32,
    /// Including the current tick; at most 64.
    pub ticks: u32,
}

impl Confirm {
    /// Whether one tick is enough.
    #[must_use]
    pub fn at_once(self) -> bool {
        self.times == 1
    }
}

/// Contents of the window after a sleep of the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSleep {
    /// No counts.
    Empty,
    /// A full window of zeros.
    Zeros,
}

impl Default for Parameters {
    /// The paper's values and the recommended guards.
    fn default() -> Self {
        let mut parameters = Self::printed();
        let _ = parameters.set_guards("recommended"); // a test sets each
        parameters
    }
}

impl Parameters {
    /// The paper's values and its rule as printed.
    #[must_use]
    pub fn printed() -> Self {
        Self {
            coarse_interval_ns: 1_000_000_000,
            fine_interval_ns: 10_000,
            idle_ppm: 400_000,
            healthy_ppm: 800_000,
            z: 1.96,
            window: 32,
            wake_within_ns: 0,
            sleep: Sleep::Goal,
            detect: Detect::Queues,
            siblings: true,
            main_takes_active: true,
            main_gives_active: false,
            sleep_at_once: false,
            server_sleep: true,
            worker_rest_ns: DEFAULT_IDLE_TIMEOUT_NS,
            spread: Spread::Forecast,
            min_requests: 0,
            confirm: Confirm { times: 1, ticks: 1 },
            average: 1,
            min_samples: 2,
            exempt_alone: true, // 4.4.2: "a new core with more available CPU cycles"
            reuse_awake: false,
            relieve: false,
            after_sleep: AfterSleep::Empty,
            give_back_ns: u64::MAX,
        }
    }
}

/// The recommended guards (reasons in README.md). The first six were chosen on the accuracy of detection alone and are frozen; the
/// others govern the reaction to a detection.
pub const RECOMMENDED: [(&str, &str); 10] = [
    ("window", "256"),
    ("spread", "deviation"),
    ("average", "32"),
    ("z", "9"),
    ("min_requests", "20"),
    ("after_sleep", "zeros"),
    ("exempt_alone", "true"),
    ("reuse_awake", "true"),
    ("relieve", "true"),
    ("give_back_interval", "2ms"),
];

impl Parameters {
    /// Applies settings: first the variant, then the set of guards, then the others in this order. A coarse interval alone switches the checks
    /// off that replace it.
    ///
    /// # Errors
    /// If a parameter does not exist, or values are not allowed, alone or together.
    pub fn read(settings: &[(&str, &str)]) -> Result<Self, ParameterError> {
        let mut ordered = settings.to_vec();
        ordered.sort_by_key(|(key, _)| ["variant", "guards"].iter().position(|first| first == key).unwrap_or(2));
        let has = |wanted: &str| settings.iter().any(|(key, _)| *key == wanted);
        if has("coarse_interval") && !has("give_back_interval") {
            ordered.push(("give_back_interval", "never"));
        }
        let read = parameter::read(super::NAME, &TABLE, &ordered)?;
        read.check()?;
        Ok(read)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// If the parameter does not exist or the value is not allowed.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ParameterError> {
        parameter::set(super::NAME, &TABLE, self, key, value)
    }

    /// All of them, in the order of the documentation.
    #[must_use]
    pub fn list(&self) -> Vec<Setting> {
        parameter::list(&TABLE, self)
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// If they are not.
    pub fn check(&self) -> Result<(), ParameterError> {
        if self.idle_ppm > self.healthy_ppm {
            return Err(ParameterError::Conflict(format!(
                "idle_threshold ({}) must not be above healthy_threshold ({}); the paper keeps it at half of it",
                text::format_percent(self.idle_ppm),
                text::format_percent(self.healthy_ppm),
            )));
        }
        if self.coarse_interval_ns < self.fine_interval_ns {
            let message = "coarse_interval must not be shorter than fine_interval";
            return Err(ParameterError::Conflict(message.to_owned()));
        }
        if self.min_samples > self.window {
            let message = "min_samples must not be above window: nothing would ever be detected";
            return Err(ParameterError::Conflict(message.to_owned()));
        }
        Ok(())
    }

    /// Time between two intervals.
    #[must_use]
    pub fn interval_ns(&self) -> u64 {
        if self.give_back_ns == u64::MAX {
            self.coarse_interval_ns
        } else {
            self.give_back_ns.max(self.fine_interval_ns)
        }
    }

    /// How a whole core is selected.
    #[must_use]
    pub fn selection(&self) -> Selection {
        Selection { reuse_awake: self.reuse_awake, siblings: self.siblings }
    }

    /// Sets the paper's variant or the recommended one.
    pub(super) fn set_variant(&mut self, which: &str) -> Option<()> {
        let (guards, is_paper) = match which {
            "paper" => ("printed", true),
            "recommended" => ("recommended", false),
            _ => return None,
        };
        self.set_guards(guards)?;
        (self.main_takes_active, self.server_sleep) = (!is_paper, !is_paper);
        (self.main_gives_active, self.sleep_at_once) = (is_paper, is_paper);
        Some(())
    }

    /// The name of the variant in force.
    pub(super) fn variant(&self) -> &'static str {
        self.first_like(["paper", "recommended"], Self::set_variant)
    }

    pub(super) fn set_guards(&mut self, which: &str) -> Option<()> {
        let printed = Self::printed();
        let guards = match which {
            "printed" => &[][..],
            "recommended" => &RECOMMENDED[..],
            _ => return None,
        };
        *self = Self {
            coarse_interval_ns: self.coarse_interval_ns,
            fine_interval_ns: self.fine_interval_ns,
            idle_ppm: self.idle_ppm,
            healthy_ppm: self.healthy_ppm,
            wake_within_ns: self.wake_within_ns,
            sleep: self.sleep,
            detect: self.detect,
            siblings: self.siblings,
            main_takes_active: self.main_takes_active,
            main_gives_active: self.main_gives_active,
            sleep_at_once: self.sleep_at_once,
            server_sleep: self.server_sleep,
            worker_rest_ns: self.worker_rest_ns,
            ..printed
        };
        guards.iter().try_for_each(|(key, value)| self.set(key, value).ok())
    }

    /// The name of the set of guards in force.
    pub(super) fn guards(&self) -> &'static str {
        self.first_like(["printed", "recommended"], Self::set_guards)
    }

    /// The first of these names that changes nothing; else `own`.
    fn first_like(&self, names: [&'static str; 2], set: impl Fn(&mut Self, &str) -> Option<()>) -> &'static str {
        let like = |name: &&str| {
            let mut other = self.clone();
            set(&mut other, name);
            other == *self
        };
        names.into_iter().find(like).unwrap_or("own")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_are_those_of_the_paper() {
        let list = Parameters::printed().list();
        let value = |key| list.iter().find(|setting| setting.key == key).unwrap().value.as_str();
        let expected = [
            ("coarse_interval", "1s"),
            ("fine_interval", "10us"),
            ("idle_threshold", "40%"),
            ("healthy_threshold", "80%"),
            ("z", "1.96"),
            ("wake_within", "shallowest"),
            ("guards", "printed"),
            ("spread", "forecast"),
            ("exempt_alone", "true"),
            ("confirm", "1/1"),
        ];
        for (key, paper) in expected {
            assert_eq!(value(key), paper, "{key}");
        }
    }

    #[test]
    fn parameters_before_the_guards_do_not_change_their_name() {
        let others = [
            ("coarse_interval", "2s"),
            ("fine_interval", "20us"),
            ("idle_threshold", "30%"),
            ("healthy_threshold", "70%"),
            ("wake_within", "5us"),
            ("sleep", "software"),
            ("detect", "load"),
            ("siblings", "false"),
            ("main_takes_active", "false"),
            ("main_gives_active", "true"),
            ("sleep_at_once", "true"),
            ("server_sleep", "false"),
            ("worker_rest", "3us"),
        ];
        let before = TABLE.iter().map(|parameter| parameter.key).skip(1).take_while(|&key| key != "guards");
        assert_eq!(before.collect::<Vec<_>>(), others.map(|(key, _)| key));
        for (key, value) in others.into_iter().skip(1) {
            let mut parameters = Parameters::default();
            let set = TABLE.iter().find(|parameter| parameter.key == key).unwrap().set;
            set(&mut parameters, value).unwrap_or_else(|| panic!("{key} = {value}"));
            assert_ne!(parameters, Parameters::default(), "{key}");
            assert_eq!(parameters.guards(), "recommended", "{key}");
        }
    }

    #[test]
    fn every_listed_value_can_be_set_again() {
        let mut parameters = Parameters::default();
        for (key, value) in [("confirm", "3 / 4"), ("z", "2.5"), ("idle_threshold", "12.5%"), ("after_sleep", "zeros")]
        {
            parameters.set(key, value).unwrap();
        }
        let mut again = Parameters::default();
        for Setting { key, value, .. } in
            parameters.list().into_iter().filter(|setting| !["guards", "variant"].contains(&setting.key))
        {
            again.set(key, &value).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(again, parameters);
    }

    #[test]
    fn guards_are_recommended_by_default_and_single_settings_override_them() {
        let value = |settings: &[(&str, &str)], key| {
            let list = Parameters::read(settings).unwrap().list();
            list.into_iter().find(|setting| setting.key == key).unwrap().value
        };
        assert_eq!(value(&[], "guards"), "recommended");
        for (key, recommended) in RECOMMENDED {
            assert_eq!(value(&[], key), recommended, "{key}");
        }
        assert_eq!(value(&[("min_requests", "8"), ("guards", "printed")], "min_requests"), "8");
        assert_eq!(value(&[("min_requests", "8"), ("guards", "printed")], "window"), "32");
    }

    #[test]
    fn sets_of_guards_have_a_name_and_leave_other_parameters() {
        let mut parameters = Parameters::default();
        parameters.set("coarse_interval", "500ms").unwrap();
        parameters.set("guards", "recommended").unwrap();
        assert_eq!(parameters.guards(), "recommended");
        assert_eq!(parameters.coarse_interval_ns, 500_000_000);
        parameters.set("min_requests", "77").unwrap();
        assert_eq!(parameters.guards(), "own");
        parameters.set("guards", "printed").unwrap();
        assert_eq!(parameters, Parameters { coarse_interval_ns: 500_000_000, ..Parameters::printed() });
    }

    #[test]
    fn the_paper_variant_is_the_printed_rule_and_placement() {
        let paper = Parameters::read(&[("spread", "deviation"), ("variant", "paper")]).unwrap();
        let expected = Parameters {
            main_takes_active: false,
            main_gives_active: true,
            sleep_at_once: true,
            server_sleep: false,
            spread: Spread::Deviation,
            ..Parameters::printed()
        };
        assert_eq!((paper.variant(), &paper), ("own", &expected));
        let paper = Parameters { spread: Spread::Forecast, ..paper };
        assert_eq!((paper.variant(), paper.guards()), ("paper", "printed"));
        assert_eq!(Parameters::default().variant(), "recommended");
        let mut back = paper;
        back.set("variant", "recommended").unwrap();
        assert_eq!(back, Parameters::default());
    }

    #[test]
    fn error_messages_name_the_allowed_values() {
        let message = |key, value| Parameters::default().set(key, value).unwrap_err().to_string();
        assert!(message("windw", "3").contains("did you mean window?"), "{}", message("windw", "3"));
        assert!(!message("frequency", "3").contains("did you mean"), "{}", message("frequency", "3"));
        assert!(message("frequency", "3").contains("exempt_alone"), "{}", message("frequency", "3"));
        let wrong = [
            ("z", "-1"),
            ("z", "NaN"),
            ("window", "1"),
            ("confirm", "3/2"),
            ("confirm", "0/2"),
            ("confirm", "1/65"),
            ("fine_interval", "10"),
            ("fine_interval", "1ns"),
            ("healthy_threshold", "140"),
            ("exempt_alone", "yes"),
            ("guards", "own"),
            ("variant", "own"),
        ];
        for (key, value) in wrong {
            let message = message(key, value);
            assert!(message.contains(&format!("{key} = {value:?} is not allowed: {key} is ")), "{message}");
        }
    }

    #[test]
    fn values_that_contradict_each_other_are_refused() {
        let together = |settings: &[(&str, &str)]| {
            let mut parameters = Parameters::default();
            for (key, value) in settings {
                parameters.set(key, value).unwrap();
            }
            parameters.check()
        };
        assert!(together(&[]).is_ok());
        assert!(together(&[("healthy_threshold", "30")]).is_err());
        assert!(together(&[("fine_interval", "2s")]).is_err());
        assert!(together(&[("min_samples", "257")]).is_err());
        assert!(together(&[("fine_interval", "5ms")]).is_ok(), "checks are as rare, though nobody set them");
    }

    #[test]
    fn a_coarse_interval_alone_replaces_the_checks() {
        let interval_ns = |settings: &[(&str, &str)]| Parameters::read(settings).unwrap().interval_ns();
        assert_eq!(interval_ns(&[]), 2_000_000);
        assert_eq!(interval_ns(&[("coarse_interval", "30ms")]), 30_000_000);
        assert_eq!(interval_ns(&[("coarse_interval", "30ms"), ("give_back_interval", "3ms")]), 3_000_000);
        assert_eq!(interval_ns(&[("variant", "paper")]), 1_000_000_000);
    }
}
