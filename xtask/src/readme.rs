//! The two commands that README.md promises, read out of it, so that what is checked is what
//! a reader types.

use crate::failure::Failure;
use crate::invocation::Invocation;
use crate::workspace;

/// The test command that the README has to name.
const TESTS: &str = "cargo test --workspace";

/// The command lines of the README.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Promises {
    pub(crate) tests: Invocation,
    pub(crate) example: Invocation,
}

impl Promises {
    pub(crate) fn read() -> Result<Self, Failure> {
        let path = workspace::root().join("README.md");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::Check(format!("{}: {error}", path.display())))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let commands = cargo_commands(text);
        let tests = only(&commands, "cargo test")?;
        if tests != TESTS {
            return Err(Failure::Check(format!(
                "README.md names `{tests}` as its test command; it has to be `{TESTS}`"
            )));
        }
        let example = only(&commands, "cargo run")?;
        Ok(Self {
            tests: Invocation::new(tests),
            example: Invocation::new(example),
        })
    }
}

/// The one command that begins with these words.
fn only<'a>(commands: &[&'a str], beginning: &str) -> Result<&'a str, Failure> {
    let found: Vec<&str> = commands
        .iter()
        .copied()
        .filter(|line| line.starts_with(beginning))
        .collect();
    match found.as_slice() {
        [line] => Ok(line),
        [] => Err(Failure::Check(format!(
            "README.md has no shell block with `{beginning}`"
        ))),
        many => Err(Failure::Check(format!(
            "README.md has {} commands that begin with `{beginning}`; it should have one: {}",
            many.len(),
            many.join("; ")
        ))),
    }
}

/// The lines of shell blocks that start cargo, without comments at their ends.
fn cargo_commands(text: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    let mut language = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(info) = line.strip_prefix("```") {
            language = match language {
                Some(_) => None,
                None => Some(info),
            };
        } else if matches!(language, Some("sh" | "bash" | "console")) {
            let line = line.trim_start_matches("$ ");
            let line = line.split(" #").next().unwrap_or(line).trim();
            if line.starts_with("cargo ") {
                commands.push(line);
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
Text with `cargo test --lib` in it.

```sh
cargo run --release -p tensor-cuda --example digits   # the main job
$ cargo test --workspace
```

```rust
// cargo test --nothing
```
";

    #[test]
    fn commands_come_from_shell_blocks_only() {
        let promises = Promises::parse(GOOD).unwrap();
        assert_eq!(promises.tests.to_string(), "cargo test --workspace");
        let example = "cargo run --release -p tensor-cuda --example digits";
        assert_eq!(promises.example.to_string(), example);
    }

    #[test]
    fn another_test_command_is_refused() {
        let text = GOOD.replace("cargo test --workspace", "cargo test --all");
        let failure = Promises::parse(&text).unwrap_err().to_string();
        assert!(failure.contains("cargo test --all"), "{failure}");
    }

    #[test]
    fn missing_and_doubled_commands_are_refused() {
        assert!(Promises::parse("nothing here").is_err());
        assert!(Promises::parse(&format!("{GOOD}{GOOD}")).is_err());
    }
}
