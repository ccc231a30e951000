//! Hosts with one drive, on a machine small enough for arithmetic on paper: where time goes, when requests are done, what it all takes.
//!
//! The papers' own machines are tested in `crates/lab/tests/local.rs`.

use pilotlight_sim::local::drive::Drive as Device;
use pilotlight_sim::local::machine::{Costs, Drive, Host, Power, State};
use pilotlight_sim::local::{self as sim, Load, Local, Scheduler, Slot, Tally, Way};

const MS: u64 = 1_000_000;

/// Round numbers, none like another. Nothing is drawn.
fn machine() -> Local {
    Local {
        name: "small".into(),
        window_ns: 100 * MS,
        host: Host {
            cores: 2,
            threads_per_core: 2,
            sibling_slows_ppm: 0,
            light_exit_ns: 500,
            deep_exit_ns: 30_000,
            deep_after_ns: 200_000,
        },
        costs: Costs {
            job_ns: 100,
            submit_ns: 700,
            complete_ns: 300,
            page_ns_per_kib: 10,
            interrupt_ns: 900,
            switch_ns: 1_600,
            timer_ns: 1_200,
            look_ns: 80,
            libaio_ns: 50,
            uring_ns: 60,
            ring_ns: 200,
            hand_over_ns: 1_500,
            bypass_ns: 400,
            kyber_ns: 2_000,
            deadline_ns: 3_000,
        },
        drive: Drive {
            front_ns: 5_000,
            write_ns: 6_000,
            command_ns: 1_000,
            link_bytes_per_s: 1_000_000_000,
            random_ppm: 0,
            units: 0,
            unit_ns: 0,
            unit_ns_per_kib: 0,
            page_bytes: 4_096,
            stream_bytes_per_s: 0,
            turn_ns: 0,
            mdts_bytes: 1 << 20,
            buffer_bytes: 1 << 30,
            cache_bytes: 1 << 40,
            full_bytes_per_s: 100_000_000,
            map_reads: false,
            gc_after_ns: 10 * MS,
            rest_after_ns: 60 * MS,
            wake_ns: 90_000,
            asleep_after_ns: 100 * MS,
            state: vec![
                State {
                    name: "ps0".into(),
                    read_bytes_per_s: 0,
                    write_bytes_per_s: 500_000_000,
                    gc_bytes_per_s: 1_000_000_000,
                    gc_uw: 2_000_000,
                },
                State {
                    name: "ps1".into(),
                    read_bytes_per_s: 100_000_000,
                    write_bytes_per_s: 50_000_000,
                    gc_bytes_per_s: 10_000_000,
                    gc_uw: 300_000,
                },
            ],
        },
        power: Power {
            cpu_idle_uw: 10_000_000,
            uncore_uw: 7_000_000,
            core_uw: 5_000_000,
            core_of_all_uw: 3_000_000,
            spin_ppm: 500_000,
            light_ppm: 200_000,
            switch_nj: 40,
            drive_rest_uw: 1_700_000,
            drive_asleep_uw: 1_200_000,
            drive_awake_uw: 2_400_000,
            drive_read_pj_per_byte: 1_000,
            drive_write_pj_per_byte: 2_000,
            system_base_uw: 30_000_000,
            system_slope_ppm: 1_100_000,
        },
    }
}

fn load(way: Way, jobs: u32, depth: u32) -> Load {
    Load {
        way,
        jobs,
        depth,
        bytes: 4_096,
        sequential: false,
        writes_ppm: 0,
        scheduler: Scheduler::None,
        state: 0,
        autonomous: false,
        think_after: 0,
        think_ns: 0,
        think_spin_ns: 0,
        ramp_ns: MS,
        duration_ns: 20 * MS,
        after_ns: 0,
        seed: 1,
    }
}

fn measured(load: &Load, tally: &Tally) -> Slot {
    tally.sum(load.ramp_ns, load.ramp_ns + load.duration_ns)
}

fn close(ours: f64, expected: f64, within: f64) {
    assert!((ours - expected).abs() <= within * expected.abs().max(1e-9), "{ours}, not {expected}");
}

/// Time of one thread for each request: at work, looking, in light sleep; and the latency.
fn each(machine: &Local, load: &Load) -> ([f64; 3], f64) {
    let tally = sim::run(machine, load);
    let slot = measured(load, &tally);
    ([slot.run_ns, slot.spin_ns, slot.light_ns].map(|ns| ns / slot.requests), tally.reads.mean())
}

/// The controller takes 4,096 ns for 4 KiB at 1 GB/s, and 5,000 ns follow.
const AWAY: f64 = 9_096.0;
/// From the system call to the doorbell: 700 ns and 4 KiB at 10 ns.
const INTO: f64 = 740.0;

#[test]
fn by_interrupt_a_job_works_on_both_sides_and_sleeps_between() {
    let ([run, spin, light], latency) = each(&machine(), &load(Way::Interrupt, 1, 1));
    // Half a switch to leave, while the drive works already; out of light sleep; the interrupt; half a switch to come back.
    let back = 500.0 + 900.0 + 300.0 + 800.0;
    close(latency, INTO + AWAY + back, 1e-3);
    close(run, 100.0 + INTO + 800.0 + 900.0 + 300.0 + 800.0, 1e-3);
    close(light, AWAY - 800.0 + 500.0, 1e-3);
    assert_eq!(spin, 0.0);
}

#[test]
fn classic_polling_looks_all_the_while() {
    let ([run, spin, light], latency) = each(&machine(), &load(Way::Classic, 1, 1));
    close(latency, INTO + AWAY + 40.0 + 300.0, 1e-3);
    close(run, 100.0 + INTO + 300.0, 1e-3);
    close(spin, AWAY + 40.0, 1e-3);
    assert_eq!(light, 0.0);
}

#[test]
fn hybrid_polling_sleeps_half_and_looks_for_the_rest() {
    let ([run, spin, light], latency) = each(&machine(), &load(Way::Hybrid, 1, 1));
    // Armed on the way in; woken by the timer after half of the mean, which is the drive's.
    let asleep = AWAY / 2.0 - 800.0;
    let awake = 500.0 + 600.0 + 800.0;
    close(latency, INTO + 600.0 + AWAY + 40.0 + 300.0, 1e-3);
    close(light, asleep + 500.0, 1e-3);
    close(spin, AWAY / 2.0 - awake + 40.0, 1e-3);
    close(run, 100.0 + INTO + 600.0 + 800.0 + 600.0 + 800.0 + 300.0, 1e-3);
}

#[test]
fn what_each_engine_takes_of_its_processor() {
    // With so much in progress that the processor never waits: its time for a request.
    let machine =
        Local { drive: Drive { link_bytes_per_s: 1_000_000_000_000, command_ns: 10, ..machine().drive }, ..machine() };
    let busy = |way| {
        let load = load(way, 1, 64);
        load.duration_ns as f64 / measured(&load, &sim::run(&machine, &load)).requests
    };
    // Interrupts find several requests each, so that the last term is at most the interrupt.
    let (libaio, uring) = (busy(Way::Libaio), busy(Way::Uring));
    assert!((1_190.0..=2_090.0).contains(&libaio), "{libaio}");
    assert!((1_200.0..=2_100.0).contains(&uring), "{uring}");
    close(busy(Way::Bypass), 500.0, 0.01);
    // Of the two threads that share the work of polled io_uring, the one in the kernel has more.
    close(busy(Way::UringPolled), 740.0 + 300.0, 0.01);
    // A synchronous engine keeps one request in progress, whatever depth is asked.
    let sync = load(Way::PosixAio, 1, 64);
    let tally = sim::run(&machine, &sync);
    close(tally.reads.mean(), INTO + 1_500.0 + 10.0 + 5_000.0 + 500.0 + 900.0 + 300.0 + 800.0, 0.01);
}

#[test]
fn a_core_is_paid_once_for_both_of_its_threads() {
    let machine = machine();
    let energy = |jobs| {
        let load = load(Way::Classic, jobs, 1);
        let slot = measured(&load, &sim::run(&machine, &load));
        (slot, slot.energy(&machine, 0, load.duration_ns as f64))
    };
    let (two, of_two) = energy(2);
    let (four, of_four) = energy(4);
    // Two cores never rest; four threads work more of the time than two, and look the rest of it.
    close(two.core_ns[0] + two.core_ns[1], 2.0 * 20e6, 1e-3);
    close(four.core_ns[0] + four.core_ns[1], 2.0 * 20e6, 1e-3);
    close(four.run_ns + four.spin_ns, 4.0 * 20e6, 1e-3);
    assert!(four.core_ns[0] <= four.run_ns && of_two.cpu_uj < of_four.cpu_uj);
    // Half of it all is the least for looking, all of it the most for work.
    let most_uj = (10.0 + 7.0 + 2.0 * 3.0) * 20e6 / 1e3;
    assert!(of_four.cpu_uj <= most_uj * 1.0001, "{} {most_uj}", of_four.cpu_uj);
}

#[test]
fn threads_that_sleep_lightly_on_one_core_take_what_one_takes() {
    // A drive so slow that everybody sleeps nearly all the time, lightly.
    let mut machine = machine();
    machine.drive.front_ns = 150_000;
    let watts = |jobs| {
        let load = load(Way::Interrupt, jobs, 1);
        let slot = measured(&load, &sim::run(&machine, &load));
        close(slot.core_ns.iter().sum::<f64>(), 2.0 * 20e6, 2e-3);
        assert!(slot.light_ns > f64::from(jobs) * 0.9 * 20e6);
        slot.energy(&machine, 0, load.duration_ns as f64).cpu_uj / 20e3
    };
    let (two, four) = (watts(2), watts(4));
    assert!(four - two < 0.05 * two, "two threads more on the same cores: {two} W, then {four} W");
}

#[test]
fn nobody_sleeps_deeply_while_somebody_rests_lightly() {
    // One job rests lightly for 150 us at a time, which is known only when it is woken; the other is asleep deeply, and works now and then.
    let mut machine = machine();
    machine.drive.front_ns = 150_000;
    let load = Load { think_after: 0, ..load(Way::Interrupt, 2, 1) };
    let slot = measured(&load, &sim::run(&machine, &load));
    close(slot.awake_ns, 20e6, 1e-3);
    machine.drive.front_ns = 400_000;
    let one = Load { jobs: 1, ..load };
    let slot = measured(&one, &sim::run(&machine, &one));
    // Deeply asleep but for its work, which includes coming back.
    close(slot.awake_ns / slot.requests, 100.0 + INTO + 800.0 + 30_000.0 + 900.0 + 300.0 + 800.0, 0.02);
}

#[test]
fn energy_of_a_slot_by_hand() {
    let machine = machine();
    let slot = Slot {
        run_ns: 99e6,
        core_ns: [0.2e6, 0.4e6, 0.5e6],
        awake_ns: 0.8e6,
        switches: 50.0,
        read_bytes: 3e6,
        written_bytes: 5e6,
        rest_ns: 0.3e6,
        asleep_ns: 0.1e6,
        gc_ns: 0.25e6,
        ..Slot::default()
    };
    // A millisecond: 0.2 + 0.4 / 2 + 0.5 / 5 = 0.5 ms of work on two cores, a quarter of all: 4.5 W each.
    let cpu_uj = 10_000.0 + 7_000.0 * 0.8 + 4_500.0 * 0.5 + 50.0 * 0.04;
    let drive_uj = 2_400.0 * 0.6 + 1_700.0 * 0.3 + 1_200.0 * 0.1 + 3e6 * 1e-3 + 5e6 * 2e-3 + 2_000.0 * 0.25;
    let energy = slot.energy(&machine, 0, 1e6);
    close(energy.cpu_uj, cpu_uj, 1e-9);
    close(energy.drive_uj, drive_uj, 1e-9);
    close(energy.system_uj, 30_000.0 + 1.1 * (cpu_uj + drive_uj), 1e-9);
    let slower = slot.energy(&machine, 1, 1e6);
    close(slower.drive_uj, drive_uj - 1_700.0 * 0.25, 1e-9);
}

#[test]
fn a_sum_takes_its_share_of_slots_that_it_cuts() {
    let mut tally = Tally::new(10 * MS);
    tally.over(0, 10 * MS, |slot, ns| slot.run_ns += ns);
    tally.over(2 * MS, 7 * MS, |slot, ns| slot.gc_ns += ns);
    for (from, to) in [(0, 10 * MS), (2_300_000, 6_100_000), (2_300_000, 2_400_000), (MS, 3 * MS)] {
        close(tally.sum(from, to).run_ns, (to - from) as f64, 1e-9);
    }
    close(tally.sum(MS, 3 * MS).gc_ns, 1e6, 1e-9);
}

#[test]
fn siblings_slow_each_other_down_and_others_do_not() {
    let mut machine = machine();
    machine.host.sibling_slows_ppm = 500_000;
    let iops = |jobs| {
        let load = load(Way::Bypass, jobs, 32);
        let machine = Local {
            drive: Drive { command_ns: 1, link_bytes_per_s: 1 << 50, ..machine.drive.clone() },
            ..machine.clone()
        };
        measured(&load, &sim::run(&machine, &load)).requests
    };
    let (one, two, three, four) = (iops(1), iops(2), iops(3), iops(4));
    close(two, 2.0 * one, 0.01);
    close(four, 4.0 * one / 1.5, 0.01);
    close(three, one + 2.0 * one / 1.5, 0.01);
}

#[test]
fn jobs_that_share_a_processor_take_turns() {
    let mut machine = machine();
    (machine.host.cores, machine.host.threads_per_core) = (1, 1);
    let load = load(Way::Classic, 3, 1);
    let tally = sim::run(&machine, &load);
    let cycle = 100.0 + INTO + AWAY + 40.0 + 300.0;
    close(measured(&load, &tally).requests, 20e6 / cycle, 0.01);
    // Who waits for the processor has not submitted: a request takes as long as alone.
    close(tally.reads.mean(), cycle - 100.0, 1e-3);
    // By interrupt others work while one waits, and the drive is the limit.
    let load = Load { way: Way::Interrupt, jobs: 8, ..load };
    close(measured(&load, &sim::run(&machine, &load)).requests, 20e6 / 4_240.0, 0.06);
}

#[test]
fn an_interrupt_takes_further_completions_with_it() {
    // Requests of two jobs are done 100 ns apart: the second finds the first one's interrupt at work.
    let mut machine = machine();
    (machine.host.cores, machine.host.threads_per_core) = (1, 1);
    (machine.drive.link_bytes_per_s, machine.drive.command_ns) = (1_000_000_000_000, 100);
    let load = load(Way::Interrupt, 8, 1);
    let slot = measured(&load, &sim::run(&machine, &load));
    assert!(slot.interrupts < slot.requests && slot.interrupts > 0.0, "{} of {}", slot.interrupts, slot.requests);
    close(slot.switches / slot.requests, 1.0, 0.01);
    let alone = Load { jobs: 1, ..load };
    let slot = measured(&alone, &sim::run(&machine, &alone));
    close(slot.interrupts / slot.requests, 1.0, 0.01);
}

#[test]
fn a_lock_is_held_as_long_as_its_scheduler_says() {
    let mut machine = machine();
    (machine.host.cores, machine.host.threads_per_core) = (16, 1);
    machine.drive.link_bytes_per_s = 1 << 50;
    for (scheduler, hold_ns) in
        [(Scheduler::None, 1_000.0), (Scheduler::Kyber, 2_000.0), (Scheduler::Deadline, 3_000.0)]
    {
        let load = Load { scheduler, ..load(Way::Interrupt, 16, 1) };
        let slot = measured(&load, &sim::run(&machine, &load));
        close(20e6 / slot.requests, hold_ns, 0.02);
        // Fifteen wait for whoever holds it, and work.
        let waits = if scheduler == Scheduler::None { 0.0 } else { hold_ns };
        assert!(
            slot.run_ns / slot.requests >= 100.0 + INTO + 1_600.0 + 300.0 + waits,
            "{}",
            slot.run_ns / slot.requests
        );
    }
}

#[test]
fn rests_begin_when_a_burst_is_back() {
    let machine = machine();
    let rests = Load { think_after: 3, think_ns: MS, ..load(Way::Classic, 1, 1) };
    let tally = sim::run(&machine, &rests);
    let each = 100.0 + INTO + AWAY + 40.0 + 300.0;
    close(measured(&rests, &tally).requests, 3.0 * 20e6 / (3.0 * each + 1e6), 0.06);
    // Spinning is a part of the rest, as fio has it.
    let spins = Load { think_spin_ns: MS / 4, ..rests.clone() };
    let slot = measured(&spins, &sim::run(&machine, &spins));
    close(slot.requests, measured(&rests, &tally).requests, 1e-9);
    assert!(slot.run_ns > 0.2 * 20e6, "{}", slot.run_ns);
}

fn device(machine: &Local, load: &Load) -> (Device, Tally) {
    (Device::new(&machine.drive, load), Tally::new(1_000 * MS))
}

#[test]
fn reads_queue_in_the_controller_and_wait_for_flash() {
    let mut machine = machine();
    let (mut drive, mut tally) = device(&machine, &load(Way::Uring, 1, 1));
    assert_eq!(drive.submit(0, 4_096, false, &mut tally), 4_096 + 5_000);
    assert_eq!(drive.submit(1_000, 4_096, false, &mut tally), 2 * 4_096 + 5_000);
    // Small commands take what a command takes.
    assert_eq!(drive.submit(100_000, 512, false, &mut tally), 100_000 + 1_000 + 5_000);
    // A larger request than a command may be is cut.
    assert_eq!(drive.submit(10 * MS, 3 << 20, false, &mut tally), 10 * MS + 3 * 1_048_576 + 5_000);
    // One unit of flash: one read after the other, each by its size.
    (machine.drive.units, machine.drive.unit_ns, machine.drive.unit_ns_per_kib) = (1, 30_000, 1_000);
    let (mut drive, mut tally) = device(&machine, &load(Way::Uring, 1, 1));
    assert_eq!(drive.submit(0, 4_096, false, &mut tally), 4_096 + 34_000 + 5_000);
    assert_eq!(drive.submit(0, 8_192, false, &mut tally), 4_096 + 34_000 + 2 * 34_000 + 5_000, "two pages");
    // Sequential ones are read ahead, at their own rate.
    machine.drive.stream_bytes_per_s = 500_000_000;
    let (mut drive, mut tally) = device(&machine, &Load { sequential: true, ..load(Way::Uring, 1, 1) });
    assert_eq!(drive.submit(0, 4_096, false, &mut tally), 8_192 + 5_000);
    assert_eq!(drive.submit(0, 4_096, true, &mut tally), 8_192 + 4_096 + 6_000, "writes have the link's");
}

#[test]
fn a_sequence_pays_for_each_turn_once() {
    let mut machine = machine();
    machine.drive.turn_ns = 700;
    let (mut drive, mut tally) = device(&machine, &Load { sequential: true, ..load(Way::Uring, 1, 1) });
    let mut at = 0;
    let mut takes = |write, bytes| {
        at += 10 * MS;
        drive.submit(at, bytes, write, &mut tally) - at
    };
    assert_eq!(takes(true, 2 << 20), 700 + 2 * 1_048_576 + 6_000, "two commands, one turn");
    assert_eq!(takes(true, 4_096), 4_096 + 6_000);
    assert_eq!(takes(false, 4_096), 700 + 4_096 + 5_000);
    assert_eq!(takes(false, 4_096), 4_096 + 5_000);
}

#[test]
fn a_lower_state_lets_through_so_much() {
    let machine = machine();
    for (writes_ppm, rate) in [(0, 100e6), (1_000_000, 50e6)] {
        let mut small = machine.clone();
        small.drive.buffer_bytes = 0;
        let load = Load { state: 1, writes_ppm, duration_ns: 200 * MS, ..load(Way::Uring, 1, 16) };
        let slot = measured(&load, &sim::run(&small, &load));
        close((slot.read_bytes + slot.written_bytes) / 0.2, rate, 0.1);
    }
}

#[test]
fn writes_are_done_in_the_buffer_until_it_is_full_and_then_at_flash_s_rate() {
    let mut machine = machine();
    machine.drive.buffer_bytes = 4_096 * 100;
    let (mut drive, mut tally) = device(&machine, &load(Way::Uring, 1, 1));
    // It fills by what comes at 1 GB/s less what leaves at 0.5.
    let done: Vec<u64> = (0..400).map(|_| drive.submit(0, 4_096, true, &mut tally)).collect();
    assert_eq!(done[0], 4_096 + 6_000);
    assert_eq!(done[100], 101 * 4_096 + 6_000, "still in the buffer");
    // Each one more waits for one to leave: 8,192 ns.
    assert!(done[300..].windows(2).all(|two| two[1] - two[0] == 8_192), "{:?}", &done[300..310]);
    // Before the last is done, all but what the buffer holds is in flash.
    assert_eq!(done[399] - 6_000, 4_096 + 400 * 8_192 - 100 * 8_192);
    // It is empty when the rest has left.
    assert_eq!(drive.quiet_ns(), 4_096 + 400 * 8_192);
}

#[test]
fn a_full_cache_takes_as_much_as_is_moved() {
    let mut machine = machine();
    (machine.drive.buffer_bytes, machine.drive.cache_bytes) = (0, 4_096 * 50);
    let (mut drive, mut tally) = device(&machine, &load(Way::Uring, 1, 1));
    let done: Vec<u64> = (0..100).map(|_| drive.submit(0, 4_096, true, &mut tally)).collect();
    assert_eq!(done[49] - done[48], 8_192, "0.5 GB/s");
    assert!(done[50..].windows(2).all(|two| two[1] - two[0] == 40_960), "0.1 GB/s");
    assert_eq!(drive.to_move_ns(), 50 * 4_096, "what is moved meanwhile is not owed");
}

#[test]
fn what_is_owed_is_moved_when_the_drive_is_left_alone_and_not_before() {
    let mut machine = machine();
    machine.drive.buffer_bytes = 0;
    let (mut drive, mut tally) = device(&machine, &load(Way::Uring, 1, 1));
    let done = (0..20).map(|_| drive.submit(0, 1 << 20, true, &mut tally)).last().unwrap_or(0);
    let owed = 20 << 20;
    assert_eq!(drive.to_move_ns(), owed);
    // Within the first 10 ms nothing is moved.
    drive.submit(done + 9 * MS, 512, false, &mut tally);
    assert_eq!(drive.to_move_ns(), owed);
    let quiet = drive.quiet_ns();
    drive.submit(quiet + 15 * MS, 512, false, &mut tally);
    assert_eq!(drive.to_move_ns(), owed - 5 * MS, "5 ms of it");
    let quiet = drive.quiet_ns();
    // Then all of it; and the drive rests, as soon as it is done moving and has been left alone for 60 ms.
    let last = drive.submit(quiet + 100 * MS, 512, false, &mut tally);
    assert_eq!((drive.to_move_ns(), last), (0, quiet + 100 * MS + 90_000 + 1_000 + 5_000));
    let all = tally.sum(0, 1_000 * MS);
    assert_eq!((all.gc_ns, all.rest_ns), (owed as f64, 40e6));
}

#[test]
fn autonomous_transitions_come_after_their_own_time() {
    let machine = machine();
    let asleep = |autonomous, length_ns| {
        let load = Load { autonomous, ..load(Way::Uring, 1, 1) };
        let (mut drive, mut tally) = device(&machine, &load);
        drive.idle(length_ns, &mut tally);
        let all = tally.sum(0, 1_000 * MS);
        (all.rest_ns, all.asleep_ns)
    };
    assert_eq!(asleep(false, 250 * MS), (190e6, 0.0));
    assert_eq!(asleep(true, 250 * MS), (40e6, 150e6));
    assert_eq!(asleep(true, 90 * MS), (30e6, 0.0));
    assert_eq!(asleep(true, 50 * MS), (0.0, 0.0));
}

#[test]
fn random_writes_look_up_their_block_where_the_map_is_not_in_memory() {
    let mut machine = machine();
    (machine.drive.units, machine.drive.unit_ns, machine.drive.unit_ns_per_kib) = (1, 30_000, 1_000);
    let write = |map_reads, sequential| {
        let mut machine = machine.clone();
        machine.drive.map_reads = map_reads;
        let (mut drive, mut tally) = device(&machine, &Load { sequential, ..load(Way::Uring, 1, 1) });
        drive.submit(0, 4_096, true, &mut tally)
    };
    assert_eq!(write(false, false), 4_096 + 6_000);
    assert_eq!(write(true, true), 4_096 + 6_000);
    assert_eq!(write(true, false), 4_096 + 30_000 + 6_000);
}

#[test]
fn times_that_are_drawn_have_the_mean_that_is_said() {
    let mut machine = machine();
    for random_ppm in [300_000, 1_000_000] {
        machine.drive.random_ppm = random_ppm;
        let (mut drive, mut tally) = device(&machine, &load(Way::Uring, 1, 1));
        let takes: Vec<f64> =
            (1..=20_000).map(|at| (drive.submit(at * MS, 4_096, false, &mut tally) - at * MS - 5_000) as f64).collect();
        let mean = takes.iter().sum::<f64>() / takes.len() as f64;
        let deviation = (takes.iter().map(|ns| (ns - mean).powi(2)).sum::<f64>() / takes.len() as f64).sqrt();
        close(mean, 4_096.0, 0.03);
        // An exponential part has its mean as deviation.
        close(deviation, 4_096.0 * random_ppm as f64 / 1e6, 0.05);
    }
}

#[test]
fn latency_is_counted_in_the_measured_time_and_energy_all_the_time() {
    let machine = machine();
    let load = Load { ramp_ns: 10 * MS, ..load(Way::Classic, 1, 1) };
    let tally = sim::run(&machine, &load);
    let all = tally.sum(0, 30 * MS);
    close(tally.reads.count() as f64 / all.requests, 2.0 / 3.0, 0.01);
    assert_eq!(tally.writes.count(), 0);
    let mixed = Load { writes_ppm: 250_000, ..load };
    let tally = sim::run(&machine, &mixed);
    let share = tally.writes.count() as f64 / (tally.writes.count() + tally.reads.count()) as f64;
    close(share, 0.25, 0.15);
    let all = tally.sum(0, 30 * MS);
    close(all.written_bytes / (all.read_bytes + all.written_bytes), share, 0.05);
}
