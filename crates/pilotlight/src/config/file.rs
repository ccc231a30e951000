//! A configuration file (TOML) becomes a draft.

use toml::de::DeTable;

use super::draft::{
    BackgroundDraft, ClassDraft, Draft, GoalsDraft, HostDraft, LimitsDraft, NamespaceDraft, PolicyDraft, ReferralDraft,
    SubsystemDraft,
};
use super::problem::{Origin, Problem};
use super::section::{Problems, Section};

/// Reads the text of a file. What could be read comes back even where there were problems, so that the checks that
/// follow can name theirs as well; a file that is not TOML yields nothing.
pub(crate) fn read(text: &str) -> (Draft, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return (Draft::default(), errors.iter().map(syntax).collect());
    }
    let problems = Problems::default();
    let draft = server(&Section::root(&table, &problems));
    (draft, problems.into_inner())
}

/// A place at which the file is not TOML.
fn syntax(error: &toml::de::Error) -> Problem {
    let at = Origin::File { key: String::new(), span: error.span().unwrap_or(0..0) };
    Problem::error(&at, format!("not TOML: {}", error.message().replace('\n', "; ")))
}

fn server(root: &Section<'_>) -> Draft {
    let mut draft = Draft {
        subsystems: root.sections("subsystem").iter().map(subsystem).collect(),
        hosts: root.sections("host").iter().map(host).collect(),
        classes: root.sections("class").iter().map(class).collect(),
        limits: root.section("limits").map(|section| limits(&section)).unwrap_or_default(),
        background: root.section("background").map(|section| background(&section)).unwrap_or_default(),
        policy: root.section("policy").map(|section| policy(&section)).unwrap_or_default(),
        goals: root.section("goals").map(|section| goals(&section)).unwrap_or_default(),
        ..Draft::default()
    };
    if let Some(section) = root.section("admin") {
        draft.admin_socket = section.text("socket");
        draft.state_file = section.text("state");
        draft.read_group = section.text("read_group");
    }
    if let Some(section) = root.section("metrics") {
        draft.metrics = section.text("listen");
    }
    if let Some(section) = root.section("discovery") {
        draft.mdns = section.switch("mdns").unwrap_or(false);
        draft.referrals = section.sections("referral").iter().map(referral).collect();
    }
    if let Some(section) = root.section("log") {
        draft.log_format = section.text("format");
    }
    if let Some(section) = root.section("page") {
        draft.page.listen = section.text("listen");
        draft.page.hosts = section.texts("hosts");
        draft.page.token_file = section.text("token_file");
    }
    if let Some(section) = root.section("server") {
        draft.listen = section.texts("listen");
        draft.advertise = section.text("advertise");
        draft.cores = section.cores("cores");
        draft.main_core = section.number("main_core");
        draft.reactors = section.number("reactors");
        draft.io_threads = section.number("io_threads");
        draft.sleep_after = section.text("sleep_after");
        draft.energy_shares = section.text("energy_shares");
        draft.hotplug = section.switch("hotplug").unwrap_or(false);
        draft.power_states = section.switch("power_states").unwrap_or(false);
        draft.sensor = section.text("sensor");
    }
    draft
}

fn referral(section: &Section<'_>) -> ReferralDraft {
    ReferralDraft { at: section.at(), address: section.text("address") }
}

fn policy(section: &Section<'_>) -> PolicyDraft {
    PolicyDraft { at: section.at(), name: section.text("name"), settings: section.others() }
}

fn goals(section: &Section<'_>) -> GoalsDraft {
    GoalsDraft {
        budget: section.plain("budget"),
        domain: section.text("domain"),
        schedule: section.text("schedule"),
        profile: section.text("profile"),
        tolerance: section.plain("tolerance"),
    }
}

fn limits(section: &Section<'_>) -> LimitsDraft {
    LimitsDraft {
        max_memory: section.quantity("max_memory"),
        buffer_memory: section.quantity("buffer_memory"),
        queue_memory: section.quantity("queue_memory"),
        max_connections: section.number("max_connections"),
        max_host_queues: section.number("max_host_queues"),
        max_io_queues: section.number("max_io_queues"),
        max_queue_depth: section.number("max_queue_depth"),
        icreq_timeout: section.quantity("icreq_timeout"),
        drain_timeout: section.quantity("drain_timeout"),
    }
}

fn subsystem(section: &Section<'_>) -> SubsystemDraft {
    SubsystemDraft {
        at: section.at(),
        nqn: section.text("nqn"),
        serial: section.text("serial"),
        allowed_hosts: section.texts("allowed_hosts"),
        controller_ids: section.text("controller_ids"),
        namespaces: section.sections("namespace").iter().map(namespace).collect(),
    }
}

fn namespace(section: &Section<'_>) -> NamespaceDraft {
    NamespaceDraft {
        at: section.at(),
        nsid: section.number("nsid"),
        backend: section.text("backend"),
        block_size: section.number("block_size"),
        uuid: section.text("uuid"),
        hosts: section.texts("hosts"),
        shrink: section.switch("shrink").unwrap_or(false),
        max_bytes_per_s: section.text("max_bytes_per_s"),
        priority: section.number("priority"),
        tolerance: section.plain("tolerance"),
        checksums: section.switch("checksums").unwrap_or(false),
        checksums_file: section.text("checksums_file"),
        trim: section.text("trim"),
    }
}

fn background(section: &Section<'_>) -> BackgroundDraft {
    BackgroundDraft {
        scrub: section.text("scrub"),
        scrub_rate: section.text("scrub_rate"),
        scrub_days: section.number("scrub_days"),
        trim_rate: section.text("trim_rate"),
    }
}

fn host(section: &Section<'_>) -> HostDraft {
    HostDraft {
        at: section.at(),
        nqn: section.text("nqn"),
        max_bytes_per_s: section.text("max_bytes_per_s"),
        priority: section.number("priority"),
    }
}

fn class(section: &Section<'_>) -> ClassDraft {
    ClassDraft {
        at: section.at(),
        priority: section.number("priority"),
        min_bytes_per_s: section.text("min_bytes_per_s"),
    }
}
