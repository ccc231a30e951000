use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<BackendSpec, String> {
    text.parse().map_err(|error: SpecError| error.to_string())
}

fn file(path: &str, size: Option<u64>) -> BackendSpec {
    BackendSpec::File { path: path.into(), size }
}

#[test]
fn specifications_are_parsed() {
    assert_eq!(parse("mem:1GiB"), Ok(BackendSpec::Memory(1 << 30)));
    assert_eq!(parse("mem:1GiB,hugepages"), Ok(BackendSpec::HugePages(1 << 30)));
    assert_eq!(parse("null:4096"), Ok(BackendSpec::Null(4096)));
    assert_eq!(parse("file:/srv/disk.img"), Ok(file("/srv/disk.img", None)));
    assert_eq!(parse("file:a:b?c"), Ok(file("a:b?c", None)));
    assert_eq!(parse("file:disk?size=10GB"), Ok(file("disk", Some(10_000_000_000))));
    assert_eq!(parse("file:a?read-only"), Ok(BackendSpec::ReadOnlyFile("a".into())));
    let delays = Delays { shortest_ns: 50_000, longest_ns: 2_000_000, seed: 7 };
    let inner = Box::new(BackendSpec::Memory(1 << 20));
    assert_eq!(parse("delay:50us-2ms,seed=7:mem:1MiB"), Ok(BackendSpec::Delay { delays, inner }));
    let delays = Delays { shortest_ns: 0, longest_ns: 1_000_000_000, seed: 0 };
    let inner = Box::new(file("x", None));
    assert_eq!(parse("delay:1s:file:x"), Ok(BackendSpec::Delay { delays, inner }));
}

#[test]
fn invalid_specifications_are_refused() {
    let kind = "is not a backend: use mem:SIZE, file:PATH or null:SIZE, as in mem:1GiB";
    for text in ["", "mem", "/srv/disk.img", "memory:1GiB", "MEM:1GiB", ":1GiB"] {
        assert_eq!(parse(text), Err(format!("'{text}' {kind}")));
    }
    assert!(parse("mem:").unwrap_err().starts_with("in 'mem:': '' is not a size"));
    assert!(parse("mem:1gallon").unwrap_err().starts_with("in 'mem:1gallon': '1gallon' is not a size"));
    assert!(parse("mem:1GiB,huge").unwrap_err().contains("'1GiB,huge' is not a size"));
    assert_eq!(parse("file:x?size=1 GiB"), Ok(file("x", Some(1 << 30))));
    assert!(parse("file:x?size=1 G B").unwrap_err().contains("'1 G B' is not a size"));
    assert_eq!(parse("file:"), Err("'file:' has no path: use file:PATH, as in file:/srv/disk.img".into()));
    assert!(parse("file:?size=1GiB").unwrap_err().contains("has no path"));
    assert!(parse("file:?read-only").unwrap_err().contains("has no path"));
    assert!(parse("file:a?size=1GiB?read-only").unwrap_err().contains("omit ?size="));
    assert!(parse("checked:file:a?read-only").unwrap_err().contains("need a file or block device that is written"));
    for text in
        ["delay:mem:1GiB", "delay:2:mem:1GiB", "delay:2ms-1ms:mem:1GiB", "delay:1ms,seed=x:mem:1GiB", "delay:1ms"]
    {
        assert!(parse(text).unwrap_err().starts_with(&format!("'{text}' is not a delay: use delay:")), "{text}");
    }
    assert!(parse("delay:1ms:tape:1GiB").unwrap_err().starts_with("'tape:1GiB' is not a backend"));
}

fn any_spec() -> impl Strategy<Value = BackendSpec> {
    let size = prop_oneof![1..u64::MAX, (0..60_u32, 1..1000_u64).prop_map(|(shift, n)| n.saturating_mul(1 << shift))];
    let leaf = prop_oneof![
        size.clone().prop_map(BackendSpec::Memory),
        size.clone().prop_map(BackendSpec::HugePages),
        size.clone().prop_map(BackendSpec::Null),
        ("[a-z/.:?-]{1,20}", prop::option::of(size)).prop_map(|(path, size)| file(&path, size)),
        "[a-z/.:?-]{1,20}".prop_map(|path| BackendSpec::ReadOnlyFile(path.into())),
    ];
    leaf.prop_recursive(3, 3, 1, |inner| {
        (any::<(u64, u64, u64)>(), inner).prop_map(|((one, other, seed), inner)| {
            let delays = Delays { shortest_ns: one.min(other), longest_ns: one.max(other), seed };
            BackendSpec::Delay { delays, inner: Box::new(inner) }
        })
    })
}

proptest! {
    #[test]
    fn displayed_specifications_are_parsed(spec in any_spec()) {
        prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
    }

    #[test]
    fn parsing_does_not_panic(text in "(mem|file|null|delay)?:?[0-9a-zA-Z:,=?-]{0,20}") {
        let _ = parse(&text);
    }
}

#[test]
fn is_same_storage_ignores_the_size() {
    let same = |a: &str, b: &str| {
        let (a, b): (BackendSpec, BackendSpec) = (a.parse().expect("valid"), b.parse().expect("valid"));
        a.is_same_storage(&b)
    };
    for text in ["mem:SIZE", "mem:SIZE,hugepages", "null:SIZE", "file:x?size=SIZE", "delay:1ms:mem:SIZE"] {
        let (small, large) = (text.replace("SIZE", "4KiB"), text.replace("SIZE", "8KiB"));
        assert!(same(&small, &small) && same(&small, &large), "{text}");
        let mut resized: BackendSpec = small.parse().expect("valid");
        resized.set_size(8 << 10);
        assert_eq!(resized, large.parse().expect("valid"));
    }
    let mut without: BackendSpec = "file:x".parse().expect("valid");
    without.set_size(1);
    assert_eq!(without.size(), None, "no size specified");
    assert!(same("file:x", "file:x?size=8KiB") && same("file:x?size=8KiB", "file:x"));
    for (a, b) in [("mem:4KiB", "null:4KiB"), ("mem:4KiB", "mem:4KiB,hugepages"), ("file:x", "file:y")] {
        assert!(!same(a, b) && !same(b, a), "{a} and {b}");
    }
    assert!(!same("delay:1ms:mem:4KiB", "delay:2ms:mem:4KiB") && !same("delay:1ms:mem:4KiB", "mem:4KiB"));
}

#[test]
fn properties_of_specifications() {
    let spec = parse("delay:1ms:file:disk?size=8KiB").expect("valid");
    assert_eq!((spec.path(), spec.size(), spec.memory()), (Some(Path::new("disk")), Some(8192), 0));
    let spec = spec.relative_to(Path::new("/etc/pilotlight"));
    assert_eq!(spec.path(), Some(Path::new("/etc/pilotlight/disk")));
    assert_eq!(spec.clone().relative_to(Path::new("/elsewhere")), spec, "an absolute path");
    let spec = parse("delay:1ms:mem:8KiB").expect("valid");
    assert_eq!((spec.path(), spec.size(), spec.memory()), (None, Some(8192), 8192));
    assert_eq!(spec.preallocated_memory(), 0);
    let huge = parse("delay:1ms:mem:8KiB,hugepages").expect("valid");
    assert_eq!((huge.size(), huge.memory(), huge.preallocated_memory()), (Some(8192), 8192, 8192));
    assert_eq!(huge.without_preallocation(), spec);
}

#[test]
fn all_files_of_a_specification_are_listed() {
    let files = |spec: &str| spec.parse::<BackendSpec>().expect("valid").files();
    assert_eq!(files("mem:1MiB"), Vec::<PathBuf>::new());
    assert_eq!(files("delay:1ms:file:/a?size=1MiB"), [PathBuf::from("/a")]);
    assert_eq!(files("checked,trim:file:/a"), ["/a", "/a.sums"].map(PathBuf::from));
    assert_eq!(files("checked=/b:file:/a"), ["/a", "/b"].map(PathBuf::from));
}

#[test]
fn backends_are_opened() {
    let budget = Arc::new(MemoryBudget::unlimited());
    let try_open = |text: &str, block_size| {
        let geometry = open(&parse(text)?, block_size, &budget).map(|backend| backend.geometry());
        geometry.map(|geometry| (geometry.block_size, geometry.blocks)).map_err(|error| error.to_string())
    };
    assert_eq!(try_open("mem:1MiB", 512), Ok((512, 2048)));
    assert_eq!(try_open("mem:1MiB,hugepages", 4096), Ok((4096, 256)));
    assert_eq!(try_open("null:1MiB", 4096), Ok((4096, 256)));
    assert_eq!(try_open("delay:1ms:mem:1MiB", 4096), Ok((4096, 256)));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    assert!(try_open(&format!("file:{}", path.display()), 4096).unwrap_err().contains("no such file; create it with"));
    assert_eq!(try_open(&format!("file:{}?size=1MiB", path.display()), 4096), Ok((4096, 256)));
    assert_eq!(try_open(&format!("delay:1us:file:{}", path.display()), 4096), Ok((4096, 256)));
    assert_eq!(try_open("null:10GB", 4096), Ok((4096, 2_441_406)), "whole blocks only");
    let sized = format!("file:{}?size=1MB", dir.path().join("other").display());
    assert_eq!(try_open(&sized, 4096), Ok((4096, 244)));
    assert_eq!(try_open(&sized, 512), Ok((512, 1953)), "the file exists with this size");
    assert_eq!(
        try_open("mem:511", 512).unwrap_err(),
        "mem:511B: 0 blocks of 512 bytes: a namespace has from one block to 8 EiB"
    );
    assert!(try_open("mem:1MiB", 520).unwrap_err().contains("520"));
    assert_eq!(
        try_open("mem:1040", 520).unwrap_err(),
        "mem:1040B: unsupported block size of 520 bytes: use 512 or 4096"
    );
}
