//! Iterator over the requests of a trace.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::blkparse::BlkparseAction;
use super::fields::{LineParser, Raw};
use super::foreign::Foreign;
use super::format::{Format, is_binary};
use super::lines::{BYTE_ORDER_MARK, Lines};
use super::order::Order;
use super::source::{Input, Position, Source};
use super::{csv, foreign, vscsi};
use crate::request::{Malformed, Reason, Request};

/// Options of the reader.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format; detected if `None`.
    pub format: Option<Format>,
    /// Size of the sorting window in requests; see [`super`].
    pub window: usize,
    /// The lines of `blkparse` that are used.
    pub blkparse_action: BlkparseAction,
    /// Unit of the timestamps in nanoseconds, a power of ten up to a second; that of the format if `None`.
    pub time_unit_ns: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { format: None, window: 1024, blkparse_action: BlkparseAction::default(), time_unit_ns: None }
    }
}

/// Error of opening a trace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be read.
    #[error("cannot read the trace {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is empty.
    #[error("the trace {0} is empty")]
    Empty(PathBuf),
    /// It is of a kind that is not read.
    #[error("{path} is {what}, which is not read; convert it: {}", remedy.replace("{}", &path.display().to_string()))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its kind.
        what: &'static str,
        /// The command that converts it; `{}` stands for its name.
        remedy: &'static str,
    },
    /// An ambiguous or incomplete CSV heading.
    #[error("the heading of {path} {reason}")]
    Heading {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: Reason,
    },
    /// It was read without a request.
    #[error("the trace {path} has no request as {format}: {why}")]
    NoRequest {
        /// The file.
        path: PathBuf,
        /// The configured or detected format.
        format: Format,
        /// What it has instead.
        why: String,
    },
    /// No format fits its beginning, or several do.
    #[error(
        "cannot detect the format of {0} from its first lines; set it with --format: \
         alibaba, tencent, msr, mqsim, vscsi, blkparse, spc, systor, fio or csv (csv needs a heading such as time_us,op,offset,bytes)"
    )]
    Unknown(PathBuf),
}

/// Source of requests.
enum Feed {
    Text(Lines<Input>, Box<dyn LineParser>),
    Binary(vscsi::Binary<Input>),
}

impl Feed {
    fn next(&mut self) -> Option<Result<Raw, Malformed>> {
        let (lines, parser) = match self {
            Self::Binary(records) => return records.next(),
            Self::Text(lines, parser) => (lines, parser),
        };
        loop {
            let parsed = match lines.next()? {
                Ok(line) => parser.parse(line),
                Err(malformed) => return Some(Err(malformed)),
            };
            match parsed {
                Ok(None) => {}
                Ok(Some(raw)) => return Some(Ok(raw)),
                Err(reason) => return Some(Err(lines.malformed(reason))),
            }
        }
    }
}

/// Requests of a trace in the order of time, and errors of malformed lines.
pub struct Reader {
    feed: Feed,
    order: Order,
    format: Format,
    position: Position,
    first_ns: Option<u64>,
    ended: bool,
    path: PathBuf,
    malformed: u64,
    first_malformed: Option<Malformed>,
}

impl Reader {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    /// It cannot be read, or its format cannot be detected.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        let source = Source::open(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
        Self::start(source, path, options)
    }

    /// Reads from a stream.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn new(input: impl Read + Send + 'static, options: &Options) -> Result<Self, OpenError> {
        let path = Path::new("(stream)");
        let source = Source::new(input, None).map_err(|source| OpenError::Io { path: path.into(), source })?;
        Self::start(source, path, options)
    }

    fn start(source: Source, path: &Path, options: &Options) -> Result<Self, OpenError> {
        let Source { mut beginning, input, position } = source;
        if beginning.starts_with(BYTE_ORDER_MARK) {
            beginning.drain(..BYTE_ORDER_MARK.len());
        }
        if beginning.is_empty() {
            return Err(OpenError::Empty(path.into()));
        }
        let foreign = |kind: Foreign| OpenError::Foreign { path: path.into(), what: kind.what, remedy: kind.remedy };
        if let Some(kind) = foreign::of_bytes(&beginning) {
            return Err(foreign(kind));
        }
        let format = options.format.or_else(|| Format::detect(&beginning, options));
        if let Some(kind) = foreign::of_lines(&beginning).filter(|_| format.is_none()) {
            return Err(foreign(kind));
        }
        if format.is_none_or(|format| format == Format::Csv)
            && let Some(reason) = csv::heading_error(&beginning, options.time_unit_ns)
            && (format.is_some() || csv::is_almost_heading(&reason))
        {
            return Err(OpenError::Heading { path: path.into(), reason });
        }
        let format = format.ok_or_else(|| OpenError::Unknown(path.into()))?;
        let layout = vscsi::Layout::detect(&beginning).filter(|_| format == Format::Vscsi && is_binary(&beginning));
        let feed = match layout {
            Some(layout) => Feed::Binary(vscsi::Binary::new(input, layout, options.time_unit_ns)),
            None => Feed::Text(Lines::new(input), format.parser(options)),
        };
        Ok(Self {
            feed,
            order: Order::new(options.window),
            format,
            position,
            first_ns: None,
            ended: false,
            path: path.into(),
            malformed: 0,
            first_malformed: None,
        })
    }

    /// The configured or detected format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Progress in the file.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position.clone()
    }

    /// Requests so far that were too late for the window and got the time of their predecessor.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.order.late()
    }

    /// Name of a volume, if the trace has names.
    #[must_use]
    pub fn volume_name(&self, volume: u32) -> Option<&str> {
        match &self.feed {
            Feed::Text(_, parser) => parser.volume_name(volume),
            Feed::Binary(_) => None,
        }
    }

    /// The error of a trace that was read to its end without a request.
    #[must_use]
    pub fn no_request(&self) -> Option<OpenError> {
        if !self.ended || self.first_ns.is_some() {
            return None;
        }
        let instead = match &self.feed {
            Feed::Text(_, parser) => parser.empty_reason(),
            Feed::Binary(_) => None,
        };
        let why = match (instead, &self.first_malformed) {
            (Some(instead), _) => instead.to_owned(),
            (None, Some(first)) => format!("malformed lines: {}, the first: {first}", self.malformed),
            (None, None) => "no line is a read or a write".to_owned(),
        };
        Some(OpenError::NoRequest { path: self.path.clone(), format: self.format, why })
    }

    fn pop(&mut self) -> Option<Request> {
        let raw = self.order.pop()?;
        let first_ns = *self.first_ns.get_or_insert(raw.clock_ns);
        Some(raw.into_request(first_ns))
    }
}

impl Iterator for Reader {
    type Item = Result<Request, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended && !self.order.is_full() {
            match self.feed.next() {
                Some(Ok(raw)) => self.order.push(raw),
                Some(Err(malformed)) => {
                    self.ended = malformed.is_fatal();
                    self.malformed += 1;
                    self.first_malformed.get_or_insert_with(|| malformed.clone());
                    return Some(Err(malformed));
                }
                None => self.ended = true,
            }
        }
        self.pop().map(Ok)
    }
}
