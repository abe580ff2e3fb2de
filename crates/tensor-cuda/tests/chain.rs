//! The chain example: energies of the closed form, under every order; overlap; bad arguments.

#[path = "../examples/chain/app.rs"]
mod app;
#[path = "../examples/chain/exact.rs"]
mod exact;
#[path = "../examples/chain/lanczos.rs"]
mod lanczos;
#[path = "../examples/chain/operators.rs"]
mod operators;
#[path = "../examples/chain/options.rs"]
mod options;
#[path = "../examples/chain/picture.rs"]
mod picture;

use cuda_runtime::Runtime;
use cuda_sim::SimDriver;
use options::Options;
use std::sync::Arc;

fn call(args: &[&str]) -> (u8, String, String) {
    let args = ["chain"].iter().chain(args).map(|arg| arg.into());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = app::main(args, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

#[test]
fn energies_are_those_of_the_closed_form_under_every_order() {
    let mut seed = 0;
    for sites in [4, 5, 7] {
        for field in [0.0, 0.3, 1.0, 2.5] {
            seed += 1;
            let simulation = SimDriver::builder().seed(seed);
            let streams = 1 + seed as usize % 5;
            let builder = Runtime::builder().streams_per_device(streams);
            let runtime = builder.simulation(simulation).build().unwrap();
            let options = Options {
                sites,
                field,
                streams,
                trace: None,
            };
            let quiet = Arc::new(|_, _, _| {});
            let sectors = app::solve(&runtime, &options, &[false, true], quiet).unwrap();
            for app::Solved { energy, exact, .. } in sectors {
                assert!(
                    (energy - exact).abs() < app::TOLERANCE,
                    "{options:?}: {energy} {exact}"
                );
            }
            runtime.simulation().unwrap().assert_no_reports();
            for (_, alive) in runtime.shutdown().unwrap() {
                assert_eq!(alive, Default::default());
            }
        }
    }
}

#[test]
fn blocks_overlap_and_the_timeline_is_written() {
    let path = std::env::temp_dir().join(format!("carve-chain-{}.json", std::process::id()));
    let file = path.to_str().unwrap();
    let (code, out, err) = call(&["--sites", "14", "--trace", file]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let trace = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(trace.contains("traceEvents"), "{}", &trace[..200]);
    let number = |before: &str| {
        let rest = out.split(before).nth(1).unwrap_or_else(|| panic!("{out}"));
        let number = rest.split(' ').next().unwrap();
        number.parse::<f64>().unwrap_or_else(|_| panic!("{out}"))
    };
    assert!(
        number("up to ") >= 3.0 && number("once and ") >= 1.5,
        "{out}"
    );
    assert!(out.contains("ground state: -17.86280854076"), "{out}");
}

/// The sectors have nothing to do with each other: both together take less device time than one after the other.
#[test]
fn sectors_overlap() {
    let options = Options {
        sites: 13,
        field: 1.0,
        streams: 8,
        trace: None,
    };
    let time = |odd: &[bool]| {
        let simulation = SimDriver::builder().timeline(true);
        let builder = Runtime::builder().streams_per_device(options.streams);
        let runtime = builder.simulation(simulation).build().unwrap();
        app::solve(&runtime, &options, odd, Arc::new(|_, _, _| {})).unwrap();
        let timeline = runtime.simulation().unwrap().timeline();
        timeline.makespan().as_secs_f64() * 1e3
    };
    // One alone takes as long as the other.
    let [even, both] = [&[false][..], &[false, true]].map(time);
    println!("one {even:.2} ms, both at once {both:.2} ms");
    assert!(both < 1.8 * even, "{even} {both}");
}

#[test]
fn bad_arguments_get_an_answer_with_the_numbers_in_it() {
    for (args, says) in [
        (
            &["--sites", "3"][..],
            "--sites is 3, and 4 to 16 are possible",
        ),
        (&["--sites", "17"], "4 to 16"),
        (&["--sites", "x"], "x"),
        (&["--field", "-1"], "--field is -1"),
        (&["--field", "NaN"], "--field is NaN"),
        (
            &["--streams", "0"],
            "--streams is 0, and 1 to 64 are possible",
        ),
        (&["--streams"], "streams"),
        (&["--nonsense"], "--nonsense"),
    ] {
        let (code, out, err) = call(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains(says) && err.contains("--help"), "{err}");
    }
    let (code, out, err) = call(&["--sites", "4", "--trace", "/nowhere/at/all"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("can't write /nowhere/at/all"), "{err}");
    let (code, out, err) = call(&["--help"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("--streams N"));
}
