//! What a queue is charged is not below what it takes: a counting allocator looks at one thread, on which the target runs.
//!
//! In a file of its own, as an allocator is the whole process's.

#[path = "waiting/host.rs"]
mod host;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use host::{Host, MS, bench, capsule, connect_cmd, connect_data, memory};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::fabrics::CNTLID_DYNAMIC;
use pilotlight_nvmf_target::testing::Bench;

/// Counts the bytes that each thread has allocated and not freed.
struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // At the end of a thread there is nothing left to count in.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes allocated and bytes charged now.
fn both(bench: &Bench) -> (i64, i64) {
    (LIVE.with(Cell::get), bench.admitted().0 as i64)
}

/// Bytes that `work` allocates and keeps, and bytes that it charges.
fn taken<R>(bench: &mut Bench, work: impl FnOnce(&mut Bench) -> R) -> (R, i64, i64) {
    let (live, charged) = both(bench);
    let result = work(bench);
    let (live_after, charged_after) = both(bench);
    (result, live_after - live, charged_after - charged)
}

#[test]
fn a_queue_is_charged_no_less_than_it_takes() {
    let mut bench = bench(&memory(), 4 << 20);
    let first = Host::both(&mut bench, 0, false);
    for (hostid, entries) in (1..).zip([2, 32, 128, 512, 1024]) {
        let (_admin, cntlid) = Host::admin(&mut bench, hostid, 0);
        // What is remembered of a host comes with its first queue, and is no queue's.
        let mut known = Host::shaken(&mut bench, false);
        let answer = known.try_connect(&mut bench, connect_cmd(2, 2), &connect_data(hostid, cntlid));
        assert!(answer.status().is_success());
        let mut queue = Host::shaken(&mut bench, false);
        let (answer, taken, charged) =
            taken(&mut bench, |bench| queue.try_connect(bench, connect_cmd(1, entries), &connect_data(hostid, cntlid)));
        assert!(answer.status().is_success());
        println!("an I/O queue of {entries} entries takes {taken} bytes and is charged {charged}");
        assert!(taken <= charged, "{entries} entries: {taken} bytes are taken, {charged} charged");
        assert!(charged < taken + 4096, "{entries} entries: {charged} bytes are charged for {taken}");
    }
    drop(first);
}

#[test]
fn an_admin_queue_is_charged_no_less_than_it_comes_to_take() {
    let mut bench = bench(&memory(), 4 << 20);
    let _first = Host::both(&mut bench, 0, false);
    for (hostid, entries) in (1..).zip([32, 128]) {
        let mut admin = Host::shaken(&mut bench, false);
        let ((), taken, charged) = taken(&mut bench, |bench| {
            let data = connect_data(hostid, CNTLID_DYNAMIC);
            assert!(admin.try_connect(bench, connect_cmd(0, entries), &data).status().is_success());
            for cid in 0..200 {
                admin.send(&capsule(cid, Sqe::new(0xee, 0), &[])); // a failure that the error log keeps
                assert!(!admin.response(bench).status().is_success());
            }
        });
        println!("an admin queue of {entries} entries takes {taken} bytes and is charged {charged}");
        assert!(taken <= charged, "{entries} entries: {taken} bytes are taken, {charged} charged");
        assert!(charged < taken + (32 << 10), "{entries} entries: {charged} bytes are charged for {taken}");
    }
}

#[test]
fn what_a_queue_takes_comes_back() {
    let mut bench = bench(&memory(), 4 << 20);
    // The caps remember each host, of at most 4,096: both are known before.
    for hostid in [0, 1] {
        drop(Host::both(&mut bench, hostid, false));
        bench.run(10 * MS);
    }
    let ((), taken, charged) = taken(&mut bench, |bench| {
        drop(Host::both(bench, 1, false));
        bench.run(10 * MS);
    });
    assert_eq!((charged, bench.admitted()), (0, (0, 0)));
    assert!(taken.abs() < 1024, "{taken} bytes have not come back");
}
