//! The parameters of `sandman`: key, purpose and values of each.

use pilotlight_plant::DEFAULT_IDLE_TIMEOUT_NS;

use super::parameters::{AfterSleep, Confirm, Detect, Parameters, Spread};
use crate::parameter::{PERCENT, Parameter, SWITCH, TIME, put, text, time};
use crate::sleep::Sleep;

/// All of them.
pub(super) const TABLE: [Parameter<Parameters>; 27] = [
    Parameter {
        key: "variant",
        meaning: "sets guards, main_takes_active, main_gives_active, sleep_at_once and server_sleep, before other parameters: as recommended \
                  or as in the paper",
        allowed: "paper or recommended",
        get: |p| p.variant().to_owned(),
        set: |p, v| p.set_variant(v),
    },
    Parameter {
        key: "coarse_interval",
        meaning: "time between two consolidations (4.4.1, 5.4; paper: 1s); set alone it replaces give_back_interval",
        allowed: TIME,
        get: |p| text::format_duration(p.coarse_interval_ns),
        set: |p, v| time(&mut p.coarse_interval_ns, v),
    },
    Parameter {
        key: "fine_interval",
        meaning: "time between two checks for bursts (4.4.2, 5.4; paper: 10us)",
        allowed: TIME,
        get: |p| text::format_duration(p.fine_interval_ns),
        set: |p, v| time(&mut p.fine_interval_ns, v),
    },
    Parameter {
        key: "idle_threshold",
        meaning: "load below which a worker core is emptied (4.4.1, 5.4; paper: 40%, half of healthy_threshold)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.idle_ppm),
        set: |p, v| put(&mut p.idle_ppm, text::percent(v)),
    },
    Parameter {
        key: "healthy_threshold",
        meaning: "load up to which a core gets threads (4.4.1, 5.4; paper: 80%)",
        allowed: PERCENT,
        get: |p| text::format_percent(p.healthy_ppm),
        set: |p, v| put(&mut p.healthy_ppm, text::percent(v)),
    },
    Parameter {
        key: "wake_within",
        meaning: "longest wake-up time of a sleeping core; the deepest state within it is used (4.3; paper: the shallowest)",
        allowed: "a time such as 3us, or shallowest, or deepest",
        get: |p| wake_within_text(p.wake_within_ns),
        set: |p, v| put(&mut p.wake_within_ns, wake_within(v)),
    },
    Parameter {
        key: "sleep",
        meaning: "how an emptied core sleeps: by wake_within (goal), in a wait instruction (monitor), or in the kernel \
                  (software: Figure 11(a) before +NI)",
        allowed: "goal, monitor or software",
        get: |p| p.sleep.name().to_owned(),
        set: |p, v| put(&mut p.sleep, Sleep::read(v)),
    },
    Parameter {
        key: "detect",
        meaning: "how bursts are detected: by requests in network queues (4.4.2), or by the load of cores (load: Figure 11(a) \
                  before +DQ)",
        allowed: "queues or load",
        get: |p| if p.detect == Detect::Queues { "queues" } else { "load" }.to_owned(),
        set: |p, v| put(&mut p.detect, detect(v)),
    },
    Parameter {
        key: "siblings",
        meaning: "siblings are emptied and filled in pairs (4.4.1, D3); false: Figure 11(b) before +SS",
        allowed: SWITCH,
        get: |p| p.siblings.to_string(),
        set: |p, v| put(&mut p.siblings, v.parse().ok()),
    },
    Parameter {
        key: "main_takes_active",
        meaning: "the main core takes active threads of an idle worker that no other worker can take \
                  (4.4.1, 5.3: last resort); false keeps the last worker awake",
        allowed: SWITCH,
        get: |p| p.main_takes_active.to_string(),
        set: |p, v| put(&mut p.main_takes_active, v.parse().ok()),
    },
    Parameter {
        key: "main_gives_active",
        meaning: "the main core gives its active threads to workers at the coarse interval, and wakes one if none can take them (5.3: \
                  worker cores first)",
        allowed: SWITCH,
        get: |p| p.main_gives_active.to_string(),
        set: |p, v| put(&mut p.main_gives_active, v.parse().ok()),
    },
    Parameter {
        key: "sleep_at_once",
        meaning: "a worker sleeps as soon as its last thread has left for a burst (4.3); false: at the coarse interval",
        allowed: SWITCH,
        get: |p| p.sleep_at_once.to_string(),
        set: |p, v| put(&mut p.sleep_at_once, v.parse().ok()),
    },
    Parameter {
        key: "server_sleep",
        meaning: "the main core also waits in the kernel while there are no requests (not in the paper)",
        allowed: SWITCH,
        get: |p| p.server_sleep.to_string(),
        set: |p, v| put(&mut p.server_sleep, v.parse().ok()),
    },
    Parameter {
        key: "worker_rest",
        meaning: "with server_sleep: time after its last request until a worker waits in the kernel (not in the paper)",
        allowed: "a time from 1us to 2ms",
        get: |p| text::format_duration(p.worker_rest_ns),
        set: |p, v| {
            put(&mut p.worker_rest_ns, text::duration(v).filter(|ns| (1_000..=DEFAULT_IDLE_TIMEOUT_NS).contains(ns)))
        },
    },
    Parameter {
        key: "guards",
        meaning: "sets all parameters below, before single ones: the paper's rule as printed, or the recommended set",
        allowed: "printed or recommended",
        get: |p| p.guards().to_owned(),
        set: |p, v| p.set_guards(v),
    },
    Parameter {
        key: "z",
        meaning: "distance of a count above the mean (4.4.2; paper: 1.96, 95 % confidence)",
        allowed: "a number from 0 to 100",
        get: |p| p.z.to_string(),
        set: |p, v| put(&mut p.z, text::within(v, 0.0, 100.0)),
    },
    Parameter {
        key: "window",
        meaning: "ticks in the mean and the spread (4.4.2; not printed)",
        allowed: "a whole number from 2 to 1024",
        get: |p| p.window.to_string(),
        set: |p, v| put(&mut p.window, text::within(v, 2, 1_024)),
    },
    Parameter {
        key: "spread",
        meaning: "unit of z: standard errors of the forecast of a count (paper, 4.4.2) or of the mean, or standard deviations of counts",
        allowed: "forecast, error or deviation",
        get: |p| spread_text(p.spread).to_owned(),
        set: |p, v| put(&mut p.spread, spread(v)),
    },
    Parameter {
        key: "min_requests",
        meaning: "guard: fewest requests of a surge, in one fine interval or in the averaged ones (paper: none)",
        allowed: "a whole number from 0 to 4096",
        get: |p| p.min_requests.to_string(),
        set: |p, v| put(&mut p.min_requests, text::within(v, 0, 4_096)),
    },
    Parameter {
        key: "confirm",
        meaning: "guard: k/m requires counts above the bound in k of the last m ticks (paper: 1/1)",
        allowed: "k/m with k from 1 to m and m from 1 to 64, for example 2/3",
        get: |p| format!("{}/{}", p.confirm.times, p.confirm.ticks),
        set: |p, v| put(&mut p.confirm, confirm(v)),
    },
    Parameter {
        key: "average",
        meaning: "guard: fine intervals in the mean that is tested instead of the last count; a late tick counts as several \
                  (paper: 1)",
        allowed: "a whole number from 1 to 1024",
        get: |p| p.average.to_string(),
        set: |p, v| put(&mut p.average, text::within(v, 1, 1_024)),
    },
    Parameter {
        key: "min_samples",
        meaning: "guard: fewest ticks in the window for a surge (paper: 2, needed for an error)",
        allowed: "a whole number from 2 to 1024, at most window",
        get: |p| p.min_samples.to_string(),
        set: |p, v| put(&mut p.min_samples, text::within(v, 2, 1_024)),
    },
    Parameter {
        key: "exempt_alone",
        meaning: "a surging thread that has a worker core to itself stays there (4.4.2: no other core has more cycles for it)",
        allowed: SWITCH,
        get: |p| p.exempt_alone.to_string(),
        set: |p, v| put(&mut p.exempt_alone, v.parse().ok()),
    },
    Parameter {
        key: "reuse_awake",
        meaning: "guard: a surging thread gets a worker core that is awake and empty before one is woken \
                  (paper: sleeping cores only)",
        allowed: SWITCH,
        get: |p| p.reuse_awake.to_string(),
        set: |p, v| put(&mut p.reuse_awake, v.parse().ok()),
    },
    Parameter {
        key: "relieve",
        meaning: "guard: the coarse interval, or a check, moves threads from a core above healthy_threshold, for load that rose too \
                  slowly to be a burst (paper: bursts only)",
        allowed: SWITCH,
        get: |p| p.relieve.to_string(),
        set: |p, v| put(&mut p.relieve, v.parse().ok()),
    },
    Parameter {
        key: "after_sleep",
        meaning: "guard: after the whole server slept the window is empty, or full of zeros",
        allowed: "empty or zeros",
        get: |p| if p.after_sleep == AfterSleep::Empty { "empty" } else { "zeros" }.to_owned(),
        set: |p, v| put(&mut p.after_sleep, after_sleep(v)),
    },
    Parameter {
        key: "give_back_interval",
        meaning: "guard: time between two checks that replace the coarse interval and give cores back soon after a burst, by loads \
                  averaged over about eight of them (paper: never)",
        allowed: "a time such as 2ms, or never",
        get: |p| never_text(p.give_back_ns),
        set: |p, v| put(&mut p.give_back_ns, never(v)),
    },
];

fn never(value: &str) -> Option<u64> {
    if value == "never" { Some(u64::MAX) } else { text::duration(value).filter(|&ns| ns > 0) }
}

fn never_text(ns: u64) -> String {
    if ns == u64::MAX { "never".to_owned() } else { text::format_duration(ns) }
}

fn wake_within(value: &str) -> Option<u64> {
    match value {
        "shallowest" => Some(0),
        "deepest" => Some(u64::MAX),
        _ => text::duration(value),
    }
}

fn wake_within_text(ns: u64) -> String {
    match ns {
        0 => "shallowest".to_owned(),
        u64::MAX => "deepest".to_owned(),
        _ => text::format_duration(ns),
    }
}

fn detect(value: &str) -> Option<Detect> {
    match value {
        "queues" => Some(Detect::Queues),
        "load" => Some(Detect::Load),
        _ => None,
    }
}

const fn spread_text(spread: Spread) -> &'static str {
    match spread {
        Spread::Forecast => "forecast",
        Spread::Error => "error",
        Spread::Deviation => "deviation",
    }
}

fn spread(value: &str) -> Option<Spread> {
    match value {
        "forecast" => Some(Spread::Forecast),
        "error" => Some(Spread::Error),
        "deviation" => Some(Spread::Deviation),
        _ => None,
    }
}

fn after_sleep(value: &str) -> Option<AfterSleep> {
    match value {
        "empty" => Some(AfterSleep::Empty),
        "zeros" => Some(AfterSleep::Zeros),
        _ => None,
    }
}

fn confirm(value: &str) -> Option<Confirm> {
    let (times, ticks) = value.split_once('/')?;
    let ticks = text::within(ticks.trim(), 1, 64)?;
    let times = text::within(times.trim(), 1, ticks)?;
    Some(Confirm { times, ticks })
}
