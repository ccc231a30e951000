//! Quantities with units: `2.1GHz`, `15W`, `500MB/s`, parsed to integers; finer values are refused.

use pilotlight_input::quantity::{self, BYTES, POWERS, Units};

use super::Reason;

const FREQUENCIES: &Units = &[("GHz", 1_000_000), ("MHz", 1_000), ("kHz", 1)];
const TIMES: &Units = &[("us", 1), ("ms", 1_000), ("s", 1_000_000)];
const SHARES: &Units = &[("%", 10)];

/// A frequency in kHz.
pub(super) fn khz(text: &str) -> Result<u64, Reason> {
    above_zero(text, FREQUENCIES, "a frequency such as 2.1GHz (kHz, MHz, GHz)")
}

/// A power in microwatts.
pub(super) fn power_uw(text: &str) -> Result<u64, Reason> {
    above_zero(text, POWERS, "a power such as 15W (uW, mW, W, kW)")
}

/// A duration in microseconds.
pub(super) fn microseconds(text: &str) -> Result<u64, Reason> {
    above_zero(text, TIMES, "a time such as 10ms (us, ms, s)")
}

/// A size in bytes.
pub(super) fn bytes(text: &str) -> Result<u64, Reason> {
    above_zero(text, BYTES, "a size such as 2GiB (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)")
}

/// A rate in bytes per second.
pub(super) fn bytes_per_s(text: &str) -> Result<u64, Reason> {
    let what = "a rate such as 500MB/s (a size, and /s)";
    above_zero(text.trim().strip_suffix("/s").ok_or_else(|| wrong(text, what))?, BYTES, what)
}

/// A share in thousandths.
pub(super) fn permille(text: &str) -> Result<u64, Reason> {
    above_zero(text, SHARES, "a share of one CPU such as 150%")
}

fn above_zero(text: &str, units: &Units, what: &'static str) -> Result<u64, Reason> {
    quantity::parse(text, units).ok().filter(|&value| value > 0).ok_or_else(|| wrong(text, what))
}

fn wrong(text: &str, what: &'static str) -> Reason {
    Reason::Not(text.to_owned(), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_whole_numbers() {
        assert_eq!(khz("2.1GHz").unwrap(), 2_100_000);
        assert_eq!(khz("800 MHz").unwrap(), 800_000);
        assert_eq!(power_uw("15W").unwrap(), 15_000_000);
        assert_eq!(power_uw("12.5W").unwrap(), 12_500_000);
        assert_eq!(microseconds("1.5ms").unwrap(), 1_500);
        assert_eq!(bytes("2GiB").unwrap(), 2 << 30);
        assert_eq!(bytes("0.5KiB").unwrap(), 512);
        assert_eq!(bytes_per_s("500MB/s").unwrap(), 500_000_000);
        assert_eq!(permille("150%").unwrap(), 1_500);
        assert_eq!(permille("0.5%").unwrap(), 5);
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in
            ["", "2.1", "GHz", "2.1Ghz", "-1GHz", "0GHz", "1e3GHz", "1.2.3GHz", "0.0000001kHz", "99999999999999999GHz"]
        {
            assert!(khz(text).is_err(), "{text}");
        }
        assert!(bytes_per_s("500MB").is_err() && bytes("500MB/s").is_err());
        assert_eq!(power_uw("15").unwrap_err().to_string(), "`15` is not a power such as 15W (uW, mW, W, kW)");
    }
}
