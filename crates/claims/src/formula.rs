//! Formulas: `100 * [sandman-t1-idle-cpu-w] / [sandman-t1-idle-system-w]`.
//!
//! Numbers, `+ - * /`, parentheses, `[id]` for the printed value of a claim, and `{policy.parameter}` for a default: percentages as printed,
//! times in seconds.

use super::error::SyntaxError;

/// An invalid formula.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("formula {formula:?}: {problem}")]
pub struct FormulaError {
    /// The formula.
    pub formula: String,
    /// The problem.
    pub problem: SyntaxError,
}

/// A name in a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// A claim, by its id.
    Claim(&'a str),
    /// A parameter, as `policy.parameter`.
    Parameter(&'a str),
}

/// The value of a formula; `look_up` gives the value of a name.
///
/// # Errors
/// On a syntax error, or for a name without a number.
pub fn value(formula: &str, look_up: &dyn Fn(Name<'_>) -> Option<f64>) -> Result<f64, FormulaError> {
    let mut reader = Reader { rest: formula, look_up };
    let problem = match reader.sum() {
        Ok(value) if reader.rest.trim().is_empty() && value.is_finite() => return Ok(value),
        Ok(value) if reader.rest.trim().is_empty() => SyntaxError::NotFinite(value),
        Ok(_) => SyntaxError::Trailing(reader.rest.trim().to_owned()),
        Err(problem) => problem,
    };
    Err(FormulaError { formula: formula.to_owned(), problem })
}

struct Reader<'a> {
    rest: &'a str,
    look_up: &'a dyn Fn(Name<'_>) -> Option<f64>,
}

impl<'a> Reader<'a> {
    fn sum(&mut self) -> Result<f64, SyntaxError> {
        let mut value = self.product()?;
        loop {
            if self.take('+') {
                value += self.product()?;
            } else if self.take('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, SyntaxError> {
        let mut value = self.atom()?;
        loop {
            if self.take('*') {
                value *= self.atom()?;
            } else if self.take('/') {
                value /= self.atom()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self) -> Result<f64, SyntaxError> {
        if self.take('(') {
            let value = self.sum()?;
            return if self.take(')') { Ok(value) } else { Err(SyntaxError::Unclosed) };
        }
        if self.take('[') {
            return self.name(']', Name::Claim);
        }
        if self.take('{') {
            return self.name('}', Name::Parameter);
        }
        let number = self.until(|c| !(c.is_ascii_digit() || c == '.' || c == '_'));
        number.replace('_', "").parse().map_err(|_| SyntaxError::Expected("a number, [id] or (", self.rest.to_owned()))
    }

    fn name(&mut self, end: char, name: impl Fn(&'a str) -> Name<'a>) -> Result<f64, SyntaxError> {
        let text = self.until(|c| c == end);
        match (self.take(end), (self.look_up)(name(text))) {
            (false, _) => Err(SyntaxError::UnclosedName(text.to_owned(), end)),
            (true, None) => Err(SyntaxError::Unknown(text.to_owned())),
            (true, Some(value)) => Ok(value),
        }
    }

    /// Takes this character, if it comes next.
    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> &'a str {
        let text = self.rest.trim_start();
        let (taken, rest) = text.split_at(text.find(end).unwrap_or(text.len()));
        self.rest = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(formula: &str) -> Result<f64, FormulaError> {
        let look_up = |name: Name<'_>| match name {
            Name::Claim("a-b") => Some(4.0),
            Name::Parameter("sandman.z") => Some(1.96),
            _ => None,
        };
        value(formula, &look_up)
    }

    #[test]
    fn arithmetic() {
        for (formula, expected) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("100 * [a-b] / (10_000 + [a-b])", 400.0 / 10_004.0),
            ("2 * {sandman.z}", 3.92),
            ("8 - 4 - 2", 2.0),
            ("8 / 4 / 2", 1.0),
        ] {
            assert_eq!(evaluate(formula), Ok(expected), "{formula}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (formula, part) in [
            ("1 +", "a number, [id] or ( was expected"),
            ("[sandman.z]", "sandman.z is nothing that has a number"),
            ("{a-b}", "a-b is nothing"),
            ("[a-b", "has no ]"),
            ("(1", "a ) is missing"),
            ("1 1", "cannot follow"),
            ("1 / 0", "its value is inf"),
        ] {
            let error = evaluate(formula).unwrap_err().to_string();
            assert!(error.contains(part), "{formula}: {error}");
        }
    }
}
