//! Generates a surrogate: statistics and an optional copy.

use std::path::Path;
use std::process::ExitCode;

use pilotlight_trace::{Family, Generator, Member};

use super::analyse::{Bar, Pass};
use super::render::{Report, VERSION, print};
use super::segments::SegmentsReport;
use super::{TraceArgs, Vendor, refuse};
use crate::console;
use crate::exit::Exit;

/// Maximum length of a surrogate, in hours: a year.
const MAX_HOURS: f64 = 8784.0;

pub(super) fn run(args: &TraceArgs, vendor: Vendor) -> anyhow::Result<ExitCode> {
    let wanted = &args.surrogate;
    if !(wanted.hours > 0.0 && wanted.hours <= MAX_HOURS) {
        return Ok(refuse(&format!("--hours {} is not above 0 and at most {MAX_HOURS}", wanted.hours)));
    }
    if wanted.rate_iops <= 0.0 {
        return Ok(refuse("--rate-iops 0 gives no requests"));
    }
    let span_ns = (wanted.hours * 3600e9) as u64;
    let member = member(args, vendor);
    let mut pass = Pass::new(args, Bar::of_span(span_ns))?;
    for request in Generator::new(&member, wanted.seed, span_ns) {
        pass.take(&request)?;
    }
    let (statistics, segments) = pass.finish()?;
    let report = Report {
        version: VERSION,
        file: args.output.as_deref().unwrap_or(Path::new("(not written)")),
        format: match vendor {
            Vendor::Alibaba => "surrogate of alibaba",
            Vendor::Tencent => "surrogate of tencent",
        },
        malformed_lines: 0,
        malformed_first: Vec::new(),
        late_requests: 0,
        volume_names: Vec::new(),
        statistics,
        segments: segments.map(|segments| SegmentsReport::new(args, segments)).transpose()?,
    };
    print(&report, args.json)?;
    if !args.json {
        let drawn = drawn_parameters(&member);
        console::println(format_args!("\nseed {}, drawn from what is not published: {drawn}", wanted.seed))?;
    }
    Ok(Exit::Clean.into())
}

fn member(args: &TraceArgs, vendor: Vendor) -> Member {
    let family = match vendor {
        Vendor::Alibaba => Family::alibaba(),
        Vendor::Tencent => Family::tencent(),
    };
    let wanted = &args.surrogate;
    let drawn = family.member(wanted.seed);
    let volume_bytes = wanted.volume_size.unwrap_or(drawn.volume_bytes).max(1 << 20);
    Member { mean_iops: wanted.rate_iops, volumes: wanted.volumes, volume_bytes, ..drawn }
}

fn drawn_parameters(member: &Member) -> String {
    format!(
        "volume skew {:.2}, Hurst {:.2}, modulation {:.2}, diurnal {:.2}, bursts {:.1} times as high for {:.1} s over {:.0} % \
         of the volumes, batches of {:.1}, {:.0} % of 4 KiB, tail {:.1}, {:.0} % of requests to {:.0} % of a volume",
        member.volume_skew,
        member.hurst,
        member.modulation,
        member.diurnal,
        member.burst_height,
        member.burst_length_s,
        member.burst_volumes * 100.0,
        member.batch,
        member.small * 100.0,
        member.tail,
        member.hot_traffic * 100.0,
        member.hot_space * 100.0,
    )
}
