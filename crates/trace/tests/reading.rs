//! Reading of trace files: compressed, malformed, and two recorded traces.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use pilotlight_trace::read::OpenError;
use pilotlight_trace::{Format, Malformed, Op, Options, Reader, Reason, Request};
use proptest::prelude::{any, prop_assert, proptest};

const CSV: &str = "time_us,volume,op,offset,bytes\n10,1,R,0,4096\n12,1,W,4096,512\n11,2,R,8192,1024\n";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

fn read(bytes: &[u8]) -> Vec<Result<Request, Malformed>> {
    Reader::new(std::io::Cursor::new(bytes.to_vec()), &Options::default()).unwrap().collect()
}

fn requests(reader: Reader) -> Vec<Request> {
    reader.collect::<Result<_, _>>().unwrap()
}

#[test]
fn compression_does_not_change_the_requests() {
    let plain = read(CSV.as_bytes());
    let request = |at_ns, volume, op, offset, bytes| Ok(Request { at_ns, volume, op, offset, bytes });
    let expected = [
        request(0, 1, Op::Read, 0, 4096),
        request(1000, 2, Op::Read, 8192, 1024),
        request(2000, 1, Op::Write, 4096, 512),
    ];
    assert_eq!(plain, expected);
    let (one, two) = CSV.as_bytes().split_at(40);
    assert_eq!(read(&gzip(CSV.as_bytes())), plain);
    assert_eq!(read(&[gzip(one), gzip(two)].concat()), plain, "members");
    assert_eq!(read(&zstd::encode_all(CSV.as_bytes(), 3).unwrap()), plain);
    let frames = [zstd::encode_all(one, 1).unwrap(), zstd::encode_all(two, 1).unwrap()].concat();
    assert_eq!(read(&frames), plain, "frames");
}

#[test]
fn malformed_lines_are_numbered_and_skipped() {
    let text = format!("{CSV}13,1,R,x,4096\n\n14,1,Q,0,512\n15,1,R,0,512\n");
    let all = read(text.as_bytes());
    let wrong: Vec<String> = all.iter().filter_map(|item| item.as_ref().err().map(ToString::to_string)).collect();
    assert_eq!(
        wrong,
        [
            "line 5 `offset` is not a whole number: `13,1,R,x,4096`",
            "line 7 `op` is neither a read nor a write (R, W, read or write): `14,1,Q,0,512`",
        ]
    );
    assert_eq!(all.iter().flatten().count(), 4);
    let reader = || Reader::new(std::io::Cursor::new(text.clone().into_bytes()), &Options::default()).unwrap();
    let mut tolerant = reader().tolerant(false);
    assert_eq!(tolerant.by_ref().count(), 4);
    assert_eq!((tolerant.faults().count, tolerant.faults().first[0].line), (2, 5));
    assert_eq!(tolerant.faults().ended, None);
    let mut strict = reader().tolerant(true);
    assert_eq!(strict.by_ref().count(), 0, "all requests were held in the sorting window");
    assert_eq!(strict.faults().ended.as_ref().map(|malformed| malformed.line), Some(5));
}

#[test]
fn a_truncated_file_gives_its_requests() {
    let long: String = CSV
        .lines()
        .take(1)
        .chain(std::iter::repeat_n("10,1,R,0,4096", 200_000))
        .fold(String::new(), |text, line| text + line + "\n");
    let packed = gzip(long.as_bytes());
    let all = read(&packed[..packed.len() - 20]);
    let last = all.iter().find_map(|item| item.as_ref().err()).unwrap();
    assert!(matches!(last.reason, Reason::Unreadable(_)), "{last}");
    assert!(all.iter().flatten().count() > 100_000);
}

#[test]
fn errors_of_opening_have_a_remedy() {
    let open = |bytes: &[u8]| Reader::new(std::io::Cursor::new(bytes.to_vec()), &Options::default());
    let error = |bytes: &[u8]| open(bytes).err().unwrap().to_string();
    assert!(error(b"").contains("empty"));
    assert!(error(b"hello\nworld\n").contains("--format"));
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    assert!(error(&gzip(&tar)).contains("tar -xOf"));
    let missing = Reader::open(Path::new("/no/such/trace"), &Options::default()).err().unwrap();
    assert!(matches!(missing, OpenError::Io { .. }));
}

#[test]
fn a_trace_without_requests_has_a_reason() {
    for (text, expected) in [
        ("8,0 1 1 0.0 697 D W 8 + 8 [fio]\n", "no request as blkparse: it has D events"),
        ("time_s,op,offset,bytes\n1,R,x,512\n2,R,0\n", "malformed lines: 2, the first: line 2 `offset`"),
        ("time_s,op,offset,bytes\n", "no line is a read or a write"),
    ] {
        let mut reader = Reader::new(text.as_bytes(), &Options::default()).unwrap();
        assert!(reader.no_request().is_none(), "it was not read yet");
        assert_eq!(reader.by_ref().flatten().count(), 0);
        let error = reader.no_request().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut reader = Reader::new(CSV.as_bytes(), &Options::default()).unwrap();
    assert_eq!(reader.by_ref().flatten().count(), 3);
    assert!(reader.no_request().is_none());
}

#[test]
fn tpcc_trace_of_mqsim() {
    let reader = Reader::open(&data("mqsim/tpcc-small.trace.gz"), &Options::default()).unwrap();
    assert_eq!(reader.format(), Format::Mqsim);
    let all = requests(reader);
    assert_eq!(all.len(), 6999);
    assert!(all.is_sorted_by_key(|request| request.at_ns));
    let span_ns = all.last().unwrap().at_ns;
    assert!((130_000_000..150_000_000).contains(&span_ns), "{span_ns}");
    assert_eq!(all[0].offset, 264_719_034 * 512);
}

#[test]
fn web_search_trace_of_mqsim() {
    let relative = "shared/data/traces/mqsim/wsrch-small.trace";
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join(relative));
    let Some(path) = above.into_iter().find(|path| path.exists()) else {
        println!("skipped: {relative} is in no parent folder");
        return;
    };
    let all = requests(Reader::open(&path, &Options::default()).unwrap());
    assert_eq!(all.len(), 24_783);
    assert_eq!(all.last().unwrap().at_ns / 1_000_000_000, 60);
}

/// A naive reader of the same format, for comparison.
fn naive(text: &str) -> Vec<(u64, u32, u64, u32, bool)> {
    let fields = |line: &str| line.split(' ').map(|f| f.parse::<u64>().unwrap()).collect::<Vec<_>>();
    let mut all: Vec<_> = text.lines().map(fields).collect();
    all.sort_by_key(|f| f[0]);
    let first = all[0][0];
    all.iter().map(|f| (f[0] - first, f[1] as u32, f[2] * 512, (f[3] * 512) as u32, f[4] == 1)).collect()
}

#[test]
fn recorded_traces_match_a_naive_reader() {
    for name in ["mqsim/tpcc-small.trace.gz", "mqsim/wsrch-first-2000.trace.gz"] {
        let mut text = String::new();
        let file = std::fs::File::open(data(name)).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let ours: Vec<_> = requests(Reader::open(&data(name), &Options::default()).unwrap())
            .iter()
            .map(|r| (r.at_ns, r.volume, r.offset, r.bytes, r.op == Op::Read))
            .collect();
        assert_eq!(ours, naive(&text), "{name}");
    }
}

proptest! {
    /// No panic, no endless loop, and times do not decrease.
    #[test]
        fn arbitrary_bytes_do_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600), format in 0_usize..11, window in 0_usize..5,
    ) {
        any_bytes(bytes, format, window);
    }

    /// The same with text similar to a trace.
    #[test]
        fn arbitrary_text_does_not_panic(
        text in "([0-9]{1,22}[ ,]|[RWrw]|read,|,0,|\n|2a |8,0 |Q |\\+ |\\.|time_s,op,offset,bytes\n|fio version [23] iolog\n|wait |/a |;){0,80}",
        format in 0_usize..11, window in 0_usize..5,
    ) {
        any_bytes(text.into_bytes(), format, window);
    }

    /// The same with the magic bytes of compressed files.
    #[test]
        fn arbitrary_compressed_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), kind in 0_usize..3) {
        let magic: [&[u8]; 3] = [&[0x1f, 0x8b, 8, 0], &[0x28, 0xb5, 0x2f, 0xfd], &[0x50, 0x2a, 0x4d, 0x18]];
        any_bytes([magic[kind], &bytes].concat(), Format::ALL.len(), 3);
    }
}

fn any_bytes(bytes: Vec<u8>, format: usize, window: usize) {
    let max_items = bytes.len() + 2;
    let options = Options { format: Format::ALL.get(format).copied(), window, ..Options::default() };
    let Ok(reader) = Reader::new(std::io::Cursor::new(bytes), &options) else { return };
    let all: Vec<_> = reader.take(max_items).collect();
    assert!(all.len() < max_items, "endless");
    assert!(all.iter().flatten().is_sorted_by_key(|request| request.at_ns));
}

proptest! {
    /// A written trace is read back in the order of its times.
    #[test]
        fn a_written_trace_is_read_back(
        rows in proptest::collection::vec((0_u64..10_000, 0_u32..9, any::<bool>(), 0_u64..1 << 50, 1_u32..1 << 30), 1..60),
    ) {
        let line = |&(at, volume, reads, offset, bytes): &(u64, u32, bool, u64, u32)| {
            format!("{at},{volume},{},{offset},{bytes}\n", if reads { "R" } else { "W" })
        };
        let text: String = std::iter::once("time_ns,volume,op,offset,bytes\n".to_owned()).chain(rows.iter().map(line)).collect();
        let mut expected = rows.clone();
        expected.sort_by_key(|row| row.0);
        let first = expected[0].0;
        let all: Vec<_> = read(text.as_bytes()).into_iter().map(Result::unwrap)
            .map(|r| (r.at_ns + first, r.volume, r.op == Op::Read, r.offset, r.bytes)).collect();
        prop_assert!(all == expected, "{all:?}");
    }
}

#[test]
fn statistics_of_the_tpcc_trace() {
    let mut stats = pilotlight_trace::Stats::default();
    requests(Reader::open(&data("mqsim/tpcc-small.trace.gz"), &Options::default()).unwrap())
        .iter()
        .for_each(|request| stats.add(request));
    let summary = stats.summary();
    println!("{summary:#?}");
    let mean = summary.mean_rate_iops.unwrap();
    assert!((50_500.0..51_500.0).contains(&mean), "51 k IOPS: {mean}");
    assert_eq!(summary.windows[0].peak_rate_iops, 82_000.0, "in 1 ms");
    assert_eq!((summary.volumes.volumes, summary.requests), (16, 6999));
}
