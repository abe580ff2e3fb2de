//! The main job, as the example runs it: the same answer under every schedule, nothing allocated and nothing waited
//! for during replay, and no wait too few.

#[path = "../examples/digits/app.rs"]
mod app;
#[path = "../examples/digits/files.rs"]
mod files;
#[path = "../examples/digits/header.rs"]
mod header;
#[path = "../examples/digits/network.rs"]
mod network;
#[path = "../examples/digits/options.rs"]
mod options;
#[path = "../examples/digits/pipeline.rs"]
mod pipeline;
#[path = "../examples/digits/report.rs"]
mod report;

use cuda_driver::Call;
use cuda_runtime::Runtime;
use cuda_sim::{OperationKind, SimBuilder, SimDriver, TimelineSpan};
use files::Input;
use ndarray::{Array2, s};
use network::Network;
use options::Options;
use pipeline::Outcome;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const BATCH: usize = 16;

fn input(args: &[&str]) -> Result<Input, String> {
    let args = ["digits"].iter().chain(args).map(OsString::from);
    let options = Options::parse(args).map_err(|error| error.to_string())?;
    Input::load(&options.ok_or("help")?).map_err(|error| error.to_string())
}

/// Enough images for several batches, the last one not full.
fn few_images() -> Array2<f32> {
    input(&[]).unwrap().images.slice(s![..100, ..]).to_owned()
}

fn run(simulation: SimBuilder, images: &Array2<f32>) -> (Outcome, SimDriver) {
    let runtime = Runtime::builder().simulation(simulation).build().unwrap();
    let simulated = runtime.simulation().unwrap().clone();
    let outcome = pipeline::run(&runtime, &Network::load().unwrap(), images, BATCH).unwrap();
    (outcome, simulated)
}

#[test]
fn every_schedule_gives_the_same_logits_and_no_report() {
    let (network, images) = (Network::load().unwrap(), few_images());
    let mut first = None;
    for seed in 1..=200 {
        let (outcome, simulated) = run(SimDriver::builder().seed(seed), &images);
        simulated.assert_no_reports();
        assert!(simulated.shutdown().is_empty(), "seed {seed} leaks");
        outcome.check(&network, &images).unwrap();
        let logits = first.get_or_insert_with(|| outcome.logits.clone());
        assert_eq!(*logits, outcome.logits, "seed {seed}");
    }
}

#[test]
fn the_digits_are_read_as_well_as_the_network_was_trained() {
    let all = input(&[]).unwrap();
    let runtime = Runtime::builder().build().unwrap();
    let network = Network::load().unwrap();
    let outcome = pipeline::run(&runtime, &network, &all.images, all.batch).unwrap();
    let mut table = Vec::new();
    report::print(&mut table, &runtime, &outcome, &all).unwrap();
    assert!(
        String::from_utf8(table)
            .unwrap()
            .contains("99.05 % (1780 of 1797)")
    );
    let labels = all.labels.unwrap();
    let right = labels.iter().zip(&outcome.classes);
    assert_eq!(right.filter(|(label, class)| label == class).count(), 1780);
}

#[test]
fn replay_allocates_nothing_and_waits_on_the_host_once() {
    let (outcome, _) = run(SimDriver::builder(), &few_images());
    let calls = outcome.replay.calls;
    let batches = outcome.batches as u64;
    assert_eq!(batches, 7);
    // The one wait is for the results.
    assert_eq!(calls.of(Call::StreamSynchronize), 1);
    assert_eq!(calls.of(Call::GraphLaunch), batches);
    assert_eq!(calls.of(Call::MemcpyHtoDAsync), batches);
    assert_eq!(calls.of(Call::MemcpyDtoHAsync), 2 * batches);
    assert_eq!(calls.of(Call::EventRecord), 4 * batches);
    assert!(calls.of(Call::StreamWaitEvent) <= 4 * batches);
    let expected = [
        Call::StreamSynchronize,
        Call::GraphLaunch,
        Call::MemcpyHtoDAsync,
        Call::MemcpyDtoHAsync,
        Call::EventRecord,
        Call::StreamWaitEvent,
        // Until the events in flight are enough; then they are recycled.
        Call::EventCreate,
    ];
    for (call, count) in calls.iter() {
        assert!(
            expected.contains(&call),
            "{count} calls of {call} in replay"
        );
    }
}

#[test]
fn events_are_recycled_once_enough_are_in_flight() {
    let (few, _) = run(SimDriver::builder(), &few_images());
    let (many, _) = run(SimDriver::builder(), &input(&[]).unwrap().images);
    assert!(many.batches > 10 * few.batches);
    let created = |outcome: &Outcome| outcome.replay.calls.of(Call::EventCreate);
    assert_eq!(created(&many), created(&few));
}

#[test]
fn the_watermark_is_that_of_a_real_arena() {
    let (outcome, _) = run(SimDriver::builder(), &few_images());
    // Both hidden layers of one batch, each rounded up to the arena's alignment.
    let layer = |width: usize| (BATCH * width * 4).next_multiple_of(256);
    assert_eq!(outcome.watermark_bytes, layer(48) + layer(32));
    assert!(outcome.slab_bytes < outcome.watermark_bytes + 256);
}

#[test]
fn copies_of_the_next_batch_overlap_the_compute_of_the_current_one() {
    let (_, simulated) = run(SimDriver::builder().timeline(true), &few_images());
    let timeline = simulated.timeline();
    let of_kind = |wanted: fn(&OperationKind) -> bool| -> Vec<_> {
        let spans = timeline.spans();
        spans.filter(|span| wanted(&span.operation.kind)).collect()
    };
    let copies = of_kind(|kind| matches!(kind, OperationKind::CopyToDevice));
    let kernels = of_kind(|kind| matches!(kind, OperationKind::Kernel(_)));
    let overlapping = copies.iter().filter(|copy| {
        let beside = |kernel: &&TimelineSpan| {
            copy.operation.stream != kernel.operation.stream
                && copy.start < kernel.end
                && kernel.start < copy.end
        };
        kernels.iter().any(|kernel| beside(&kernel))
    });
    assert!(overlapping.count() >= 3, "of {} copies", copies.len());
}

/// Without any one of its waits the job fails: the simulated device reports what is not ordered any more.
#[test]
fn a_missing_wait_is_caught() {
    let images = few_images();
    let (_, complete) = run(SimDriver::builder(), &images);
    let waits = complete_waits(&complete);
    assert!(waits > 20);
    for n in 1..=waits {
        let simulation = SimDriver::builder().build();
        simulation.faults().forget_wait(n);
        let runtime = Runtime::builder()
            .driver(simulation.as_driver())
            .build()
            .unwrap();
        // The answer may be right by luck, or wrong; the report tells in either case.
        let _ = pipeline::run(&runtime, &Network::load().unwrap(), &images, BATCH);
        let refused = report::refuse(&simulation.reports());
        assert!(refused.is_err(), "nothing reported without wait {n}");
    }
}

fn complete_waits(simulated: &SimDriver) -> u64 {
    use cuda_driver::Driver;
    simulated.counters().snapshot().of(Call::StreamWaitEvent)
}

/// Writes a `.npy` file, header by hand.
fn npy(name: &str, dtype: &str, shape: &str, data: &[u8]) -> PathBuf {
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 11;
    header.push_str(&" ".repeat(padded - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn a_file_that_cant_be_used_gives_one_clear_line() {
    let two = || vec![0.5; 128];
    let mut with_nan = two();
    with_nan[64 + 7] = f32::NAN;
    let short = &floats(two())[..300];
    let files = [
        (PathBuf::from("/nowhere/x.npy"), "No such file"),
        (
            npy("short.npy", "<f4", "(2, 64)", short),
            "ends before its data does",
        ),
        (
            npy("double.npy", "<f8", "(2, 64)", &[0; 1024]),
            "holds '<f8', not f32",
        ),
        (
            npy("shape.npy", "<f4", "(4, 32)", &floats(two())),
            "has shape [4, 32]",
        ),
        (npy("empty.npy", "<f4", "(0, 64)", &[]), "holds no images"),
        (
            npy("nan.npy", "<f4", "(2, 64)", &floats(with_nan)),
            "value 7 of row 1 is not a finite",
        ),
    ];
    let text = Path::new(env!("CARGO_TARGET_TMPDIR")).join("text.npy");
    std::fs::write(&text, "not an array").unwrap();
    for (path, reason) in files.into_iter().chain([(text, "is not a .npy file")]) {
        let error = input(&["--images", path.to_str().unwrap()]).unwrap_err();
        assert!(error.contains(reason), "{error}");
        assert!(error.starts_with(path.to_str().unwrap()), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// The program with these arguments: its exit code and what it says.
fn program(args: &[&str]) -> (u8, String, String) {
    let args = ["digits"].iter().chain(args).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = app::main(args, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

#[test]
fn the_program_says_in_one_line_what_is_wrong() {
    let header = |shape: &str| npy("header.npy", "<f4", shape, &floats(vec![0.5; 128]));
    for (shape, reason) in [
        ("(0, 18446744073709551615)", "more than can be counted"),
        ("(18446744073709551615, 0)", "more than can be counted"),
        ("(1000000000, 64)", "ends before its data does"),
        ("(4294967296, 4294967296)", "more than can be counted"),
        ("(1, 64)", "has 256 bytes after its data"),
        ("(-2, 64)", "is not a .npy file"),
    ] {
        let path = header(shape);
        let (code, out, err) = program(&["--images", path.to_str().unwrap()]);
        assert_eq!((code, out.as_str()), (1, ""), "{shape}");
        assert!(err.contains(reason), "{shape}: {err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let long_header = [b"\x93NUMPY\x02\x00".as_slice(), &[0xff; 4], b"{'descr'"].concat();
    for (path, reason) in [
        (folder.to_owned(), "is a directory"),
        (write("nothing.npy", b""), "is not a .npy file"),
        (
            write("cut.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr'"),
            "ends before its header does",
        ),
        (
            write("long.npy", &long_header),
            "has a header of 4294967295 bytes",
        ),
        (
            write("two\nlines.npy", b"x"),
            "two\\nlines.npy: is not a .npy file",
        ),
    ] {
        let (code, _, err) = program(&["--images", path.to_str().unwrap()]);
        assert_eq!(code, 1);
        assert!(err.contains(reason), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (code, _, err) = program(&["--trace", "/nowhere/trace.json"]);
    assert!(
        code == 1 && err.contains("can't write /nowhere/trace.json"),
        "{err}"
    );
    let (code, _, err) = program(&["--what"]);
    assert!(code == 2 && err.lines().count() == 1, "{err}");
}

#[test]
fn the_program_writes_its_table_and_a_trace() {
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace.json");
    let images = npy("table.npy", "<f4", "(3, 64)", &floats(vec![0.25; 192]));
    let args = [
        "--images",
        images.to_str().unwrap(),
        "--trace",
        trace.to_str().unwrap(),
    ];
    let (code, out, err) = program(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.contains("batches                       1 of 3"),
        "{out}"
    );
    assert!(std::fs::read_to_string(trace).unwrap().contains("gemm_f32"));
    let (code, out, _) = program(&["--help"]);
    assert!(code == 0 && out.contains("--batch"));
}

#[test]
fn numbers_that_are_too_large_are_no_mismatch() {
    let images = npy("large.npy", "<f4", "(2, 64)", &floats(vec![f32::MAX; 128]));
    let (code, _, err) = program(&["--images", images.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn whoever_stops_reading_is_no_failure_and_a_full_disk_is_one() {
    struct Refuses(std::io::ErrorKind);
    impl std::io::Write for Refuses {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Err(self.0.into())
        }
    }
    for (kind, expected) in [
        (std::io::ErrorKind::BrokenPipe, 0),
        (std::io::ErrorKind::StorageFull, 1),
    ] {
        let args = ["digits", "--help"].map(OsString::from);
        let mut err = Vec::new();
        let code = app::main(args, &mut Refuses(kind), &mut err);
        assert_eq!(code, expected);
        assert_eq!(err.is_empty(), expected == 0);
    }
}

#[test]
fn labels_are_checked_against_the_images() {
    let images = npy("two.npy", "<f4", "(2, 8, 8)", &floats(vec![0.5; 128]));
    let with = |labels: &Path| {
        let (images, labels) = (images.to_str().unwrap(), labels.to_str().unwrap());
        input(&["--images", images, "--labels", labels])
    };
    let loaded = with(&npy(
        "wide.npy",
        "<i8",
        "(2,)",
        &[3_i64, 9].map(i64::to_le_bytes).concat(),
    ));
    let loaded = loaded.unwrap();
    assert_eq!(loaded.labels.unwrap().to_vec(), [3, 9]);
    assert_eq!((loaded.images.dim(), loaded.batch), ((2, 64), 2));
    for (labels, reason) in [
        (
            npy("three.npy", "|u1", "(3,)", &[1, 2, 3]),
            "has 3 labels for 2 images",
        ),
        (
            npy("eleven.npy", "|u1", "(2,)", &[1, 11]),
            "label 1 is 11, not a digit",
        ),
        (
            npy("real.npy", "<f4", "(2,)", &floats([1.0, 2.0])),
            "holds '<f4', not u8, i32 or i64",
        ),
    ] {
        let error = with(&labels).unwrap_err();
        assert!(error.contains(reason) && !error.contains('\n'), "{error}");
    }
    for args in [
        &["--batch", "0"][..],
        &["--batch", "9999"],
        &["--labels", "x"],
        &["--seed", "-1"],
        &["--what"],
    ] {
        assert!(
            input(args).is_err_and(|error| !error.contains('\n')),
            "{args:?}"
        );
    }
}
