//! TEMPORARY: stands in until branch `backends` brings the real one, then goes.
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What holds a namespace's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendSpec {
    /// Memory of `size` bytes.
    Mem {
        /// Bytes.
        size: u64,
    },
    /// A file or block device.
    File {
        /// Where it is.
        path: PathBuf,
    },
    /// Nothing: reads zeroes, forgets writes.
    Null {
        /// Bytes.
        size: u64,
    },
}

impl FromStr for BackendSpec {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').ok_or("expected mem:SIZE, file:PATH or null:SIZE")?;
        let size = || {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let unit = match &rest[digits..] {
                "" => 1,
                "MiB" => 1 << 20,
                "GiB" => 1 << 30,
                _ => return Err("bad size".to_owned()),
            };
            rest[..digits].parse::<u64>().map(|n| n * unit).map_err(|e| e.to_string())
        };
        match kind {
            "mem" => Ok(Self::Mem { size: size()? }),
            "null" => Ok(Self::Null { size: size()? }),
            "file" => Ok(Self::File { path: rest.into() }),
            _ => Err("expected mem:SIZE, file:PATH or null:SIZE".to_owned()),
        }
    }
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mem { size } => write!(f, "mem:{size}"),
            Self::File { path } => write!(f, "file:{}", path.display()),
            Self::Null { size } => write!(f, "null:{size}"),
        }
    }
}
