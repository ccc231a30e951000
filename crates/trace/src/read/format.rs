//! The formats and their detection.
//!
//! A format is detected from the content: the format whose parser accepts the most of the first lines. If none accepts any, or two
//! accept the same number, the user has to name it.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::fields::LineParser;
use super::reader::Options;
use super::{MAX_LINE, alibaba, blkparse, csv, fio, mqsim, msr, spc, systor, tencent, vscsi};

/// Lines used for detection.
const PROBED_LINES: usize = 100;

/// A format of block traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Alibaba block traces of 2020.
    Alibaba,
    /// Tencent CBS.
    Tencent,
    /// MSR Cambridge.
    Msr,
    /// MQSim and DiskSim.
    Mqsim,
    /// CloudPhysics, binary or text.
    Vscsi,
    /// Text of `blkparse`.
    Blkparse,
    /// SPC, such as the traces of UMass.
    Spc,
    /// SYSTOR '17.
    Systor,
    /// I/O logs of fio.
    Fio,
    /// Plain CSV with a heading.
    Csv,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 10] = [
        Self::Alibaba,
        Self::Tencent,
        Self::Msr,
        Self::Mqsim,
        Self::Vscsi,
        Self::Blkparse,
        Self::Spc,
        Self::Systor,
        Self::Fio,
        Self::Csv,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::Msr => "msr",
            Self::Mqsim => "mqsim",
            Self::Vscsi => "vscsi",
            Self::Blkparse => "blkparse",
            Self::Spc => "spc",
            Self::Systor => "systor",
            Self::Fio => "fio",
            Self::Csv => "csv",
        }
    }

    pub(super) fn parser(self, options: &Options) -> Box<dyn LineParser> {
        let unit_ns = options.time_unit_ns;
        match self {
            Self::Alibaba => Box::new(alibaba::Alibaba { unit_ns }),
            Self::Tencent => Box::new(tencent::Tencent { unit_ns }),
            Self::Msr => Box::new(msr::Msr::new(unit_ns)),
            Self::Mqsim => Box::new(mqsim::Mqsim { unit_ns }),
            Self::Vscsi => Box::new(vscsi::Text::new(unit_ns)),
            Self::Blkparse => Box::new(blkparse::Blkparse::new(options.blkparse_action, unit_ns)),
            Self::Spc => Box::new(spc::Spc { unit_ns }),
            Self::Systor => Box::new(systor::Systor { unit_ns }),
            Self::Fio => Box::new(fio::Fio::new(unit_ns)),
            Self::Csv => Box::new(csv::Csv::new(unit_ns)),
        }
    }

    /// Detects the format of a file with this beginning.
    pub(super) fn detect(beginning: &[u8], options: &Options) -> Option<Self> {
        if is_binary(beginning) {
            return vscsi::Layout::detect(beginning).map(|_| Self::Vscsi);
        }
        let mut scores: Vec<(Score, Self)> =
            Self::ALL.iter().filter_map(|&format| Some((score(format, beginning, options)?, format))).collect();
        scores.sort_unstable();
        // the headings of vendors have usual names of `csv` too
        if let [.., (second, _), (best, Self::Csv)] = scores[..]
            && second == best
        {
            scores.pop();
        }
        match scores[..] {
            [.., (second, _), (best, _)] if second == best => None,
            [.., (_, format)] => Some(format),
            [] => None,
        }
    }
}

/// Whether there are control characters other than white space.
pub(super) fn is_binary(beginning: &[u8]) -> bool {
    beginning.iter().any(|&b| b < b' ' && !b.is_ascii_whitespace())
}

/// Number of requests, and of other lines that are not malformed.
type Score = (usize, usize);

/// How well a format fits; `None` if it accepts no line.
fn score(format: Format, beginning: &[u8], options: &Options) -> Option<Score> {
    let mut parser = format.parser(options);
    let (mut requests, mut other) = (0, 0);
    // The last line may be truncated; it is ignored unless it is the only one.
    let mut lines: Vec<&[u8]> = beginning.split(|&b| b == b'\n').take(PROBED_LINES + 1).collect();
    if lines.len() > 1 {
        lines.pop();
    }
    // a line may end with a separator that is white space
    for line in lines.iter().filter(|line| !line.trim_ascii().is_empty() && line.len() <= MAX_LINE) {
        match parser.parse(line.strip_suffix(b"\r").unwrap_or(line)) {
            Ok(Some(_)) => requests += 1,
            Ok(None) => other += 1,
            Err(_) => {}
        }
    }
    (requests + other > 0).then_some((requests, other))
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown trace format `{0}`; known: alibaba, tencent, msr, mqsim, vscsi, blkparse, spc, systor, fio, csv")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(text: &str) -> Option<Format> {
        Format::detect(text.as_bytes(), &Options::default())
    }

    #[test]
    fn every_format_is_detected() {
        for (text, format) in [
            ("0,R,126703644672,4096,1577808000000626\n0,W,1,2,3", Format::Alibaba),
            ("device_id,opcode,offset,length,timestamp\n0,R,126703644672,4096,1577808000000626", Format::Alibaba),
            ("1538323200,12910952,128,0,1063\n", Format::Tencent),
            ("128166372003061629,usr,0,Read,7014609920,24576,41286\n", Format::Msr),
            ("938513000 4 264719034 16 0\n938828000 3 197570570 16 0\n", Format::Mqsim),
            ("1 33898 2a 512 42932745\n", Format::Vscsi),
            ("version,time,op,size,lbn\n1,33898,2a,512,42932745\n", Format::Vscsi),
            ("  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n", Format::Blkparse),
            ("  8,0    3        1     0.000000000   697  P   N [kjournald]\n", Format::Blkparse),
            ("0,20941264,8192,W,0.551706\n0,20939840,8192,r,0.554041\n", Format::Spc),
            ("Timestamp,Response,IOType,LUN,Offset,Size\n1455592022.019385000,0.001,R,0,0,512\n", Format::Systor),
            ("1455592022.019385000,0.001,,0,0,0\n", Format::Systor),
            ("fio version 2 iolog\n/dev/a add\n/dev/a read 0 512\n", Format::Fio),
            ("fio version 3 iolog\n5 /dev/a add\n6 /dev/a read 0 512\n", Format::Fio),
            ("# made by hand\ntime_s,op,offset,bytes\n1,R,0,4096\n", Format::Csv),
            ("time_s,op,offset,bytes\n", Format::Csv),
        ] {
            assert_eq!(detect(text), Some(format), "{text}");
        }
    }

    #[test]
    fn malformed_lines_do_not_hide_a_format() {
        let text = "nonsense\n938513000 4 264719034 16 0\nx\n938828000 3 197570570 16 1\n";
        assert_eq!(detect(text), Some(Format::Mqsim));
    }

    #[test]
    fn other_content_has_no_format() {
        for text in ["", "\n\n", "hello\n", "1,2,3\n", "\0\u{1}\u{2}"] {
            assert_eq!(detect(text), None, "{text:?}");
        }
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        let error = "snia".parse::<Format>().unwrap_err().to_string();
        assert!(Format::ALL.iter().all(|format| error.contains(format.name())), "{error}");
    }
}
