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
            a_moved_thread_is_served_by_its_new_home
            a_thread_that_is_moved_twice_ends_where_it_was_sent_last
            a_move_to_where_a_thread_lives_changes_nothing
            a_core_sleeps_when_its_last_thread_has_left
            a_sleeping_core_wakes_for_a_move
            a_wake_up_cancels_a_sleep_that_has_not_begun
            a_move_to_a_core_cancels_its_sleep
            a_core_is_woken_by_command
            a_core_sleeps_as_deep_as_the_plant_says
            the_main_core_does_not_sleep
            a_core_that_gets_a_thread_is_not_put_to_sleep
            a_thread_that_stays_is_not_on_its_way
            what_does_not_exist_is_refused
            what_the_plant_cannot_do_is_refused
            a_thread_that_waits_for_interrupts_lets_its_core_rest
            a_thread_that_waits_for_interrupts_is_served_and_moves
            hybrid_polling_serves
            nothing_is_lost_on_the_way
            samples_are_about_the_whole_plant
            a_quiet_policy_is_asked_when_it_says_and_not_before
            ticks_with_requests_are_not_left_out
            a_knob_is_refused_after_it_was_accepted
            readings_have_an_age_and_go_stale
            goals_that_change_within_an_interval_all_come
            a_quiet_policy_is_asked_after_its_goals_have_changed
            what_is_wanted_may_change_with_the_goals
            an_io_thread_carries_the_class_of_its_hosts
            what_a_policy_has_set_is_put_back_before_the_next_one
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
