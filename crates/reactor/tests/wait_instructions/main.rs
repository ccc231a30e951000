//! The wait instructions execute: `wait_monitor` really runs them, a store alone ends the wait, and the sender makes no
//! system call.
//!
//! Where the CPU lacks an instruction it raises `SIGILL`; the handler (`emulator.rs`, on Arm in `aarch64.rs`) then does what the CPU
//! would. Where the CPU has it, nothing traps and the same tests run on the instruction itself.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod emulator;
#[cfg(target_arch = "x86_64")]
mod reactor;
#[cfg(target_arch = "x86_64")]
mod sender;
#[cfg(target_arch = "x86_64")]
mod x86;

use pilotlight_reactor::{Inbox, clock, wait};

const NO_LIMIT: u64 = u64::MAX;

#[test]
fn what_this_machine_has_wakes_and_ends_in_time() {
    let Some(how) = wait::available() else {
        println!("skipped: this machine has no instruction that waits for a store");
        return;
    };
    let mut inbox = Inbox::new(1);
    let until = clock::now_ns() + 1_000_000;
    while clock::now_ns() < until {
        inbox.wait_monitor(how, until);
    }
    let sender = inbox.sender();
    let sending = std::thread::spawn(move || sender.send(7).expect("room"));
    while inbox.is_empty() {
        inbox.wait_monitor(how, NO_LIMIT);
    }
    assert_eq!(inbox.take(), Some(7));
    sending.join().expect("sent");
}
