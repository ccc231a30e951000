//! Efficiency: formulas of the thesis (section 4.3.1) with its errata:
//!
//! - *per joule*: operations or bytes per second over mean watts.
//! - *energy-delay product*: energy of one operation times its latency, in J s. The tool of the thesis computes mean power times latency in
//!   W s; that is the *power-delay product* here, for comparisons.

use super::NoValue;

/// Work per joule from a rate and mean power.
///
/// # Errors
/// If the power is not above zero.
pub fn per_joule(per_s: f64, watts: f64) -> Result<f64, NoValue> {
    positive(watts)?;
    Ok(per_s / watts)
}

/// Energy of one operation times its latency, in J s.
///
/// # Errors
/// If power or rate is not above zero.
pub fn energy_delay_js(watts: f64, per_s: f64, latency_ns: f64) -> Result<f64, NoValue> {
    positive(watts)?;
    if per_s > 0.0 { Ok(watts / per_s * latency_ns / 1e9) } else { Err(NoValue::NoOperation) }
}

/// Mean power times latency, in W s: the energy-delay product of the tool of the thesis.
///
/// # Errors
/// If the power is not above zero.
pub fn power_delay_ws(watts: f64, latency_ns: f64) -> Result<f64, NoValue> {
    positive(watts)?;
    Ok(watts * latency_ns / 1e9)
}

fn positive(watts: f64) -> Result<(), NoValue> {
    if watts > 0.0 { Ok(()) } else { Err(NoValue::NoPower(watts)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match_a_manual_calculation() {
        // 100,000 I/Os of 4 KiB a second at 5 W: 20,000 I/Os and 81.92 MB a joule
        assert_eq!(per_joule(100_000.0, 5.0), Ok(20_000.0));
        assert_eq!(per_joule(100_000.0 * 4096.0, 5.0), Ok(81_920_000.0));
        // 50 uJ each, for 80 us: 4e-9 J s; and 5 W for 80 us are 4e-4 W s
        assert!((energy_delay_js(5.0, 100_000.0, 80_000.0).unwrap() - 4e-9).abs() < 1e-21);
        assert!((power_delay_ws(5.0, 80_000.0).unwrap() - 4e-4).abs() < 1e-15);
    }

    #[test]
    fn power_and_rate_must_be_above_zero() {
        assert!(per_joule(1.0, 0.0).is_err());
        assert!(per_joule(1.0, -0.5).unwrap_err().to_string().contains("-0.500 W"));
        assert!(energy_delay_js(5.0, 0.0, 1.0).is_err());
        assert!(power_delay_ws(0.0, 1.0).is_err());
    }
}
