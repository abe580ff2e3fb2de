//! What every driver behind the port has to do, as tests.
//!
//! The suite is written once, against `dyn Driver`. [`contract!`](crate::contract) makes tests of it for one driver:
//!
//! ```
//! use cuda_contract::Subject;
//! mod simulated {
//!     cuda_contract::contract!(crate::subject);
//! }
//! fn subject() -> Subject {
//!     Subject::new(cuda_sim::SimDriver::builder().devices(2).build().as_driver())
//! }
//! # fn main() { assert!(subject().has(cuda_contract::Need::TwoDevices)); }
//! ```
//!
//! A test says what it [needs](Need): on a subject that lacks it, the test says so on standard error and does nothing
//! more. What the suite asks for is what the CUDA documentation says and Carve leans on; where drivers may differ, it asks
//! for nothing. It does nothing that is undefined on hardware.
//!
//! # Modules
//!
//! `emulated` (with feature `cuda`: questions to the emulated driver), `subject` ([`Subject`], [`Need`], [`Bench`]: one device with what tests need of it), `failing`
//! ([`Failing`]: a driver whose calls fail on request), `kernels` (the kernels of the
//! suite), `signatures` (of C functions, to compare declarations), and the tests by area: `devices`, `memory`, `order`, `copies`, `launches`, `captures`, `graphs`.

mod captures;
mod copies;
mod devices;
#[cfg(feature = "cuda")]
pub mod emulated;
mod failing;
mod graphs;
pub mod kernels;
mod launches;
mod memory;
mod order;
pub mod signatures;
mod subject;

pub use failing::{Failing, Seen, Unwound};
pub use subject::{Bench, Need, Subject};

use std::sync::{Mutex, PoisonError};

/// One test of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Contract {
    /// Its name, with the area in front.
    pub name: &'static str,
    /// What the subject has to have.
    pub needs: &'static [Need],
    /// The test.
    pub test: fn(&Subject),
}

impl Contract {
    /// Runs the test, or says why not.
    pub fn check(&self, subject: &Subject) {
        match self.needs.iter().find(|need| !subject.has(**need)) {
            None => {
                let _alone = subject.is_exclusive().then(|| {
                    static ALONE: Mutex<()> = Mutex::new(());
                    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
                });
                (self.test)(subject);
            }
            Some(need) => eprintln!("{}: not run, the subject has no {need}", self.name),
        }
    }
}

macro_rules! contracts {
    ($($area:ident { $($(#[$needs:meta])? $test:ident $([$($need:ident),*])?;)* })*) => {
        $(
            /// Tests of one area, by name.
            #[doc(hidden)]
            #[allow(non_upper_case_globals, reason = "named as the tests")]
            pub mod $area {
                use $crate::{Contract, Need};
                $(
                    pub const $test: Contract = Contract {
                        name: concat!(stringify!($area), "::", stringify!($test)),
                        needs: { #[allow(unused_imports, reason = "few need anything")] use Need::*; &[$($($need),*)?] },
                        test: super::super::$area::$test,
                    };
                )*
            }
        )*

        /// Every test.
        pub const ALL: &[$crate::Contract] = &[$($($area::$test),*),*];

        /// Makes a test of each contract. The argument is a function that returns the [`Subject`](crate::Subject); each
        /// test calls it.
        #[macro_export]
        macro_rules! contract {
            ($subject:path) => {
                $(
                    mod $area {
                        $(
                            #[test]
                            fn $test() {
                                $crate::list::$area::$test.check(&$subject());
                            }
                        )*
                    }
                )*
            };
        }
    };
}

/// The tests.
pub mod list {
    contracts! {
        devices {
            devices_are_numbered_from_zero;
            memory_in_use_is_not_free;
            no_other_device_exists;
            peers_are_other_devices [TwoDevices];
        }
        memory {
            addresses_are_aligned_and_apart;
            no_bytes_is_an_invalid_request;
            more_than_there_is_is_refused_and_changes_nothing;
            pool_memory_is_valid_behind_its_allocation [Pools];
            a_pool_tells_what_is_in_use [Pools];
            a_pool_above_its_threshold_keeps_its_memory [Pools];
            devices_without_pools_say_so;
            page_locked_memory_is_the_hosts;
            memory_of_the_program_is_registered_once;
        }
        order {
            a_stream_runs_in_order;
            an_event_orders_two_streams;
            a_wait_looks_at_the_record_there_is;
            events_that_were_never_recorded_are_complete;
            case_27_an_event_is_recorded_on_its_own_device [TwoDevices];
            another_devices_stream_can_wait [TwoDevices];
            times_grow_and_need_a_flag;
            priorities_are_clamped;
            destroying_a_stream_lets_its_work_finish;
            calls_of_other_threads_find_their_context;
        }
        copies {
            bytes_go_there_and_back;
            patterns_of_three_sizes_fill;
            a_fill_must_be_aligned;
            devices_copy_to_each_other [TwoDevices];
            rows_are_copied_and_the_rest_is_not_touched;
            rows_go_to_another_device [TwoDevices];
            rows_are_filled_and_the_rest_is_not_touched;
        }
        launches {
            a_kernel_computes;
            arguments_of_every_size_arrive;
            there_is_no_other_kernel;
            a_grid_of_nothing_is_refused;
            a_host_function_runs_between_its_neighbours;
        }
        captures {
            captured_work_runs_when_it_is_launched;
            a_capture_has_a_status;
            streams_join_by_events_and_must_come_back;
            work_from_outside_is_kept_out;
            a_captured_event_means_nothing_outside;
            synchronising_a_captured_stream_ends_the_capture;
            allocating_is_forbidden_on_the_capturing_thread;
            a_loaded_kernel_is_captured_before_its_first_launch;
            a_capture_begins_and_ends_once;
            modes_are_exchanged;
        }
        graphs {
            replays_see_what_is_there_then;
            an_executable_graph_outlives_its_graph;
            host_functions_run_at_each_replay_and_are_dropped_in_the_end;
            an_update_changes_parameters;
            an_update_of_another_shape_changes_nothing;
            a_launch_gets_other_arguments;
            a_graph_in_a_capture_is_a_node;
            memory_of_a_graph_is_freed_by_the_next_launch [Pools];
        }
    }
}
