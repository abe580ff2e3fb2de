//! The contract, kept by the NVIDIA driver that the loader finds: a real one, or the emulated library.
//! `cargo xtask test-gpu` runs this, with `--emulated` on the latter.

use cuda_contract::Subject;
use cuda_driver::hardware;
use std::sync::Arc;

mod driver {
    cuda_contract::contract!(crate::subject);
}

fn subject() -> Subject {
    match hardware::open() {
        Ok(hardware) => Subject::new(Arc::new(hardware)).exclusive(),
        Err(error) => panic!("{error}"),
    }
}
