//! The script of the bundle.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs every program and adds up what they report. A program that reports nothing has failed.
const TEXT: &str = include_str!("run.sh");
pub(super) const NAME: &str = "run.sh";

pub(super) fn write(folder: &Path) -> io::Result<()> {
    let script = folder.join(NAME);
    std::fs::write(&script, TEXT)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::super::{GLIBC_NAME, LIST_NAME};
    use super::*;
    use std::process::{Command, Output};

    const GOOD: &str = "echo 'test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured'";
    const DEVICE: (&str, &str) = ("programs/bench_gpu", "echo a device");

    /// A bundle in a folder of its own, of programs that do this.
    struct Bundle {
        folder: std::path::PathBuf,
    }

    impl Bundle {
        fn new(name: &str, glibc: &str, programs: &[(&str, &str)]) -> Self {
            let folder = format!("carve script {name} {}", std::process::id());
            let folder = std::env::temp_dir().join(folder);
            for place in ["tests", "programs", "bin", "elsewhere"] {
                std::fs::create_dir_all(folder.join(place)).unwrap();
            }
            let mut list = String::new();
            for (program, commands) in programs {
                let path = folder.join(program);
                std::fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&path, mode).unwrap();
                if !program.starts_with("bin/") {
                    list += &format!("{program}|-|-\n");
                }
            }
            std::fs::write(folder.join(LIST_NAME), list).unwrap();
            std::fs::write(folder.join(GLIBC_NAME), glibc).unwrap();
            write(&folder).unwrap();
            Self { folder }
        }

        /// Calls the script from another folder, with the folder `bin` first in the path.
        fn output(&self, words: &[&str]) -> Output {
            let mut script = Command::new(self.folder.join(NAME));
            script
                .args(words)
                .current_dir(self.folder.join("elsewhere"));
            let path = format!("{}:/usr/bin:/bin", self.folder.join("bin").display());
            script.env("PATH", path).output().unwrap()
        }

        /// The lines that begin with FAILED, each once, the last line, and the exit code.
        fn run(&self, words: &[&str]) -> (Vec<String>, String, i32) {
            let output = self.output(words);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut lost: Vec<String> = Vec::new();
            for line in text.lines().filter(|line| line.starts_with("FAILED")) {
                if !lost.iter().any(|known| known == line) {
                    lost.push(line.to_owned());
                }
            }
            let last = text.lines().last().unwrap_or_default().to_owned();
            (lost, last, output.status.code().unwrap())
        }
    }

    impl Drop for Bundle {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn sum(name: &str, programs: &[(&str, &str)]) -> (Vec<String>, String, i32) {
        let programs: Vec<_> = [&[DEVICE], programs].concat();
        Bundle::new(name, "2.1", &programs).run(&["--limit", "1"])
    }

    #[test]
    fn it_adds_up_what_programs_report() {
        let (lost, last, code) = sum(
            "good",
            &[
                ("tests/a", GOOD),
                ("tests/b", GOOD),
                ("programs/digits", "echo fine"),
            ],
        );
        assert_eq!(
            (lost.len(), last.as_str(), code),
            (0, "12 passed, 0 failed", 0)
        );
        let bad = "echo 'test x::y ... FAILED'; echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'; exit 101";
        let (lost, last, code) = sum("bad", &[("tests/a", GOOD), ("tests/b", bad)]);
        assert_eq!(lost, ["FAILED: tests/b: x::y"]);
        assert_eq!((last.as_str(), code), ("9 passed, 1 failed", 1));
    }

    #[test]
    fn it_names_who_died_and_goes_on() {
        let dies =
            "echo 'test a ... ok'; echo 'test b ... FAILED'; printf 'test c ... '; kill -11 $$";
        let (lost, last, code) = sum(
            "dead",
            &[
                ("tests/dies", dies),
                ("tests/silent", "exit 0"),
                ("tests/late", &format!("{GOOD}; exit 86")),
                ("programs/digits", "exit 7"),
                ("programs/slow", "exec sleep 30"),
                ("tests/good", GOOD),
            ],
        );
        assert_eq!(
            lost,
            [
                "FAILED: tests/dies: b",
                "FAILED: tests/dies was ended by signal 11, in c",
                "FAILED: tests/silent ended with code 0",
                "FAILED: tests/late ended with code 86 after its tests",
                "FAILED: programs/digits ended with code 7",
                "FAILED: programs/slow was ended after 1 s",
            ]
        );
        // The device's program, one test before the crash, two times five.
        assert_eq!((last.as_str(), code), ("12 passed, 6 failed", 1));
    }

    /// One from outside, and the timer's own, which it sends to what does not end when told to. Here that has no patience.
    #[test]
    fn whoever_is_killed_is_told_from_whoever_is_late() {
        let timer = r#"shift 3
            case "$1" in
            */stubborn) sleep 1; kill -9 $$ ;;
            esac
            exec "$@""#;
        let killed = "printf 'test big ... '; kill -9 $$";
        let programs = [
            DEVICE,
            ("tests/killed", killed),
            ("programs/stubborn", "exit 0"),
            ("tests/good", GOOD),
        ];
        let told = "was killed by signal 9, as by a system that is out of memory";
        let timed = [&programs[..], &[("bin/timeout", timer)]].concat();
        for (name, programs) in [("killed", &programs[..]), ("late", &timed)] {
            let bundle = Bundle::new(name, "2.1", programs);
            let output = bundle.output(&["--limit", "1"]);
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(stderr, "");
            let (lost, last, _) = bundle.run(&["--limit", "1"]);
            let mut expected = vec![format!("FAILED: tests/killed {told}, in big")];
            let mut sum = "7 passed, 1 failed";
            if name == "late" {
                let told = "was killed after 1 s: it did not end when it was told to";
                expected.push(format!("FAILED: programs/stubborn {told}"));
                sum = "6 passed, 2 failed";
            }
            assert_eq!((lost, last.as_str()), (expected, sum));
        }
    }

    /// The timer puts what it starts into a group of its own, which Ctrl-C does not reach.
    #[test]
    fn a_signal_ends_the_program_and_the_rest() {
        let endless = "echo $$ >\"$TMPDIR/../begun\"; exec sleep 300";
        let bundle = Bundle::new(
            "signal",
            "2.1",
            &[DEVICE, ("tests/endless", endless), ("tests/next", GOOD)],
        );
        let mut script = Command::new(bundle.folder.join(NAME));
        script.args(["--out", "out"]).current_dir(&bundle.folder);
        let script = script.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let out = bundle.folder.join("out");
        let number = loop {
            let text = std::fs::read_to_string(out.join("begun")).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n') {
                break number.to_owned();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        let kill = |words: &[&str]| Command::new("kill").args(words).output().unwrap().status;
        assert!(kill(&[&script.id().to_string()]).success());
        let output = script.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.ends_with("stopped: 1 passed, 0 failed until then, and the rest was not run\n"),
            "{text}"
        );
        assert!(!text.contains("tests/next"), "{text}");
        assert!(!kill(&["-0", &number]).success(), "it still runs");
        let left = std::fs::read_dir(&out).unwrap().any(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().starts_with("tmp")
        });
        assert!(!left);
    }

    #[test]
    fn what_is_written_goes_to_the_folder_that_is_named() {
        let writes = "echo here >made; echo there >\"$TMPDIR/made\"";
        let bundle = Bundle::new("out", "2.1", &[DEVICE, ("programs/writes", writes)]);
        let (_, last, _) = bundle.run(&["--out", "my results"]);
        assert_eq!(last, "2 passed, 0 failed");
        let out = bundle.folder.join("elsewhere/my results");
        for file in ["made", "summary.txt", "programs_writes.txt"] {
            assert!(out.join(file).exists(), "{file}");
        }
        let left = std::fs::read_dir(&out).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with("tmp")
        });
        assert_eq!(left.count(), 0);
        let beside = std::fs::read_dir(&bundle.folder).unwrap().count();
        assert_eq!(
            beside, 7,
            "four folders, the list, the version and the script"
        );

        let (_, last, code) = bundle.run(&["--out", "/dev/null/results"]);
        assert_eq!(
            last,
            "can't write to /dev/null/results; name a folder with --out"
        );
        assert_eq!(code, 2);
        for words in [
            &["--fast"][..],
            &["--out"],
            &["--limit", "soon"],
            &["--limit", "0"],
            &["--limit", "00"],
        ] {
            assert_eq!(bundle.run(words).2, 2, "{words:?}");
        }
    }

    #[test]
    fn packed_programs_are_unpacked_elsewhere() {
        let name =
            "case \"$0\" in *elsewhere/carve-results/tmp.*/tests/packed) ;; *) exit 1 ;; esac";
        let packed = format!("{name}; {GOOD}");
        let bundle = Bundle::new("packed", "2.1", &[DEVICE, ("tests/packed", &packed)]);
        let program = bundle.folder.join("tests/packed");
        assert!(
            Command::new("gzip")
                .arg(&program)
                .status()
                .unwrap()
                .success()
        );
        assert!(!program.exists());
        assert_eq!(
            bundle.run(&[]),
            (Vec::new(), "6 passed, 0 failed".to_owned(), 0)
        );
        // One that was lost on the way.
        std::fs::write(program.with_extension("gz"), b"").unwrap();
        let (lost, last, _) = bundle.run(&[]);
        assert_eq!(lost, ["FAILED: tests/packed can't be unpacked"]);
        assert_eq!(last, "1 passed, 1 failed");
    }

    #[test]
    fn without_a_device_it_says_so_in_one_line() {
        let none = (
            "programs/bench_gpu",
            "echo 'bench_gpu: there is no GPU' >&2; exit 3",
        );
        let bundle = Bundle::new("none", "2.1", &[none, ("tests/a", GOOD)]);
        let output = bundle.output(&[]);
        assert_eq!(output.stdout, b"bench_gpu: there is no GPU\n");
        assert_eq!(output.status.code(), Some(3));
        assert!(!bundle.folder.join("elsewhere/carve-results").exists());
    }

    #[test]
    fn an_older_c_library_is_told_with_both_versions() {
        let (_, last, code) = Bundle::new("old", "9.99", &[DEVICE]).run(&[]);
        assert!(
            last.starts_with("these programs need glibc 9.99 or newer"),
            "{last}"
        );
        assert_eq!(code, 3);
    }

    /// The checker goes over the suite and the kernels with each of its tools, when it is installed: here, beside the script.
    #[test]
    fn it_runs_the_checker_of_nvidia() {
        let checker = "[ \"$1\" != --help ] || { echo --track-stream-ordered-races; exit; }
            case \"$*\" in
            *memcheck*--report-api-errors\\ no\\ --track-stream-ordered-races\\ all*hardware*) exit 0 ;;
            *synccheck*kernels*) exit 0 ;;
            esac
            exit 9";
        let bundle = Bundle::new(
            "checker",
            "2.1",
            &[
                DEVICE,
                ("tests/hardware", GOOD),
                ("tests/kernels", GOOD),
                ("bin/compute-sanitizer", checker),
            ],
        );
        let (lost, last, _) = bundle.run(&[]);
        assert_eq!(
            lost,
            [
                "FAILED: compute-sanitizer --tool memcheck tests/kernels ended with code 9",
                "FAILED: compute-sanitizer --tool synccheck tests/hardware ended with code 9",
            ]
        );
        assert_eq!(last, "13 passed, 2 failed");
        let (lost, last, _) = bundle.run(&["--quick"]);
        assert_eq!((lost.len(), last.as_str()), (0, "11 passed, 0 failed"));
        std::fs::remove_file(bundle.folder.join("bin/compute-sanitizer")).unwrap();
        let text = String::from_utf8(bundle.output(&[]).stdout).unwrap();
        for tool in ["memcheck", "synccheck"] {
            let line =
                format!("not run: compute-sanitizer --tool {tool}, which is not installed\n");
            assert!(text.contains(&line), "{text}");
        }
    }
}
