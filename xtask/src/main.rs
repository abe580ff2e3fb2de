//! The workspace's own commands: its checks, and what this machine offers.
//!
//! `cargo xtask help` lists them. Each command is one module. A command that cannot do its
//! work says why and exits with [`Failure::CANNOT`], so that a script never takes "nothing
//! was run" for "all was well".

#![forbid(unsafe_code)]

mod bench_calls;
mod bench_gpu;
mod ci;
mod doctor;
mod failure;
mod fuzz;
mod glibc;
mod gpu_bundle;
mod harness;
mod invocation;
mod loom;
mod miri;
mod peers;
mod ptx;
mod readme;
mod report;
mod sanitize;
mod test_capture;
mod test_gpu;
mod test_kernels;
mod toolchain;
mod toolkit;
mod workspace;

use std::process::ExitCode;

use failure::Failure;

const HELP: &str = "\
cargo xtask COMMAND

  ci                        every check that needs no special tool: format, clippy, docs, the
                            README's commands, doctests, the book
  sanitize [NAME]           tests under AddressSanitizer (address), ThreadSanitizer (thread), both
                            of which need nightly, and valgrind
  miri                      tests of the host-only crates under Miri (nightly)
  loom                      tests that are written for loom
  fuzz [--seconds N]        the fuzz target of space-arena, 60 s unless told otherwise (nightly)
  test-gpu [--emulated]     the contract suite and whole programs on a GPU, or on the emulated
                            driver library, which needs none
  test-capture [--emulated] [--quick]
                            captures in every mode, dropped in every order and made to fail in every
                            way: on simulated devices and a GPU, or on the emulated driver library;
                            with --quick, a selection
  bench-calls               driver calls and host time of Carve and of cudarc, on an emulated
                            driver that does nothing
  bench-gpu [--emulated]    bare driver calls, Carve and PyTorch, timed on a GPU in one run; with
                            --emulated, only whether the program works
  ptx [--check]             compiles the kernels in CUDA C; with --check, sees whether that was done
  test-kernels              the kernels in CUDA C against their models, compiled for the host (c++)
  gpu-bundle [--emulated [--quick]]
                            a folder with the tests and benchmarks of hardware and a script, for a
                            machine with a GPU and no Rust; with --emulated, the script is run, too;
                            with --quick, of a few programs as other checks build them
  toolkit                   makes the folder that feature `cuda` is built with, on any machine
  doctor                    what this machine offers, and what will be simulated
  help                      this text

exit codes: 0 all was run and passed, 1 a check failed, 2 wrong usage,
            3 the command could not do its work, or not all of it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            failure.exit_code()
        }
    }
}

fn dispatch(words: &[&str]) -> Result<(), Failure> {
    match words {
        ["ci"] => ci::run(),
        ["sanitize"] => sanitize::run(&sanitize::ALL),
        ["sanitize", name] => sanitize::run(&[sanitize::Sanitizer::from_name(name)?]),
        ["miri"] => miri::run(),
        ["loom"] => loom::run(),
        ["fuzz"] => fuzz::run(fuzz::SECONDS),
        ["fuzz", "--seconds", word] => fuzz::run(fuzz::seconds(word)?),
        ["test-gpu"] => test_gpu::run(),
        ["test-gpu", "--emulated"] => test_gpu::run_emulated(),
        ["test-capture", options @ ..] => test_capture::run(test_capture::Options::parse(options)?),
        ["bench-calls"] => bench_calls::run(),
        ["bench-gpu"] => bench_gpu::run(),
        ["bench-gpu", "--emulated"] => bench_gpu::run_emulated(),
        ["ptx"] => ptx::run(ptx::Mode::Write),
        ["ptx", "--check"] => ptx::run(ptx::Mode::Check),
        ["test-kernels"] => test_kernels::run(),
        ["gpu-bundle"] => gpu_bundle::run(),
        ["gpu-bundle", "--emulated"] => gpu_bundle::run_emulated(),
        ["gpu-bundle", "--emulated", "--quick"] => gpu_bundle::run_emulated_in_dev(),
        ["toolkit"] => toolkit::run(),
        ["doctor"] => doctor::run(),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        [] => Err(Failure::Usage(format!("a command is missing\n\n{HELP}"))),
        other => Err(Failure::Usage(format!(
            "unknown command `{}`\n\n{HELP}",
            other.join(" ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_are_usage_errors() {
        for words in [
            &[][..],
            &["cy"],
            &["ci", "fast"],
            &["sanitize", "memory"],
            &["fuzz", "--seconds", "soon"],
            &["test-capture", "--fast"],
        ] {
            assert!(
                matches!(dispatch(words), Err(Failure::Usage(_))),
                "{words:?}"
            );
        }
    }

    /// The commands of the help text.
    fn commands() -> impl Iterator<Item = &'static str> {
        let lines = HELP.lines().filter_map(|line| line.strip_prefix("  "));
        let named = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        named.filter_map(|line| line.split_whitespace().next())
    }

    /// A new arm of `dispatch` has to be named there, too.
    #[test]
    fn help_names_every_command() {
        let source = include_str!("main.rs");
        let arms = source.lines().filter_map(|line| {
            let arm = line.trim_start().strip_prefix("[\"")?;
            arm.split_once('"').map(|(command, _)| command)
        });
        let mut arms: Vec<&str> = arms.collect();
        arms.dedup();
        let named: Vec<&str> = commands().collect();
        assert!(arms.len() > 10, "{arms:?}");
        for command in &arms {
            assert!(named.contains(command), "{command}");
        }
        assert_eq!(arms.len(), named.len(), "{arms:?}, {named:?}");
    }

    #[test]
    fn contributing_describes_every_command_once() {
        let path = workspace::root().join("CONTRIBUTING.md");
        let text = std::fs::read_to_string(path).unwrap();
        for command in commands().filter(|command| *command != "help") {
            let row = format!("| `cargo xtask {command}` |");
            assert_eq!(text.matches(&row).count(), 1, "{row}");
        }
    }
}
