//! The contract, kept by the NVIDIA driver that the loader finds: a real one, or the emulated library.
//! `cargo xtask test-gpu` runs this, with `--emulated` on the latter.

use cuda_contract::Subject;
use cuda_driver::{DeviceId, Streams, hardware};
use std::ffi::c_void;
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

/// Work on the legacy default stream would order itself with every stream that lacks the flag.
#[test]
fn streams_do_not_order_with_the_legacy_stream() {
    type Flags = unsafe extern "C" fn(stream: *mut c_void, flags: *mut u32) -> u32;
    const NON_BLOCKING: u32 = 1;
    let address = hardware::driver_function(c"cuStreamGetFlags", 11_070).unwrap();
    // SAFETY: the driver's function of this name has this type, which has the size of a pointer.
    let flags_of = unsafe { std::mem::transmute::<*mut c_void, Flags>(address.as_ptr()) };
    let driver = hardware::open().unwrap();
    let stream = driver.stream_create(DeviceId(0), 0).unwrap();
    let (handle, mut flags) = (
        std::ptr::with_exposed_provenance_mut(stream.raw() as usize),
        0,
    );
    // SAFETY: it is a stream of this driver, and the flags are ours.
    assert_eq!(unsafe { flags_of(handle, &mut flags) }, 0);
    assert_eq!(flags, NON_BLOCKING);
    // SAFETY: nobody uses it afterwards.
    unsafe { driver.stream_destroy(DeviceId(0), stream) }.unwrap();
}
