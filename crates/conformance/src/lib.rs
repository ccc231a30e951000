//! What a command means, as tests that every plant passes.
//!
//! A policy that is tried in the simulator is to do the same in the server, so both must understand it alike. The cases here are
//! written once, over a small trait ([`Plant`]): a policy that follows a script ([`script`]) gives commands, waits for what it is told
//! of their effects, and remembers all of it. Nothing is looked at but what a policy sees, so whatever passes can be driven by the
//! same policies. Cases assert order and states, never times: plants may be slow.
//!
//! It is a crate of its own because `sim` and `reactor` do not know each other, and neither is to depend on the other's tests. Both
//! call [`suite!`] in `tests/conformance.rs`. The cases of bandwidth caps ([`cap_suite!`]) and of
//! latencies ([`latency`]) run on `sim` and `target`.

mod budget;
pub mod caps;
pub mod cases;
pub mod latency;
pub mod script;

use pilotlight_plant::{Goals, Policy};
use script::Board;

/// A small plant, as a case needs it.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Cores, none of them siblings; core 0 is the main core.
    pub cores: u16,
    /// I/O threads; thread `i` begins on core `i` modulo `cores`.
    pub threads: u16,
    /// The I/O threads that get requests, steadily, until [`Board::feeds`] says no more, or for most of the run.
    pub fed: Vec<u16>,
    /// Whether the machine refuses whatever is set.
    pub refuses: bool,
    /// Whether its sensors stop measuring after a while.
    pub sensors_fail: bool,
    /// What the operator asks for, one after the other within one interval, some time after the start.
    pub goals: Vec<Goals>,
}

/// A policy, and what it shares with its case.
pub type Turn = (Box<dyn Policy>, Board);

/// Something that a policy drives. Its first reading is of power, which falls where its first knob is set to its lowest value.
pub trait Plant {
    /// Time between two intervals that is convenient, in nanoseconds; some hundreds of them fit into a run.
    fn interval_ns(&self) -> u64;

    /// Runs `policy` on such a plant until [`Board::is_done`] and some intervals longer, or until it is clear that this will not
    /// come. How many requests each I/O thread has been given; all of them have been polled before the end.
    fn run(&mut self, setup: &Setup, policy: Box<dyn Policy>, board: &Board) -> Vec<u64>;

    /// Runs `first` on such a plant until it is done, and then `second`, which takes over.
    fn exchange(&mut self, setup: &Setup, first: Turn, second: Turn);

    /// A budget of the server that each of its knobs alone and one core alone can keep, and that is exceeded without: in microwatts.
    fn budget_uw(&self) -> u64;
}

/// One test for each case; `$plant` makes a [`Plant`].
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
