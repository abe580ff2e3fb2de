//! When a module may go, asked as a C program would: not before the host knows that the last launch of it has ended.

use crate::facts::{Handle, NON_BLOCKING, call, cuStreamSynchronize, open, reports, stream};
use crate::facts::{cuGraphDestroy, cuStreamBeginCapture_v2, cuStreamEndCapture};
use cuda_driver::hardware_models::{CArgument, CKernel, CLaunch, CRegion};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

unsafe extern "C" {
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> u32;
    fn cuModuleUnload(module: Handle) -> u32;
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const i8) -> u32;
    fn cuLaunchKernel(
        function: Handle,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: Handle,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> u32;
    fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, flags: u64) -> u32;
    fn cuGraphLaunch(exec: Handle, stream: Handle) -> u32;
    fn cuGraphExecDestroy(exec: Handle) -> u32;
    fn carve_sim_register_kernel(kernel: *const CKernel) -> c_int;
}

const PTX: &CStr =
    c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n";
const NAME: &str = "idle";

unsafe extern "C" fn touches_nothing(
    _: *const c_void,
    _: *const CArgument,
    _: usize,
    _: unsafe extern "C" fn(to: *mut c_void, region: *const CRegion),
    _: *mut c_void,
) -> c_int {
    0
}

unsafe extern "C" fn does_nothing(
    _: *const c_void,
    _: *const CLaunch,
    _: unsafe extern "C" fn(to: *mut c_void, text: *const u8, bytes: usize),
    _: *mut c_void,
) -> c_int {
    0
}

/// A module of one kernel, and that kernel, launched once.
fn load(stream: Handle) -> [Handle; 2] {
    let kernel = CKernel {
        name: NAME.as_ptr(),
        name_bytes: NAME.len(),
        params: null(),
        param_count: 0,
        kernel: null(),
        footprint: touches_nothing,
        model: does_nothing,
    };
    assert_eq!(call!(carve_sim_register_kernel(&kernel)), 0);
    let (mut module, mut function) = (0, 0);
    assert_eq!(call!(cuModuleLoadData(&mut module, PTX.as_ptr().cast())), 0);
    let name = c"idle".as_ptr();
    assert_eq!(call!(cuModuleGetFunction(&mut function, module, name)), 0);
    launch(function, stream);
    assert_eq!(call!(cuStreamSynchronize(stream)), 0);
    [module, function]
}

fn launch(function: Handle, stream: Handle) {
    let (params, extra) = (null_mut(), null_mut());
    let code = call!(cuLaunchKernel(
        function, 1, 1, 1, 1, 1, 1, 0, stream, params, extra
    ));
    assert_eq!(code, 0);
}

#[test]
fn a_module_is_unloaded_after_its_launches() {
    let _alone = open();
    let stream = stream(NON_BLOCKING);
    for waits in [true, false] {
        let [module, function] = load(stream);
        launch(function, stream);
        if waits {
            assert_eq!(call!(cuStreamSynchronize(stream)), 0);
        }
        assert_eq!(call!(cuModuleUnload(module)), 0);
        assert_eq!(reports(), u64::from(!waits));
        assert_eq!(call!(cuStreamSynchronize(stream)), 0);
    }
}

#[test]
fn a_graph_is_launched_while_its_module_is_there() {
    const RELAXED: u32 = 2;
    let _alone = open();
    let stream = stream(NON_BLOCKING);
    let [module, function] = load(stream);
    let (mut graph, mut exec) = (0, 0);
    assert_eq!(call!(cuStreamBeginCapture_v2(stream, RELAXED)), 0);
    launch(function, stream);
    assert_eq!(call!(cuStreamEndCapture(stream, &mut graph)), 0);
    assert_eq!(call!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), 0);
    assert_eq!(call!(cuGraphLaunch(exec, stream)), 0);
    assert_eq!((call!(cuStreamSynchronize(stream)), reports()), (0, 0));
    assert_eq!(call!(cuGraphLaunch(exec, stream)), 0);
    // Under the replay, and then there is nothing to launch any more [400].
    assert_eq!((call!(cuModuleUnload(module)), reports()), (0, 1));
    assert_eq!((call!(cuGraphLaunch(exec, stream)), reports()), (400, 1));
    assert_eq!(call!(cuStreamSynchronize(stream)), 0);
    let ends = (
        call!(cuGraphExecDestroy(exec)),
        call!(cuGraphDestroy(graph)),
    );
    assert_eq!((ends, reports()), ((0, 0), 0));
}
