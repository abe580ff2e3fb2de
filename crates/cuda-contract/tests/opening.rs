//! How the driver is opened, or why not. Each case runs in a process of its own, since a process opens it once.

use cuda_driver::hardware::{self, OpenError};
use cuda_driver::{Call, Devices, Driver, ErrorCode};
use std::process::Command;

/// What a child process prints when it opens the driver with these variables; without a value, a variable is removed.
fn opened(variables: &[(&str, Option<&str>)]) -> String {
    answer("child", variables)
}

/// What a test prints that runs in a process of its own.
fn answer(test: &str, variables: &[(&str, Option<&str>)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--ignored", "--nocapture"]);
    for (name, value) in variables {
        match value {
            Some(value) => child.env(name, value),
            None => child.env_remove(name),
        };
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = text.lines().find_map(|line| line.split_once("answer: "));
    answer.unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn child() {
    match hardware::open() {
        Ok(driver) => println!("answer: {:?} devices", driver.device_count().unwrap()),
        Err(error) => println!("answer: {error:?}"),
    }
}

/// Whether the driver is the emulated one, which the environment tells what to be.
fn is_emulated() -> bool {
    std::env::var_os("CARVE_SIM_DEVICES").is_some()
}

#[test]
fn without_a_library_there_is_no_driver() {
    if is_emulated() {
        assert_eq!(opened(&[("LD_LIBRARY_PATH", None)]), "NoDriver");
    }
}

#[test]
fn an_old_driver_is_told_with_its_version() {
    if is_emulated() {
        let answer = opened(&[("CARVE_SIM_VERSION", Some("11040"))]);
        assert_eq!(answer, "TooOld { version: Some(11040) }");
    }
}

#[test]
fn a_driver_that_does_not_start_is_told_by_its_code() {
    if is_emulated() {
        let code = |code| opened(&[("CARVE_SIM_INIT", Some(code))]);
        let refused = "Refused { code: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH [803] }";
        assert_eq!(code("803"), refused);
        assert_eq!(code("100"), "NoDevice { visible: None }");
        // Of the link library: a driver without the function.
        assert_eq!(code("36"), "TooOld { version: None }");
    }
}

#[test]
#[ignore = "run by the next test, in a process of its own"]
fn child_with_a_runtime() {
    match cuda_runtime::Runtime::builder().build() {
        Ok(runtime) => println!("answer: simulated {}", runtime.simulation().is_some()),
        Err(error) => println!("answer: {error}"),
    }
}

/// A runtime takes the driver, simulates where there is nothing to take, and fails where something is and can't be used.
#[test]
fn a_runtime_simulates_only_where_there_is_no_driver_or_device() {
    let built = |variable| answer("child_with_a_runtime", &[variable]);
    let simulated = "simulated true";
    assert_eq!(built(("CUDA_VISIBLE_DEVICES", Some(""))), simulated);
    if is_emulated() {
        let unchanged = ("CARVE_SIM_INIT", None);
        assert_eq!(built(unchanged), "simulated false");
        assert_eq!(built(("LD_LIBRARY_PATH", None)), simulated);
        let old = built(("CARVE_SIM_VERSION", Some("11040")));
        assert!(old.contains("supports CUDA 11.4, and CUDA 11.7"), "{old}");
        let refused = built(("CARVE_SIM_INIT", Some("802")));
        assert!(refused.contains("CUDA_ERROR_SYSTEM_NOT_READY"), "{refused}");
    }
}

#[test]
fn hidden_devices_are_no_devices() {
    let answer = opened(&[("CUDA_VISIBLE_DEVICES", Some(""))]);
    assert_eq!(answer, r#"NoDevice { visible: Some("") }"#);
    if is_emulated() {
        let answer = opened(&[
            ("CARVE_SIM_DEVICES", Some("0")),
            ("CUDA_VISIBLE_DEVICES", None),
        ]);
        assert_eq!(answer, "NoDevice { visible: None }");
    }
}

#[test]
fn visible_devices_are_counted() {
    assert_eq!(opened(&[("CUDA_VISIBLE_DEVICES", Some("0"))]), "1 devices");
    if is_emulated() {
        let list = |value| {
            opened(&[
                ("CARVE_SIM_DEVICES", Some("3")),
                ("CUDA_VISIBLE_DEVICES", Some(value)),
            ])
        };
        assert_eq!(list("2,0"), "2 devices");
        // The list ends at the first that does not exist.
        assert_eq!(list("1,7,2"), "1 devices");
    }
}

#[test]
#[ignore = "run by the next test, in a process of its own"]
fn child_that_loads_a_kernel() {
    use cuda_driver::Kernels;
    let (driver, device) = (hardware::open().unwrap(), cuda_driver::DeviceId(0));
    let module = &cuda_contract::kernels::MODULE;
    let module = driver.module_load(device, module).unwrap();
    let function = driver.module_function(device, module, "contract_count");
    let loaded = driver.function_load(device, function.unwrap());
    let calls = driver.counters().snapshot().of(Call::FuncLoad);
    let code = loaded.map_err(|error| error.code.name());
    println!("answer: {code:?} after {calls} calls");
}

/// Drivers before CUDA 12.4 lack the call; those before 12.2 load kernels with their module unless told not to.
#[test]
fn drivers_of_each_version_load_kernels_or_say_that_they_do_not() {
    if !is_emulated() {
        return;
    }
    let loaded = |version, mode| {
        let variables = [
            ("CARVE_SIM_VERSION", Some(version)),
            ("CUDA_MODULE_LOADING", mode),
        ];
        answer("child_that_loads_a_kernel", &variables)
    };
    let refused = r#"Err(Some("CUDA_ERROR_NOT_SUPPORTED")) after 0 calls"#;
    assert_eq!(loaded("12080", None), "Ok(()) after 1 calls");
    assert_eq!(loaded("12040", Some("LAZY")), "Ok(()) after 1 calls");
    assert_eq!(loaded("12020", None), refused);
    assert_eq!(loaded("12020", Some("EAGER")), "Ok(()) after 0 calls");
    assert_eq!(loaded("12010", None), "Ok(()) after 0 calls");
    assert_eq!(loaded("11070", Some("LAZY")), refused);
}

#[test]
#[ignore = "run by the next test, in a process of its own"]
fn child_in_null_mode() {
    use cuda_contract::emulated;
    use cuda_driver::{Events, Memory, Streams};
    let (driver, device) = (hardware::open().unwrap(), cuda_driver::DeviceId(0));
    assert!(emulated::is_null());
    let count = |name: &str| {
        let calls = emulated::calls();
        calls.iter().find(|(known, _)| *known == name).unwrap().1
    };
    let before = (count("cuEventRecord"), count("cuMemAlloc_v2"));
    let stream = driver.stream_create(device, 0).unwrap();
    let event = driver.event_create(device, Default::default()).unwrap();
    for _ in 0..3 {
        driver.event_record(device, event, stream).unwrap();
    }
    // More than any device has, since nothing is done.
    driver.mem_alloc(device, 1 << 60).unwrap();
    let made = (
        count("cuEventRecord") - before.0,
        count("cuMemAlloc_v2") - before.1,
    );
    println!("answer: {made:?}");
}

#[test]
fn in_null_mode_calls_succeed_and_are_counted_by_name() {
    if is_emulated() {
        let null = [("CARVE_SIM_NULL", Some("1"))];
        assert_eq!(answer("child_in_null_mode", &null), "(3, 1)");
    }
}

#[test]
#[ignore = "run by the next test, in a process of its own"]
fn child_that_frees_twice() {
    use cuda_driver::Memory;
    let (driver, device) = (hardware::open().unwrap(), cuda_driver::DeviceId(0));
    let memory = driver.mem_alloc(device, 256).unwrap();
    // SAFETY: nothing uses the memory.
    unsafe { driver.mem_free(device, memory) }.unwrap();
    // SAFETY: a driver refuses this, too.
    let again = unsafe { driver.mem_free(device, memory) };
    assert_eq!(again.unwrap_err().code, ErrorCode::INVALID_VALUE);
}

/// With `CARVE_SIM_STRICT` a process fails for what the simulation found, though all its tests passed.
#[test]
fn a_strict_emulation_fails_a_process_that_did_something_wrong() {
    if !is_emulated() {
        return;
    }
    for (strict, code) in [("0", 0), ("1", 86)] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child_that_frees_twice", "--ignored"]);
        let output = child.env("CARVE_SIM_STRICT", strict).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

/// Case 26 (pytorch/pytorch#17357): a forked child that uses the parent's state.
#[test]
fn case_26_a_forked_child_is_refused_and_the_parent_goes_on() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    let driver = hardware::open().unwrap();
    let parent = std::process::id();
    // SAFETY: the child makes no call that takes a lock, and ends without running destructors.
    let pid = unsafe { fork() };
    if pid == 0 {
        let refused = |result: Result<(), cuda_driver::CudaError>| {
            result.is_err_and(|error| error.code == ErrorCode::NOT_INITIALIZED)
        };
        let device = cuda_driver::DeviceId(0);
        let calls = driver.counters().snapshot().total();
        let all = refused(driver.device_count().map(drop))
            && refused(driver.memory_info(device).map(drop))
            && refused(cuda_driver::Memory::mem_alloc(&driver, device, 256).map(drop))
            && refused(driver.device_properties(device).map(drop));
        let opened = hardware::open().err();
        let told = matches!(
            opened,
            Some(OpenError::Forked { opened_by: Some(by), child }) if by == parent && child != parent
        );
        let counted = driver.counters().snapshot().total() - calls == 4;
        // SAFETY: ends the process.
        unsafe { _exit(i32::from(!(all && told && counted))) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to an integer of ours.
    assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert!(driver.device_count().unwrap() > 0);
}
