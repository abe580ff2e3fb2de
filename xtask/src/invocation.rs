//! One command line: how it is run, and how a person runs it again.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::workspace;

/// A program with its arguments and the environment variables that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    words: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Invocation {
    /// Splits at spaces; for command lines without quoting, as ours and the README's are.
    pub(crate) fn new(line: &str) -> Self {
        Self {
            words: line.split_whitespace().map(str::to_owned).collect(),
            environment: Vec::new(),
        }
    }

    pub(crate) fn arg(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    pub(crate) fn args<T: Into<String>>(mut self, words: impl IntoIterator<Item = T>) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// Words right behind the program's name: some lines end with what is for another program.
    pub(crate) fn first(mut self, words: impl IntoIterator<Item = String>) -> Self {
        let behind = self.words.len().min(1);
        self.words.splice(behind..behind, words);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Runs it in the workspace's root with its output shown; true when it succeeded.
    pub(crate) fn succeeds(&self) -> Result<bool, Failure> {
        let status = self
            .command()?
            .status()
            .map_err(|error| self.not_started(&error))?;
        Ok(status.success())
    }

    /// As [`succeeds`](Self::succeeds), and returns what was printed, both streams in one.
    pub(crate) fn succeeds_and_prints(&self) -> Result<(bool, String), Failure> {
        let failed = |error: std::io::Error| self.not_started(&error);
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let mut command = self.command()?;
        command
            .stdout(writer.try_clone().map_err(failed)?)
            .stderr(writer);
        let mut child = command.spawn().map_err(failed)?;
        // The command holds the pipe's writing end; the reader sees its end only without it.
        drop(command);

        let mut printed = String::new();
        let mut shown = std::io::stdout().lock();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = String::from_utf8_lossy(&line);
            // A closed terminal must not end the check.
            let _ = writeln!(shown, "{line}");
            printed.push_str(&line);
            printed.push('\n');
        }
        let status = child.wait().map_err(failed)?;
        Ok((status.success(), printed))
    }

    /// What it prints on its standard output, or nothing when it cannot be run or fails.
    pub(crate) fn answer(&self) -> Option<String> {
        let mut command = self.command().ok()?;
        let output = command
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What it prints on its standard output, or nothing when it fails. Its other stream is shown.
    pub(crate) fn output(&self) -> Result<Option<String>, Failure> {
        let mut command = self.command()?;
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| self.not_started(&error))?;
        let text = || String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.status.success().then(text))
    }

    fn command(&self) -> Result<Command, Failure> {
        let [program, arguments @ ..] = self.words.as_slice() else {
            return Err(Failure::Usage("an empty command line".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(workspace::root());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    fn not_started(&self, error: &std::io::Error) -> Failure {
        Failure::Check(format!("could not run `{self}`: {error}"))
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_it_is_typed() {
        let plain = Invocation::new("cargo doc --workspace").arg("--no-deps");
        assert_eq!(plain.to_string(), "cargo doc --workspace --no-deps");
        let with_flags = plain.env("RUSTDOCFLAGS", "-D warnings").args(["it's", ""]);
        assert_eq!(
            with_flags.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps 'it'\''s' ''"
        );
    }

    #[test]
    fn output_of_both_streams_is_read() {
        let script = Invocation::new("sh -c").arg("echo out; echo err >&2; exit 4");
        let (passed, printed) = script.succeeds_and_prints().unwrap();
        assert!(!passed);
        assert!(
            printed.contains("out\n") && printed.contains("err\n"),
            "{printed}"
        );
    }

    #[test]
    fn output_of_what_fails_is_none() {
        let script = |code| Invocation::new("sh -c").arg(format!("echo out; exit {code}"));
        assert_eq!(script(0).output().unwrap().as_deref(), Some("out\n"));
        assert_eq!(script(4).output().unwrap(), None);
    }

    #[test]
    fn a_missing_program_is_a_failure_that_names_it() {
        let missing = Invocation::new("no-such-program-here --flag");
        assert!(missing.answer().is_none() && missing.output().is_err());
        assert!(
            missing
                .succeeds()
                .unwrap_err()
                .to_string()
                .contains("no-such-program-here")
        );
    }
}
