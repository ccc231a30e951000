//! Conformance tests of the commands, for every plant.
//!
//! A policy must behave the same in the simulator and in the server, so both must interpret its commands alike. The cases run over a
//! small trait ([`Plant`]): a scripted policy ([`script`]) issues commands, waits for their effects in samples, and logs everything. They
//! check only what a policy can observe, and assert order and states, never times, as plants may be slow.
//!
//! A separate crate, as `sim` and `reactor` do not depend on each other. Both call [`suite!`] in `tests/conformance.rs`; the cases for
//! bandwidth caps ([`cap_suite!`]) and latencies ([`latency`]) run on `sim` and `nvmf-target`.

mod budget;
pub mod caps;
pub mod cases;
pub mod latency;
pub mod script;

use pilotlight_plant::{Goals, Policy};
use script::Board;

/// The plant of a case.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Number of cores, without siblings; core 0 is the main core.
    pub cores: u16,
    /// Number of I/O threads; thread `i` starts on core `i` modulo `cores`.
    pub threads: u16,
    /// The I/O threads that receive a steady load until [`Board::feeds`] is false, or for most of the run.
    pub fed: Vec<u16>,
    /// Whether the machine refuses all knobs.
    pub refuses: bool,
    /// Whether the sensors stop after some time.
    pub sensors_fail: bool,
    /// Changes of goals, one after the other within one interval, some time after the start.
    pub goals: Vec<Goals>,
}

/// A policy and its board.
pub type PolicyAndBoard = (Box<dyn Policy>, Board);

/// A plant under test. Its first reading is power, which falls when its first knob is set to the lowest value.
pub trait Plant {
    /// A suitable policy interval, in nanoseconds; a run has some hundreds of them.
    fn interval_ns(&self) -> u64;

    /// Runs `policy` until some intervals after [`Board::is_done`], or until a timeout. Returns the requests sent to each I/O thread, all of
    /// which were polled.
    fn run(&mut self, setup: &Setup, policy: Box<dyn Policy>, board: &Board) -> Vec<u64>;

    /// Runs `first` until it is done, then `second` on the same plant.
    fn exchange(&mut self, setup: &Setup, first: PolicyAndBoard, second: PolicyAndBoard);

    /// A power budget in microwatts that is exceeded initially, and that each knob alone, and a single core, can keep.
    fn budget_uw(&self) -> u64;
}

/// A test for each case; `$plant` creates a [`Plant`].
#[macro_export]
macro_rules! suite {
    ($plant:expr) => {
        $crate::suite!($plant;
            a_moved_thread_is_served_by_its_new_core
            the_last_of_several_moves_applies
            a_move_to_the_present_core_changes_nothing
            a_core_sleeps_when_its_last_thread_has_left
            a_sleeping_core_wakes_for_a_move
            a_wake_up_cancels_a_pending_sleep
            a_move_cancels_a_pending_sleep_of_its_core
            a_core_is_woken_by_command
            the_sleep_depth_follows_the_capabilities
            the_main_core_does_not_sleep
            a_core_with_an_incoming_thread_does_not_sleep
            a_move_to_the_present_core_does_not_prevent_sleep
            unknown_subjects_are_refused
            unsupported_commands_are_refused
            interrupt_mode_lets_the_core_rest
            a_thread_in_interrupt_mode_is_served_and_moves
            hybrid_polling_serves
            requests_are_counted_once
            samples_cover_the_whole_plant
            a_quiet_policy_is_called_at_its_deadline
            ticks_with_requests_are_not_skipped
            a_knob_can_be_refused_later
            readings_go_stale
            every_change_of_goals_is_delivered
            a_quiet_policy_is_called_after_a_change_of_goals
            wants_may_change_with_the_goals
            an_io_thread_has_the_class_of_its_hosts
            knobs_are_restored_between_policies
            a_budget_is_kept_with_a_power_limit
            a_budget_is_kept_with_a_quota
            a_budget_is_kept_with_fewer_cores
            a_budget_is_kept_by_thunderbolt
            a_budget_is_kept_by_pass
        );
    };
    ($plant:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::cases::$case(&mut $plant);
            }
        )*
    };
}
