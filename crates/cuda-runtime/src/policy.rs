//! What a runtime does about failures, as its builder says.

/// What else is lost when a failure leaves the state of a device unknown. That device always is: every later call on it returns
/// the first error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoisonPolicy {
    /// Nothing: other devices go on.
    #[default]
    Device,
    /// All devices of the runtime. For programs whose devices work on one thing, and because the driver does not promise
    /// that other contexts of a process survive a fault.
    Runtime,
    /// The process: it says why, and aborts. For programs that are started again.
    Abort,
}

/// How the objects of a device behave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Behaviour {
    pub(crate) poison: PoisonPolicy,
    /// Wait on the host after each operation, so that its fault is reported by the call that asked for it.
    pub(crate) synchronize: bool,
}
