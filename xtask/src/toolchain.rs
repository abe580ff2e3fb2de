//! What rustup has installed beside the toolchain that builds the workspace.

use crate::invocation::Invocation;

/// The first line that `cargo +nightly` answers to, such as a version; nothing without nightly.
pub(crate) fn nightly() -> Option<String> {
    first_line("rustc +nightly --version")
}

/// Whether nightly has this component.
pub(crate) fn nightly_has(component: &str) -> bool {
    Invocation::new("rustup component list --installed --toolchain nightly")
        .answer()
        .is_some_and(|list| lists(&list, component))
}

/// The target triple of this machine.
pub(crate) fn host() -> Option<String> {
    host_in(&Invocation::new("rustc -vV").answer()?)
}

/// First line of a command's answer.
pub(crate) fn first_line(line: &str) -> Option<String> {
    Invocation::new(line)
        .answer()?
        .lines()
        .next()
        .map(|first| first.trim().to_owned())
}

/// Components are listed bare or with the target at their end.
fn lists(list: &str, component: &str) -> bool {
    list.lines().any(|line| {
        line.strip_prefix(component)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

fn host_in(verbose_version: &str) -> Option<String> {
    verbose_version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found_by_their_whole_name() {
        let list = "cargo-x86_64-unknown-linux-gnu\nmiri-x86_64-unknown-linux-gnu\nrust-src\n";
        assert!(lists(list, "miri") && lists(list, "rust-src"));
        assert!(!lists(list, "mir") && !lists(list, "clippy"));
    }

    #[test]
    fn the_host_is_read_from_the_verbose_version() {
        let text = "rustc 1.95.0\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\n";
        assert_eq!(host_in(text).as_deref(), Some("x86_64-unknown-linux-gnu"));
        assert_eq!(host_in("rustc 1.95.0"), None);
    }
}
