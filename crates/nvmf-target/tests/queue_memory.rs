//! The memory charged for a queue is at least its allocated memory, measured on the thread that runs the target. A separate test
//! binary, because it sets the global allocator.

#[path = "waiting/host.rs"]
mod host;

use host::{Host, MS, bench, capsule, connect_cmd, connect_data, memory};
use pilotlight_counting_alloc::{CountingAlloc, thread_bytes};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::fabrics::CNTLID_DYNAMIC;
use pilotlight_nvmf_target::testing::Bench;

#[global_allocator]
static ALLOCATOR: CountingAlloc = CountingAlloc;

/// Allocated and charged bytes.
fn allocated_and_charged(bench: &Bench) -> (i64, i64) {
    (thread_bytes(), bench.admitted().0 as i64)
}

/// The result of `work`, and the bytes that it allocates and charges.
fn measure<R>(bench: &mut Bench, work: impl FnOnce(&mut Bench) -> R) -> (R, i64, i64) {
    let (live, charged) = allocated_and_charged(bench);
    let result = work(bench);
    let (live_after, charged_after) = allocated_and_charged(bench);
    (result, live_after - live, charged_after - charged)
}

#[test]
fn the_charge_of_a_queue_covers_its_memory() {
    let mut bench = bench(&memory(), 4 << 20);
    let first = Host::both(&mut bench, 0, false);
    for (hostid, entries) in (1..).zip([2, 32, 128, 512, 1024]) {
        let (_admin, cntlid) = Host::admin(&mut bench, hostid, 0);
        // The first queue also allocates the record of the host.
        let mut known = Host::shaken(&mut bench, false);
        let answer = known.try_connect(&mut bench, connect_cmd(2, 2), &connect_data(hostid, cntlid));
        assert!(answer.status().is_success());
        let mut queue = Host::shaken(&mut bench, false);
        let (answer, allocated, charged) = measure(&mut bench, |bench| {
            queue.try_connect(bench, connect_cmd(1, entries), &connect_data(hostid, cntlid))
        });
        assert!(answer.status().is_success());
        println!("an I/O queue of {entries} entries uses {allocated} bytes and is charged {charged}");
        assert!(allocated <= charged, "{entries} entries: {allocated} bytes are allocated, {charged} are charged");
        let if_lost = 16 * (i64::from(entries) + 1); // a lost queue lists its requests in the backends
        assert!(charged < allocated + if_lost + 4096, "{entries} entries: {charged} bytes are charged for {allocated}");
    }
    drop(first);
}

#[test]
fn the_charge_of_an_admin_queue_covers_its_memory() {
    let mut bench = bench(&memory(), 4 << 20);
    let _first = Host::both(&mut bench, 0, false);
    for (hostid, entries) in (1..).zip([32, 128]) {
        let mut admin = Host::shaken(&mut bench, false);
        let ((), allocated, charged) = measure(&mut bench, |bench| {
            let data = connect_data(hostid, CNTLID_DYNAMIC);
            assert!(admin.try_connect(bench, connect_cmd(0, entries), &data).status().is_success());
            for cid in 0..200 {
                admin.send(&capsule(cid, Sqe::new(0xee, 0), &[])); // a failure for the error log
                assert!(!admin.response(bench).status().is_success());
            }
        });
        println!("an admin queue of {entries} entries uses {allocated} bytes and is charged {charged}");
        assert!(allocated <= charged, "{entries} entries: {allocated} bytes are allocated, {charged} are charged");
        assert!(charged < allocated + (32 << 10), "{entries} entries: {charged} bytes are charged for {allocated}");
    }
}

#[test]
fn the_memory_of_a_queue_is_released() {
    let mut bench = bench(&memory(), 4 << 20);
    // The caps keep a record of each host (at most 4,096), so both hosts connect before.
    for hostid in [0, 1] {
        drop(Host::both(&mut bench, hostid, false));
        bench.run(10 * MS);
    }
    let ((), allocated, charged) = measure(&mut bench, |bench| {
        drop(Host::both(bench, 1, false));
        bench.run(10 * MS);
    });
    assert_eq!((charged, bench.admitted()), (0, (0, 0)));
    assert!(allocated.abs() < 1024, "{allocated} bytes are not released");
}
