//! What ordering cost: waits issued, waits elided and why, completions recorded. Each stream counts for itself, under its
//! lock.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What ordering cost on a device so far, as a value: subtract an earlier one from a later one.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct OrderCounts { $($(#[$doc])* pub $name: u64),* }

        impl std::ops::Sub for OrderCounts {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name)),* }
            }
        }

        impl std::ops::Add for OrderCounts {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name),* }
            }
        }
    };
}

counters! {
    /// Waits that the driver was asked for.
    waits_issued,
    /// Waits not needed because producer and consumer are the same stream.
    elided_same_stream,
    /// Waits not needed because the consumer's stream had waited for that point or a later one.
    elided_waited,
    /// Waits not needed because the completion was known to be complete.
    elided_complete,
    /// Completions made: places of a stream's work.
    completions,
    /// Those of them for which an event was recorded, because somebody needed it.
    completions_recorded,
    /// Completions shared with the stream's tail because nothing was queued since, or an allocation only.
    completions_shared,
}

impl OrderCounts {
    /// Waits that were not needed, whatever the reason.
    #[must_use]
    pub fn waits_elided(&self) -> u64 {
        self.elided_same_stream + self.elided_waited + self.elided_complete
    }
}
