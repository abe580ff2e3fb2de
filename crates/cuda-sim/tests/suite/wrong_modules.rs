//! Modules that are unloaded too early, each with the one report that it deserves, and some that are unloaded in time.

use crate::corpus::{self, Wrong};
use crate::kernels::MODULE;
use crate::kit::{D0, Gpu, seeds};
use cuda_driver::{
    Argument, CaptureMode, DevicePtr, ErrorCode, EventFlags, Events, GraphUpdate, Graphs, Kernels,
    LaunchConfig, RawFunction, RawGraph, RawModule, RawStream, Streams,
};
use cuda_sim::{Finding, SimDriver};

/// Another copy of the kit's module, which nothing has used yet.
struct Extra<'a> {
    gpu: &'a Gpu,
    module: RawModule,
    step: RawFunction,
}

impl<'a> Extra<'a> {
    fn load(gpu: &'a Gpu) -> Self {
        let module = gpu.sim.module_load(D0, &MODULE).unwrap();
        let step = gpu.sim.module_function(D0, module, "step").unwrap();
        gpu.sim.function_load(D0, step).unwrap();
        Self { gpu, module, step }
    }

    #[track_caller]
    fn step(&self, stream: RawStream, x: DevicePtr) {
        let config = LaunchConfig::for_elements(1).unwrap();
        let args = [
            Argument::scalar(1_u32),
            Argument::scalar(3_u32),
            Argument::Pointer(x),
        ];
        // SAFETY: the simulated device checks arguments, ranges and order.
        unsafe { self.gpu.sim.launch(D0, self.step, &config, stream, &args) }.unwrap();
    }

    #[track_caller]
    fn unload(&self) {
        unload(self.gpu, self.module);
    }

    /// A captured step.
    #[track_caller]
    fn captured(&self, stream: RawStream, x: DevicePtr) -> RawGraph {
        self.gpu.begin(stream);
        self.step(stream, x);
        self.gpu.end(stream)
    }
}

#[track_caller]
fn unload(gpu: &Gpu, module: RawModule) {
    // SAFETY: the simulated device looks whether it may.
    unsafe { gpu.sim.module_unload(D0, module) }.unwrap();
}

/// A value that the host knows to be there.
fn value(gpu: &Gpu, stream: RawStream) -> DevicePtr {
    let x = gpu.alloc(4);
    gpu.fill(stream, x, 1, 1);
    gpu.synchronize(stream);
    x
}

const EARLY: &str = "unload before launch ends";
const GONE: &str = "unloaded module";

const PROGRAMS: &[Wrong] = &[
    ("unloaded under a launch", &[EARLY], |gpu| {
        let (a, extra) = (gpu.stream(), Extra::load(gpu));
        extra.step(a, value(gpu, a));
        extra.unload();
    }),
    (
        "unloaded under a launch that has ended, which the host does not know",
        &[EARLY],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            extra.step(a, value(gpu, a));
            gpu.sim.run_all();
            extra.unload();
        },
    ),
    (
        "unloaded when the last launch of one stream has ended, of two",
        &[EARLY],
        |gpu| {
            let (a, b, extra) = (gpu.stream(), gpu.stream(), Extra::load(gpu));
            let (x, y) = (value(gpu, a), value(gpu, a));
            extra.step(a, x);
            extra.step(b, y);
            gpu.synchronize(b);
            extra.unload();
        },
    ),
    (
        "unloaded after the host has waited for an earlier launch",
        &[EARLY],
        |gpu| {
            let (a, event, extra) = (gpu.stream(), gpu.event(), Extra::load(gpu));
            let x = value(gpu, a);
            extra.step(a, x);
            gpu.record(event, a);
            extra.step(a, x);
            gpu.sim.event_synchronize(D0, event).unwrap();
            extra.unload();
        },
    ),
    (
        "unloaded under a launch of a stream that was destroyed",
        &[EARLY],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            extra.step(a, value(gpu, a));
            gpu.destroy_stream(a);
            gpu.synchronize(gpu.stream());
            extra.unload();
        },
    ),
    ("unloaded under a replay", &[EARLY], |gpu| {
        let (a, extra) = (gpu.stream(), Extra::load(gpu));
        let x = value(gpu, a);
        let exec = gpu.instantiate(extra.captured(a, x));
        gpu.replay(exec, a).unwrap();
        extra.unload();
    }),
    (
        "unloaded under a replay whose graphs are destroyed",
        &[EARLY],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            let x = value(gpu, a);
            let graph = extra.captured(a, x);
            let exec = gpu.instantiate(graph);
            gpu.replay(exec, a).unwrap();
            gpu.destroy_exec(exec);
            gpu.destroy_graph(graph);
            extra.unload();
        },
    ),
    (
        "unloaded under a replay of a graph within another",
        &[EARLY],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            let x = value(gpu, a);
            let child = extra.captured(a, x);
            gpu.begin(a);
            cuda_driver::Capture::capture_child(&gpu.sim, D0, a, child).unwrap();
            let exec = gpu.instantiate(gpu.end(a));
            gpu.replay(exec, a).unwrap();
            extra.unload();
        },
    ),
    (
        "unloaded under a launch that replaced one of another module",
        &[EARLY],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            let x = value(gpu, a);
            gpu.begin(a);
            gpu.step(a, x, 1, 1);
            let node = cuda_driver::Capture::capture_frontier(&gpu.sim, D0, a).unwrap()[0];
            let exec = gpu.instantiate(gpu.end(a));
            let config = LaunchConfig::for_elements(1).unwrap();
            let args = [
                Argument::scalar(1_u32),
                Argument::scalar(3_u32),
                Argument::Pointer(x),
            ];
            // SAFETY: the simulated device checks what the node touches.
            unsafe {
                gpu.sim
                    .graph_exec_set_kernel(D0, exec, node, extra.step, &config, &args)
            }
            .unwrap();
            gpu.replay(exec, a).unwrap();
            extra.unload();
        },
    ),
    ("a replay after the unload", &[GONE], |gpu| {
        let (a, extra) = (gpu.stream(), Extra::load(gpu));
        let x = value(gpu, a);
        let exec = gpu.instantiate(extra.captured(a, x));
        gpu.replay(exec, a).unwrap();
        gpu.synchronize(a);
        extra.unload();
        let refused = gpu.replay(exec, a).unwrap_err();
        assert_eq!(refused.code, ErrorCode::INVALID_HANDLE);
    }),
    (
        "a replay after the unload, when another module has the handles",
        &[GONE],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            let x = value(gpu, a);
            let exec = gpu.instantiate(extra.captured(a, x));
            extra.unload();
            let other = Extra::load(gpu);
            assert_eq!((other.module, other.step), (extra.module, extra.step));
            gpu.replay(exec, a).unwrap_err();
        },
    ),
    ("a graph made executable after the unload", &[GONE], |gpu| {
        let (a, extra) = (gpu.stream(), Extra::load(gpu));
        let graph = extra.captured(a, value(gpu, a));
        extra.unload();
        let refused = gpu.sim.graph_instantiate(D0, graph).unwrap_err();
        assert_eq!(refused.code, ErrorCode::INVALID_HANDLE);
    }),
    (
        "unloaded in the middle of a relaxed capture",
        &[GONE],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            let x = value(gpu, a);
            let capture: &dyn cuda_driver::Capture = &gpu.sim;
            capture.capture_begin(D0, a, CaptureMode::Relaxed).unwrap();
            extra.step(a, x);
            capture.exchange_capture_mode(CaptureMode::Relaxed).unwrap();
            extra.unload();
            capture.exchange_capture_mode(CaptureMode::Global).unwrap();
            let graph = gpu.end(a);
            gpu.sim.graph_instantiate(D0, graph).unwrap_err();
        },
    ),
    (
        "a graph becomes part of another after the unload",
        &[GONE],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            let child = extra.captured(a, value(gpu, a));
            extra.unload();
            gpu.begin(a);
            let refused = cuda_driver::Capture::capture_child(&gpu.sim, D0, a, child);
            assert_eq!(refused.unwrap_err().code, ErrorCode::INVALID_HANDLE);
            gpu.end(a);
        },
    ),
    (
        "a graph takes over launches after the unload",
        &[GONE],
        |gpu| {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            let x = value(gpu, a);
            gpu.begin(a);
            gpu.step(a, x, 1, 1);
            let exec = gpu.instantiate(gpu.end(a));
            let graph = extra.captured(a, x);
            extra.unload();
            // SAFETY: the simulated device checks what the nodes touch.
            let refused = unsafe { gpu.sim.graph_exec_update(D0, exec, graph) };
            assert_eq!(refused.unwrap_err().code, ErrorCode::INVALID_HANDLE);
            gpu.replay(exec, a).unwrap();
        },
    ),
];

#[test]
fn each_is_caught_under_every_seed() {
    corpus::under_every_seed(PROGRAMS);
}

#[test]
fn each_is_caught_in_submission_order_and_on_threads() {
    corpus::under_other_schedules(PROGRAMS);
}

#[test]
fn reports_are_short_and_name_this_file() {
    corpus::with_short_reports(PROGRAMS, "wrong_modules.rs:");
}

#[test]
fn each_is_caught_by_its_check_alone() {
    corpus::by_its_check_alone(PROGRAMS);
}

#[test]
fn the_report_names_launch_module_and_unload() {
    let gpu = Gpu::seeded(3);
    let (a, extra) = (gpu.stream(), Extra::load(&gpu));
    let x = value(&gpu, a);
    let exec = gpu.instantiate(extra.captured(a, x));
    let captured = line!() - 1;
    gpu.replay(exec, a).unwrap();
    let launched = line!() - 1;
    extra.unload();
    let unloaded = line!() - 1;
    gpu.replay(exec, a).unwrap_err();
    let replayed = line!() - 1;
    let [early, gone] = &gpu.sim.reports()[..] else {
        panic!("{:?}", gpu.sim.reports())
    };
    let Finding::UnloadBeforeLaunchEnds {
        launched: launch,
        module,
        unloaded_at,
    } = &early.finding
    else {
        panic!("{early}")
    };
    assert_eq!((*module, unloaded_at.line()), ("kit", unloaded));
    let replay = launch.launched_at.map(|site| site.line());
    assert_eq!((launch.stream, replay), (Some(a), Some(launched)));
    assert_eq!(launch.site.line(), captured);
    let Finding::UnloadedModule {
        site,
        launch,
        unloaded_at,
        ..
    } = &gone.finding
    else {
        panic!("{gone}")
    };
    let lines = [site, launch.site, unloaded_at].map(|site| site.line());
    assert_eq!(lines, [replayed, captured, unloaded]);
    let text = gone.to_string();
    assert!(text.contains("its module `kit` was unloaded"), "{text}");
}

#[test]
fn unloads_after_the_last_launch_are_right() {
    seeds(200, |gpu| {
        let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
        let (x, y) = (value(gpu, a), value(gpu, a));
        // Never launched; launched and waited for by stream, by event on another stream, and by a question.
        Extra::load(gpu).unload();
        let extra = Extra::load(gpu);
        extra.step(a, x);
        gpu.synchronize(a);
        extra.unload();
        let extra = Extra::load(gpu);
        extra.step(a, x);
        gpu.edge(a, b);
        extra.step(b, y);
        gpu.record(event, b);
        gpu.step(b, y, 1, 1);
        gpu.sim.event_synchronize(D0, event).unwrap();
        extra.unload();
        let extra = Extra::load(gpu);
        extra.step(a, x);
        while !gpu.sim.stream_query(D0, a).unwrap() {}
        // Of a stream that is gone, and whose place another has.
        gpu.destroy_stream(a);
        let a = gpu.stream();
        gpu.step(a, x, 1, 1);
        extra.unload();
        gpu.synchronize(a);
        // A launch of one module says nothing of another.
        let (extra, other) = (Extra::load(gpu), Extra::load(gpu));
        other.step(a, x);
        extra.unload();
        gpu.synchronize(a);
        other.unload();
        gpu.synchronize(b);
        gpu.clean();
    });
}

#[test]
fn graphs_outlive_the_modules_that_they_use_no_more() {
    seeds(50, |gpu| {
        let a = gpu.stream();
        let x = value(gpu, a);
        let (old, new) = (Extra::load(gpu), Extra::load(gpu));
        let (graph, next) = (old.captured(a, x), new.captured(a, x));
        let exec = gpu.instantiate(graph);
        gpu.replay(exec, a).unwrap();
        gpu.synchronize(a);
        // SAFETY: the simulated device checks what the nodes touch.
        let updated = unsafe { gpu.sim.graph_exec_update(D0, exec, next) }.unwrap();
        assert_eq!(updated, GraphUpdate::Updated);
        old.unload();
        gpu.replay(exec, a).unwrap();
        gpu.synchronize(a);
        // Destroying what could not be launched any more is no use of it.
        new.unload();
        gpu.destroy_exec(exec);
        gpu.destroy_graph(graph);
        gpu.destroy_graph(next);
        gpu.clean();
    });
}

/// The thread that unloads is none of those that launched: what one of them has waited for, the host knows.
#[test]
fn unloads_on_another_thread_are_looked_at_the_same_way() {
    seeds(20, |gpu| {
        for waits in [false, true] {
            let (a, extra) = (gpu.stream(), Extra::load(gpu));
            extra.step(a, value(gpu, a));
            if waits {
                gpu.synchronize(a);
            }
            let (sim, module) = (gpu.sim.clone(), extra.module);
            // SAFETY: the simulated device looks whether it may.
            let unload = move || unsafe { sim.module_unload(D0, module) };
            std::thread::spawn(unload).join().unwrap().unwrap();
            let expected: &[&str] = if waits { &[] } else { &[EARLY] };
            assert_eq!(gpu.kinds(), expected);
            let _ = gpu.sim.take_reports();
        }
    });
}

/// A launch on one device does not keep another's module.
#[test]
fn modules_are_those_of_their_device() {
    let sim = SimDriver::builder().devices(2).build();
    let (here, there) = (
        Gpu::on(sim.clone(), D0),
        Gpu::on(sim.clone(), cuda_driver::DeviceId(1)),
    );
    let (a, b) = (here.stream(), there.stream());
    there.step(b, value(&there, b), 1, 1);
    unload(&here, here.module);
    here.clean();
    here.synchronize(a);
    let event = sim
        .event_create(there.device, EventFlags::default())
        .unwrap();
    there.record(event, b);
    here.wait(a, event);
    // Waiting for a stream of another device that waits for it tells as much.
    here.synchronize(a);
    // SAFETY: the simulated device looks whether it may.
    unsafe { sim.module_unload(there.device, there.module) }.unwrap();
    here.clean();
}
