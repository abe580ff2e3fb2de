//! Rules of the driver that only its C interface can break, asked as a C program would: the legacy stream, streams that order
//! with it, and contexts of threads.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) type Handle = usize;

unsafe extern "C" {
    fn cuInit(flags: u32) -> u32;
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) -> u32;
    fn cuCtxSetCurrent(context: Handle) -> u32;
    fn cuStreamCreate(stream: *mut Handle, flags: u32) -> u32;
    pub(crate) fn cuStreamSynchronize(stream: Handle) -> u32;
    pub(crate) fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> u32;
    pub(crate) fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) -> u32;
    pub(crate) fn cuGraphDestroy(graph: Handle) -> u32;
    pub(crate) fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    pub(crate) fn cuMemFree_v2(address: u64) -> u32;
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: Handle) -> u32;
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> u32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> u32;
    fn carve_sim_take_reports(count: *mut u64) -> c_int;
}

const LEGACY: [Handle; 2] = [0, 1];
const BLOCKING: u32 = 0;
pub(crate) const NON_BLOCKING: u32 = 1;
const RELAXED: u32 = 2;
const ELEMENTS: usize = 8;

/// A call of the interface with pointers to values of the test's own.
macro_rules! call {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: pointers are to values that live, and the simulation tells its handles from other numbers.
        unsafe { $name($($arg),*) }
    };
}
pub(crate) use call;

/// The one simulation of the process, for one test at a time.
pub(crate) fn open() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(call!(cuInit(0)), 0);
    enter();
    reports();
    alone
}

fn enter() {
    let mut context = 0;
    assert_eq!(call!(cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
    assert_eq!(call!(cuCtxSetCurrent(context)), 0);
}

pub(crate) fn reports() -> u64 {
    let mut count = 0;
    assert_eq!(call!(carve_sim_take_reports(&mut count)), 0);
    count
}

pub(crate) fn stream(flags: u32) -> Handle {
    let mut stream = 0;
    assert_eq!(call!(cuStreamCreate(&mut stream, flags)), 0);
    stream
}

fn memory() -> u64 {
    let mut address = 0;
    assert_eq!(call!(cuMemAlloc_v2(&mut address, 4 * ELEMENTS)), 0);
    address
}

fn read(address: u64) -> [u32; ELEMENTS] {
    let mut values = [0; ELEMENTS];
    let to = values.as_mut_ptr().cast();
    assert_eq!(call!(cuMemcpyDtoH_v2(to, address, 4 * ELEMENTS)), 0);
    values
}

/// The legacy stream synchronises with every blocking stream of its context; streams with the non-blocking flag are exempt.
#[test]
fn the_legacy_stream_orders_with_blocking_streams_only() {
    let _alone = open();
    for legacy in LEGACY {
        for flags in [BLOCKING, NON_BLOCKING] {
            let (stream, x, y) = (stream(flags), memory(), memory());
            assert_eq!(call!(cuMemsetD32Async(x, 7, ELEMENTS, stream)), 0);
            assert_eq!(call!(cuMemcpyDtoDAsync_v2(y, x, 4 * ELEMENTS, legacy)), 0);
            assert_eq!(call!(cuMemsetD32Async(y, 9, ELEMENTS, stream)), 0);
            if flags == BLOCKING {
                assert_eq!((read(x), read(y)), ([7; ELEMENTS], [9; ELEMENTS]));
                assert_eq!(reports(), 0);
            } else {
                assert_eq!(call!(cuStreamSynchronize(stream)), 0);
                assert!(reports() > 0, "nothing orders the two");
            }
            assert_eq!((call!(cuMemFree_v2(x)), call!(cuMemFree_v2(y))), (0, 0));
            reports();
        }
    }
}

/// The legacy stream is not captured [900]. Work on it that would order with a capturing blocking stream fails [906] and
/// invalidates the capture, whose end says so [901]; a capture of a non-blocking stream is not disturbed.
#[test]
fn the_legacy_stream_and_captures_keep_apart() {
    let _alone = open();
    let x = memory();
    for legacy in LEGACY {
        assert_eq!(call!(cuStreamBeginCapture_v2(legacy, RELAXED)), 900);
        for (flags, touched, ended) in [(BLOCKING, 906, 901), (NON_BLOCKING, 0, 0)] {
            let stream = stream(flags);
            let mut graph = 0;
            assert_eq!(call!(cuStreamBeginCapture_v2(stream, RELAXED)), 0);
            let touch = call!(cuMemsetD32Async(x, 1, ELEMENTS, legacy));
            assert_eq!(touch, touched, "legacy stream {legacy}, flags {flags}");
            assert_eq!(call!(cuStreamEndCapture(stream, &mut graph)), ended);
            assert_eq!(graph == 0, ended != 0);
            if graph != 0 {
                assert_eq!(call!(cuGraphDestroy(graph)), 0);
            }
            assert_eq!(call!(cuStreamSynchronize(stream)), 0);
        }
    }
    read(x);
    assert_eq!(call!(cuMemFree_v2(x)), 0);
    reports();
}

/// The current context is the thread's own [201 without one]; requests of no bytes and second frees are refused [1].
#[test]
fn contexts_are_of_threads_and_nothing_is_no_allocation() {
    let _alone = open();
    let x = memory();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut address = 0;
            assert_eq!(call!(cuMemAlloc_v2(&mut address, 4)), 201);
            enter();
            assert_eq!(call!(cuMemAlloc_v2(&mut address, 0)), 1);
            assert_eq!(call!(cuMemFree_v2(x)), 0);
        });
    });
    assert_eq!(call!(cuMemFree_v2(x)), 1);
    reports();
}
