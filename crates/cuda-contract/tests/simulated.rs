//! The contract, kept by the simulated device; with pools and without, under several schedules.

use cuda_contract::Subject;
use cuda_sim::{Schedule, SimDriver};

mod stepped {
    cuda_contract::contract!(crate::stepped_subject);
}

mod eager {
    cuda_contract::contract!(crate::eager_subject);
}

mod without_pools {
    cuda_contract::contract!(crate::subject_without_pools);
}

fn stepped_subject() -> Subject {
    Subject::new(
        SimDriver::builder()
            .devices(2)
            .priorities(0, -5)
            .build()
            .as_driver(),
    )
}

fn eager_subject() -> Subject {
    Subject::new(
        SimDriver::builder()
            .schedule(Schedule::Eager)
            .build()
            .as_driver(),
    )
}

fn subject_without_pools() -> Subject {
    Subject::new(SimDriver::builder().pools(false).build().as_driver())
}

#[test]
fn nothing_in_the_suite_is_a_misuse_but_what_is_meant_to_be_refused() {
    for seed in 0..16 {
        for contract in cuda_contract::list::ALL {
            let sim = SimDriver::builder().devices(2).seed(seed).build();
            contract.check(&Subject::new(sim.as_driver()));
            let meant = ["capture misuse", "bad launch"];
            for report in sim.take_reports() {
                assert!(
                    meant.contains(&report.kind()),
                    "{}, seed {seed}: {report}",
                    contract.name
                );
            }
        }
    }
}
