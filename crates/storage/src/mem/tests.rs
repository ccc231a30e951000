use super::super::conformance::{self, Driver, Subject};
use super::*;

fn preallocated(block_size: u32, blocks: u64) -> MemoryBackend {
    MemoryBackend::preallocated(block_size, blocks, Arc::new(MemoryBudget::unlimited())).expect("memory")
}

fn fresh(block_size: u32, blocks: u64) -> MemoryBackend {
    MemoryBackend::new(block_size, blocks, Arc::new(MemoryBudget::unlimited())).expect("memory")
}

#[test]
fn conforms() {
    let create = |block_size, blocks| Arc::new(fresh(block_size, blocks)) as Arc<dyn Backend>;
    conformance::check(&Subject {
        create: &create,
        stores: true,
        resizes: true,
        counts_space: true,
        requests: 20_000,
        seed: 1,
    });
}

#[test]
fn conforms_when_preallocated() {
    let create = |block_size, blocks| Arc::new(preallocated(block_size, blocks)) as Arc<dyn Backend>;
    conformance::check(&Subject {
        create: &create,
        stores: true,
        resizes: true,
        counts_space: false, // all of it is allocated from the start
        requests: 20_000,
        seed: 2,
    });
}

#[test]
fn allocated_bytes_are_exact() {
    let budget = Arc::new(MemoryBudget::unlimited());
    let backend = MemoryBackend::new(512, 10_000, Arc::clone(&budget)).expect("memory");
    let mut driver = Driver::open(&backend, 8);
    let check = |driver: &mut Driver, op: Op, lba: u64, blocks: u32, pages: u64| {
        let data = vec![1; blocks as usize * 512];
        driver.run(op, lba, blocks, matches!(op, Op::Write { .. }).then_some(&data[..])).expect("works");
        assert_eq!(backend.allocated_bytes().expect("a number"), pages * 4096, "{op:?} {blocks} at {lba}");
        assert_eq!(budget.used(), pages * 4096);
    };
    let write = Op::Write { fua: false };
    check(&mut driver, write, 0, 1, 1);
    check(&mut driver, write, 7, 1, 1);
    check(&mut driver, write, 7, 2, 2);
    check(&mut driver, Op::Read, 100, 200, 2);
    check(&mut driver, write, 80, 64, 10);
    check(&mut driver, Op::WriteZeroes { fua: false, deallocate: false }, 0, 2000, 10);
    check(&mut driver, Op::Deallocate, 1, 7, 10);
    check(&mut driver, Op::Deallocate, 81, 63, 3);
    check(&mut driver, Op::WriteZeroes { fua: false, deallocate: true }, 0, 10_000, 0);
    check(&mut driver, write, 9_999, 1, 1);
    assert_eq!(backend.resize(Some(9_992)).expect("shrinks").blocks, 9_992);
    check(&mut driver, write, 0, 1, 1);
    drop(driver);
    drop(backend);
    assert_eq!(budget.used(), 0);
}

#[test]
fn shrinking_frees_the_last_partial_page() {
    let backend = fresh(512, 9);
    let mut driver = Driver::open(&backend, 8);
    driver.write(7, &[1; 1024]).expect("writes");
    assert_eq!(backend.allocated_bytes().expect("a number"), 2 * 4096);
    backend.resize(Some(8)).expect("shrinks");
    assert_eq!(backend.allocated_bytes().expect("a number"), 4096);
}

#[test]
fn namespaces_share_the_budget() {
    let budget = Arc::new(MemoryBudget::new(3 * 4096));
    let make = || MemoryBackend::new(4096, 100, Arc::clone(&budget)).expect("memory");
    let (one, two) = (make(), make());
    let (mut first, mut second) = (Driver::open(&one, 8), Driver::open(&two, 8));
    let page = vec![7; 4096];
    first.write(0, &page.repeat(2)).expect("within the budget");
    second.write(50, &page).expect("within the budget");
    assert_eq!(second.write(51, &page), Err(IoError::NoSpace));
    assert_eq!(first.write(1, &page.repeat(2)), Err(IoError::NoSpace), "one of the two is new");
    assert!(first.read(2, 1).expect("reads").iter().all(|&byte| byte == 0), "the refused write had no effect");
    first.write(1, &page).expect("overwriting needs no memory");
    first.run(Op::Deallocate, 0, 1, None).expect("frees");
    second.write(51, &page).expect("within the budget again");
    assert_eq!(budget.used(), 3 * 4096);
}

#[test]
fn unwritten_memory_is_not_touched_by_reads() {
    let backend = fresh(4096, (1 << 30) / 4096);
    let mut driver = Driver::open(&backend, 8);
    for lba in (0..backend.geometry().blocks).step_by(100) {
        assert!(driver.read(lba, 1).expect("reads").iter().all(|&byte| byte == 0));
    }
    assert_eq!(backend.store.data.resident_bytes(1 << 30), 0);
    driver.write(1000, &[1; 8192]).expect("writes");
    assert_eq!(backend.store.data.resident_bytes(1 << 30), 8192);
}

#[test]
fn deallocation_frees_memory() {
    const SIZE: usize = 16 << 20;
    let backend = fresh(4096, SIZE as u64 / 4096);
    let mut driver = Driver::open(&backend, 8);
    let data = vec![1; 128 << 10];
    for lba in (0..backend.geometry().blocks).step_by(32) {
        driver.write(lba, &data).expect("writes");
    }
    assert_eq!(backend.store.data.resident_bytes(SIZE), SIZE);
    driver.run(Op::WriteZeroes { fua: false, deallocate: false }, 0, 4096, None).expect("zeroes");
    assert_eq!(backend.store.data.resident_bytes(SIZE), SIZE, "plain zeroes keep the space");
    driver.run(Op::Deallocate, 1, 4094, None).expect("deallocates");
    assert_eq!(backend.store.data.resident_bytes(SIZE), 8192);
    assert_eq!(backend.allocated_bytes().expect("a number"), 8192);
}

#[test]
fn preallocated_memory_is_resident_and_charged_until_the_namespace_shrinks() {
    const PAGES: u64 = 1500; // a part of a huge page at the end
    let budget = Arc::new(MemoryBudget::new((PAGES + 1000) * 4096));
    let backend = MemoryBackend::preallocated(512, PAGES * 8, Arc::clone(&budget)).expect("within the budget");
    let mut driver = Driver::open(&backend, 8);
    let check = |pages: u64| {
        let bytes = pages * 4096;
        assert_eq!((backend.allocated_bytes().expect("a number"), budget.used()), (bytes, bytes));
        assert_eq!(backend.store.data.resident_bytes(64 << 20) as u64, bytes);
    };
    check(PAGES);
    driver.write(700 * 8, &[7; 512]).expect("writes");
    for (lba, blocks) in [(700 * 8, 8), (0, PAGES as u32 * 8)] {
        driver.run(Op::Deallocate, lba, blocks, None).expect("clears");
        assert_eq!(driver.read(700 * 8, 1).expect("reads"), vec![0; 512]);
        check(PAGES);
    }
    assert_eq!(backend.resize(Some(PAGES * 8 + 1)).expect("grows").blocks, PAGES * 8 + 1);
    check(PAGES + 1);
    backend.resize(Some(PAGES * 8 + 9)).expect("grows from the middle of a page");
    check(PAGES + 2);
    let error = backend.resize(Some((PAGES + 1001) * 8)).expect_err("beyond the budget");
    assert!(error.to_string().contains("raise max_memory"), "{error}");
    assert_eq!(backend.geometry().blocks, PAGES * 8 + 9);
    check(PAGES + 2);
    backend.resize(Some(100 * 8)).expect("shrinks");
    check(100);
    drop((driver, backend));
    assert_eq!(budget.used(), 0);
}

#[test]
fn preallocation_beyond_the_budget_is_refused() {
    let budget = Arc::new(MemoryBudget::new(99 * 4096));
    let error = MemoryBackend::preallocated(4096, 100, Arc::clone(&budget)).expect_err("refused");
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(budget.used(), 0);
}

/// The huge page flag of the mapping at an address: `hg` (advised), `nh` (refused) or none.
fn huge_page_flag(address: *const u8) -> Option<&'static str> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
    let mut inside = false;
    for line in text.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((start, end)) = range
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = (start..end).contains(&(address as usize));
        }
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return ["hg", "nh"].into_iter().find(|flag| flags.split_whitespace().any(|other| other == *flag));
        }
    }
    None
}

#[test]
fn only_preallocated_memory_uses_huge_pages() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return println!("skipped: this kernel has no transparent huge pages");
    }
    let flag = |backend: &MemoryBackend, byte| huge_page_flag(backend.store.at(byte));
    let sparse = fresh(4096, 1024);
    assert_eq!(flag(&sparse, 0), Some("nh"));
    let backend = preallocated(4096, 1300);
    assert_eq!([0, 2 << 20, 4 << 20].map(|byte| flag(&backend, byte)), [Some("hg"), Some("hg"), Some("nh")]);
    backend.resize(Some(1536)).expect("grows");
    assert_eq!(flag(&backend, 4 << 20), Some("hg"));
    backend.resize(Some(1000)).expect("shrinks");
    assert_eq!([0, 2 << 20].map(|byte| flag(&backend, byte)), [Some("hg"), Some("nh")]);
}

#[test]
fn deallocation_clears_locked_memory() {
    let backend = fresh(4096, 16);
    // SAFETY: locking does not change the content of the memory.
    let locked = unsafe { libc::mlock(backend.store.data.base().as_ptr().cast(), 16 * 4096) };
    if locked != 0 {
        println!("skipped: memory cannot be locked here ({})", io::Error::last_os_error());
        return;
    }
    let mut driver = Driver::open(&backend, 8);
    driver.write(0, &vec![1; 16 * 4096]).expect("writes");
    driver.run(Op::Deallocate, 2, 8, None).expect("deallocates");
    assert!(driver.read(2, 8).expect("reads").iter().all(|&byte| byte == 0));
    assert_eq!(backend.allocated_bytes().expect("a number"), 16 * 4096, "locked pages are not freed");
}

#[test]
fn growth_beyond_the_reserve_is_refused() {
    let backend = fresh(4096, 1);
    let most = reserve::RESERVE_LEAST / 4096;
    let error = backend.resize(Some(most + 1)).unwrap_err();
    assert!(error.to_string().contains(&format!("can grow to {most} blocks")), "{error}");
    assert_eq!(backend.resize(Some(most)).expect("grows").blocks, most);
}

#[test]
fn invalid_geometries_are_refused() {
    let make = |block_size, blocks| MemoryBackend::new(block_size, blocks, Arc::new(MemoryBudget::unlimited()));
    for (block_size, blocks) in [(520, 1), (0, 1), (4096, 0), (512, u64::MAX), (4096, 1 << 51)] {
        assert_eq!(make(block_size, blocks).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert!(make(4096, (1 << 51) - 1).is_err(), "too much address space");
}

#[test]
#[should_panic(expected = "in flight were lost")]
fn dropping_a_channel_with_requests_panics() {
    let backend = fresh(4096, 10_000);
    let mut channel = backend.open_channel(4).expect("a channel");
    let request = Request { tag: 1, op: Op::Deallocate, lba: 0, blocks: 10_000, buffer: None };
    assert!(matches!(channel.submit(request, 0), Submitted::Pending));
    drop(channel);
}
