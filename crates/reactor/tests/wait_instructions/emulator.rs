//! Emulates `umonitor`, `umwait`, `monitorx` and `mwaitx` in the handler of the `SIGILL` that a CPU without them raises.
//!
//! Arming records the cache line and its content; waiting blocks until the line differs, or until the deadline. A wait without arming
//! returns at once, as on the CPU. The handler is async-signal-safe: atomics, a thread-local cell that needs no initialisation, `rdtsc` and
//! `sched_yield(2)`.
//!
//! Encodings: Intel SDM volume 2, "UMONITOR" (F3 0F AE /6), "UMWAIT" (F2 0F AE /6), both with a register operand; AMD APM
//! volume 3, "MONITORX" (0F 01 FA), "MWAITX" (0F 01 FB).

use std::arch::x86_64::_rdtsc;
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Bytes that a monitor watches.
const LINE: usize = 64;
const CARRY: i64 = 1;

/// An instruction that is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Umonitor,
    Umwait,
    Monitorx,
    Mwaitx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decoded {
    op: Op,
    /// Number of the operand's register, if any.
    register: u8,
    length: usize,
}

/// The instruction in these bytes, if it is one of the four.
fn decode(bytes: [u8; 5]) -> Option<Decoded> {
    if let [0x0f, 0x01, last @ (0xfa | 0xfb), ..] = bytes {
        let op = if last == 0xfa { Op::Monitorx } else { Op::Mwaitx };
        return Some(Decoded { op, register: 0, length: 3 });
    }
    let op = match bytes[0] {
        0xf3 => Op::Umonitor,
        0xf2 => Op::Umwait,
        _ => return None,
    };
    let (rex, rest) = match bytes {
        [_, rex @ 0x40..=0x4f, rest @ ..] => (rex, rest),
        [_, a, b, c, _] => (0, [a, b, c]),
    };
    let [0x0f, 0xae, modrm] = rest else { return None };
    let is_register_form_of_6 = modrm >> 6 == 0b11 && (modrm >> 3) & 0b111 == 6;
    let register = modrm & 0b111 | (rex & 1) << 3;
    is_register_form_of_6.then_some(Decoded { op, register, length: 4 + usize::from(rex != 0) })
}

/// Instructions executed by the owner of one test.
#[derive(Debug)]
pub(crate) struct Emulator {
    traps: [AtomicU64; 4],
    by_store: AtomicU64,
    by_deadline: AtomicU64,
    by_limit: AtomicU64,
    unarmed: AtomicU64,
    is_asleep: AtomicBool,
    clock_stands: AtomicBool,
    umwait_limit_cycles: AtomicU64,
}

/// An armed line and its content.
type Armed = (usize, [u64; LINE / 8]);

thread_local! {
    static EMULATOR: Cell<Option<&'static Emulator>> = const { Cell::new(None) };
    static ARMED: Cell<Option<Armed>> = const { Cell::new(None) };
}

/// Reason for the end of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Store,
    Deadline,
    NothingArmed,
}

impl Emulator {
    pub(crate) const fn new() -> Self {
        Self {
            traps: [const { AtomicU64::new(0) }; 4],
            by_store: AtomicU64::new(0),
            by_deadline: AtomicU64::new(0),
            by_limit: AtomicU64::new(0),
            unarmed: AtomicU64::new(0),
            is_asleep: AtomicBool::new(false),
            clock_stands: AtomicBool::new(false),
            umwait_limit_cycles: AtomicU64::new(u64::MAX),
        }
    }

    /// Emulates the instructions of this thread from now on.
    pub(crate) fn serve_this_thread(&'static self) {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install);
        EMULATOR.set(Some(self));
    }

    /// No wait ends at a deadline from now on.
    pub(crate) fn stop_the_clock(&self) {
        self.clock_stands.store(true, SeqCst);
    }

    /// Sets the limit of `IA32_UMWAIT_CONTROL`, in cycles of the time stamp counter.
    pub(crate) fn limit_umwait(&self, cycles: u64) {
        self.umwait_limit_cycles.store(cycles, SeqCst);
    }

    /// Instructions of this kind that were emulated.
    pub(crate) fn traps(&self, op: Op) -> u64 {
        self.traps[op as usize].load(SeqCst)
    }

    /// Whether the owner is blocked in a wait.
    pub(crate) fn is_asleep(&self) -> bool {
        self.is_asleep.load(SeqCst)
    }

    pub(crate) fn woken_by_store(&self) -> u64 {
        self.by_store.load(SeqCst)
    }

    pub(crate) fn woken_by_deadline(&self) -> u64 {
        self.by_deadline.load(SeqCst)
    }

    pub(crate) fn woken_by_limit(&self) -> u64 {
        self.by_limit.load(SeqCst)
    }

    /// Waits without arming.
    pub(crate) fn unarmed(&self) -> u64 {
        self.unarmed.load(SeqCst)
    }

    fn execute(&self, decoded: Decoded, registers: &mut Registers) {
        self.traps[decoded.op as usize].fetch_add(1, SeqCst);
        match decoded.op {
            Op::Umonitor => arm(registers.numbered(decoded.register)),
            Op::Monitorx => arm(registers.at(libc::REG_RAX)),
            Op::Umwait => self.umwait(registers),
            Op::Mwaitx => self.mwaitx(registers),
        }
    }

    /// EDX:EAX is the deadline; the carry flag reports whether the system's limit ended the wait.
    fn umwait(&self, registers: &mut Registers) {
        let deadline = registers.at(libc::REG_RDX) << 32 | registers.at(libc::REG_RAX) & 0xffff_ffff;
        let limit = tsc().saturating_add(self.umwait_limit_cycles.load(SeqCst));
        let end = self.wait(deadline.min(limit));
        let limited = end == End::Deadline && limit < deadline;
        registers.set_carry(limited);
        let ended = if limited { &self.by_limit } else { &self.by_deadline };
        ended.fetch_add(u64::from(end == End::Deadline), SeqCst);
    }

    /// ECX bit 1: EBX is the longest wait, in cycles.
    fn mwaitx(&self, registers: &Registers) {
        let timer = registers.at(libc::REG_RCX) & 0b10 != 0;
        let cycles = registers.at(libc::REG_RBX) & 0xffff_ffff;
        let end = self.wait(if timer { tsc() + cycles } else { u64::MAX });
        self.by_deadline.fetch_add(u64::from(end == End::Deadline), SeqCst);
    }

    fn wait(&self, deadline_tsc: u64) -> End {
        let Some((line, before)) = ARMED.take() else {
            self.unarmed.fetch_add(1, SeqCst);
            return End::NothingArmed;
        };
        self.is_asleep.store(true, SeqCst);
        let end = loop {
            if content(line) != before {
                self.by_store.fetch_add(1, SeqCst);
                break End::Store;
            }
            if !self.clock_stands.load(SeqCst) && tsc() >= deadline_tsc {
                break End::Deadline;
            }
            // SAFETY: yields the CPU; no argument.
            unsafe { libc::sched_yield() };
        };
        self.is_asleep.store(false, SeqCst);
        end
    }
}

fn tsc() -> u64 {
    // SAFETY: every x86-64 has a time stamp counter; Linux leaves it readable.
    unsafe { _rdtsc() }
}

fn arm(address: u64) {
    let line = address as usize & !(LINE - 1);
    ARMED.set(Some((line, content(line))));
}

fn content(line: usize) -> [u64; LINE / 8] {
    let words = std::ptr::with_exposed_provenance::<u64>(line);
    // SAFETY: the line of a slot that the owner watches: live, aligned to its size, and read as a CPU does, with concurrent writes.
    std::array::from_fn(|i| unsafe { words.add(i).read_volatile() })
}

/// The trapped thread's registers.
struct Registers<'a>(&'a mut libc::mcontext_t);

impl Registers<'_> {
    fn at(&self, register: i32) -> u64 {
        self.0.gregs[register as usize] as u64
    }

    /// A register by its number in instructions.
    fn numbered(&self, number: u8) -> u64 {
        use libc::{REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
        use libc::{REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RSI, REG_RSP};
        let low = [REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI];
        let high = [REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15];
        self.at(if number < 8 { low[number as usize] } else { high[number as usize - 8] })
    }

    fn set_carry(&mut self, carry: bool) {
        let flags = &mut self.0.gregs[libc::REG_EFL as usize];
        *flags = *flags & !CARRY | i64::from(carry);
    }
}

fn install() {
    // SAFETY: a zeroed sigaction is a valid one, and the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigill as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0);
    }
}

extern "C" fn on_sigill(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes the trapped thread's context, to which this handler has exclusive access.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let at = std::ptr::with_exposed_provenance::<[u8; 5]>(machine.gregs[libc::REG_RIP as usize] as usize);
    // SAFETY: the trapped instruction and the bytes after it, in this program's code.
    let bytes = unsafe { at.read_unaligned() };
    match (EMULATOR.get(), decode(bytes)) {
        (Some(emulator), Some(decoded)) => {
            machine.gregs[libc::REG_RIP as usize] += decoded.length as i64;
            emulator.execute(decoded, &mut Registers(machine));
        }
        // SAFETY: restores the default action; the instruction traps again and ends the process.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

#[test]
fn decodes_the_four_and_nothing_else() {
    let decoded = |op, register, length| Some(Decoded { op, register, length });
    assert_eq!(decode([0xf3, 0x0f, 0xae, 0xf0, 0x90]), decoded(Op::Umonitor, 0, 4), "umonitor rax");
    assert_eq!(decode([0xf3, 0x41, 0x0f, 0xae, 0xf7]), decoded(Op::Umonitor, 15, 5), "umonitor r15");
    assert_eq!(decode([0xf2, 0x0f, 0xae, 0xf1, 0x90]), decoded(Op::Umwait, 1, 4), "umwait ecx");
    assert_eq!(decode([0xf2, 0x41, 0x0f, 0xae, 0xf0]), decoded(Op::Umwait, 8, 5), "umwait r8d");
    assert_eq!(decode([0x0f, 0x01, 0xfa, 0x90, 0x90]), decoded(Op::Monitorx, 0, 3));
    assert_eq!(decode([0x0f, 0x01, 0xfb, 0x90, 0x90]), decoded(Op::Mwaitx, 0, 3));
    assert_eq!(decode([0x0f, 0xae, 0xf0, 0x90, 0x90]), None, "mfence");
    assert_eq!(decode([0x66, 0x0f, 0xae, 0xf0, 0x90]), None, "tpause eax");
    assert_eq!(decode([0xf3, 0x0f, 0xae, 0x30, 0x90]), None, "clrssbsy [rax]");
    assert_eq!(decode([0xf3, 0x0f, 0xae, 0xe8, 0x90]), None, "incsspd eax");
    assert_eq!(decode([0x0f, 0x0b, 0x90, 0x90, 0x90]), None, "ud2");
}
