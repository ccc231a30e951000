//! Sizes and times with a suitable unit.

/// Bytes with three digits.
pub(super) fn size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fitting = units.iter().find(|(_, shift)| bytes >= 1 << shift);
    fitting
        .map_or(format!("{bytes} B"), |(unit, shift)| format!("{:.2} {unit}", bytes as f64 / (1_u64 << shift) as f64))
}

/// A time in a suitable unit.
pub(super) fn time(ns: u64) -> String {
    let units =
        [("h", 3_600_000_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let fits = |unit_ns: u64| ns >= 2 * unit_ns || ns > 0 && ns.is_multiple_of(unit_ns);
    let fitting = units.iter().find(|(_, unit_ns)| fits(*unit_ns));
    fitting.map_or(format!("{ns} ns"), |(unit, unit_ns)| {
        let count = ns as f64 / *unit_ns as f64;
        let digits = if ns.is_multiple_of(*unit_ns) { 0 } else { 2 };
        format!("{count:.digits$} {unit}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!((size(512), size(4096), size(3 << 29)), ("512 B".into(), "4.00 KiB".into(), "1.50 GiB".into()));
        assert_eq!((time(0), time(1000), time(1_800_000_000_000)), ("0 ns".into(), "1 us".into(), "30 min".into()));
        assert_eq!((time(136_489_000), time(60_055_212_000)), ("136.49 ms".into(), "60.06 s".into()));
    }
}
