//! Files that are not read, and the command that converts each: other compressions, archives, encodings, binary traces and formats of
//! lines.
//!
//! Sources of the formats of lines: README of SNIA IOTTA trace 391 (block-io/411, FIU); the DiskSim 4 manual, ASCII traces; biosnoop(8)
//! of bcc. A time in DiskSim has decimals, by which it differs from `mqsim`.

use super::fields::{is_remark, split_blanks, whole};

/// What a file is, and the command that converts it; `{}` stands for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) what: &'static str,
    pub(super) remedy: &'static str,
}

/// Offset and bytes by which a kind is recognized.
const MAGIC: [(usize, &[u8], &str, &str); 12] = [
    (257, b"ustar", "a tar archive", "tar -xOf {} | pilotlab trace -"),
    (0, b"\xfd7zXZ\0", "compressed by xz", "xz -dk {}"),
    (0, b"BZh", "compressed by bzip2", "bzip2 -dk {}"),
    (0, b"\x04\x22\x4d\x18", "compressed by lz4", "lz4 -dk {}"),
    (0, b"PK\x03\x04", "a zip archive", "unzip -p {} > {}.txt"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x -so {} > {}.txt"),
    (0, b"PAR1", "a Parquet file", "duckdb -csv -c \"from '{}'\" > {}.csv"),
    (0, b"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8 {} > {}.txt"),
    (0, b"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8 {} > {}.txt"),
    // BLK_IO_TRACE_MAGIC and version 7 (linux/blktrace_api.h), in either byte order
    (0, b"\x07tae", "binary output of blktrace", "blkparse -i {} -o {}.txt"),
    (0, b"eat\x07", "binary output of blktrace", "blkparse -i {} -o {}.txt"),
    (0, b"\x17\x08Dtracing", "binary output of trace-cmd", "trace-cmd report, or record with blktrace and blkparse"),
];

/// A kind of file, whatever the format that the user names.
pub(super) fn of_bytes(beginning: &[u8]) -> Option<Foreign> {
    let begins = |at: usize, magic: &[u8]| beginning.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let found = MAGIC.iter().find(|(at, magic, ..)| begins(*at, magic));
    found.map(|&(.., what, remedy)| Foreign { what, remedy }).or_else(|| utf16(beginning))
}

/// UTF-16 without a byte order mark: every second byte of the first ones is 0, all others are text.
fn utf16(beginning: &[u8]) -> Option<Foreign> {
    let first = beginning.get(..16)?;
    let is_text = |byte: u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let all = |zero: usize| first.chunks(2).all(|pair| pair[zero] == 0 && is_text(pair[1 - zero]));
    let remedy = match (all(1), all(0)) {
        (true, _) => "iconv -f UTF-16LE -t UTF-8 {} > {}.txt",
        (_, true) => "iconv -f UTF-16BE -t UTF-8 {} > {}.txt",
        _ => return None,
    };
    Some(Foreign { what: "text in UTF-16", remedy })
}

/// A format of lines, where none that is read fits.
pub(super) fn of_lines(beginning: &[u8]) -> Option<Foreign> {
    beginning.split(|&b| b == b'\n').filter(|line| !is_remark(line)).take(10).find_map(of_line)
}

fn of_line(line: &[u8]) -> Option<Foreign> {
    let all: Vec<&[u8]> = split_blanks(line).collect();
    let is_whole = |text: &[u8]| whole(text, "").is_ok();
    let foreign = |what, remedy| Some(Foreign { what, remedy });
    match all[..] {
        [at, device, lba, sectors, flags]
            if at.contains(&b'.') && [device, lba, sectors, flags].into_iter().all(is_whole) =>
        {
            foreign("an ASCII trace of DiskSim (times in ms)", "pilotlab trace {} --format mqsim --time-unit ms")
        }
        [at, pid, _, lba, blocks, b"R" | b"W", major, minor, _]
            if [at, pid, lba, blocks, major, minor].into_iter().all(is_whole) =>
        {
            let remedy = "awk 'BEGIN {print \"time_ns,volume,op,lba,sectors\"} \
                          {print $1 \",\" $7 \".\" $8 \",\" $6 \",\" $4 \",\" $5}' {} > {}.csv";
            foreign("a trace of FIU (ts pid process lba blocks W major minor md5)", remedy)
        }
        [b"TIME(s)", b"COMM", b"PID", b"DISK", b"T", b"SECTOR", b"BYTES", b"LAT(ms)"] => {
            let remedy = "awk 'BEGIN {print \"time_s,volume,op,lba,bytes\"} NR > 1 \
                          {print $1 \",\" $(NF-4) \",\" $(NF-3) \",\" $(NF-2) \",\" $(NF-1)}' {} > {}.csv";
            foreign("output of biosnoop", remedy)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, OpenError, Options, Reader};

    /// The error of a trace.
    fn refused(bytes: &[u8], format: Option<Format>) -> String {
        let options = Options { format, ..Options::default() };
        let error = Reader::new(std::io::Cursor::new(bytes.to_vec()), &options).err().expect("refused");
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        error.to_string()
    }

    #[test]
    fn other_files_are_named_with_a_command() {
        let utf16 = |bytes: fn(u16) -> [u8; 2]| "time_s,op,offset".encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        let marked = [b"\xff\xfe".to_vec(), utf16(u16::to_le_bytes)].concat();
        let tar = [vec![0; 257], b"ustar\0".to_vec(), vec![0; 512]].concat();
        for (bytes, expected) in [
            (b"\xfd7zXZ\0\0\x04".to_vec(), "xz -dk (stream)"),
            (b"PK\x03\x04\x14\0\0\0".to_vec(), "unzip -p (stream)"),
            (b"BZh91AY&SY".to_vec(), "bzip2 -d"),
            (b"\x04\x22\x4d\x18\x64\x40".to_vec(), "lz4 -d"),
            (b"7z\xbc\xaf\x27\x1c\0\x04".to_vec(), "7z x"),
            (b"PAR1\x15\0".to_vec(), "Parquet"),
            (tar, "tar -xOf"),
            (marked, "iconv -f UTF-16 -t UTF-8 (stream)"),
            (utf16(u16::to_le_bytes), "iconv -f UTF-16LE"),
            (utf16(u16::to_be_bytes), "iconv -f UTF-16BE"),
            (b"\x07tae\x01\0\0\0\0\0\0\0".to_vec(), "blkparse -i (stream)"),
            (b"eat\x07\0\0\0\x01".to_vec(), "blkparse -i"),
            (b"\x17\x08Dtracing6\0".to_vec(), "trace-cmd"),
        ] {
            for format in [None, Some(Format::Csv)] {
                let error = refused(&bytes, format);
                assert!(error.contains(expected), "{expected}: {error}");
            }
        }
    }

    #[test]
    fn other_formats_of_lines_are_named_with_a_command() {
        for (text, expected) in [
            ("0.000000 0 20941264 8 1\n5.0 0 8 8 0\n0.7 0 8 8 0\n", "--format mqsim --time-unit ms"),
            ("89967404 4892 syslogd 904265560 8 W 6 0 531e779d\n", "time_ns,volume,op,lba,sectors"),
            (
                "TIME(s)     COMM   PID  DISK  T SECTOR  BYTES  LAT(ms)\n0.004 jbd2 1950 sda W 13092560 4096 0.74\n",
                "NR > 1",
            ),
        ] {
            let error = refused(text.as_bytes(), None);
            assert!(error.contains(expected), "{error}");
        }
    }
}
