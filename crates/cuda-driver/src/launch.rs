//! How a kernel is launched: grid, block and shared memory, and what of them is not launchable.

use crate::DeviceProperties;

/// Grid, block and shared memory of a launch.
///
/// ```
/// use cuda_driver::LaunchConfig;
/// let config = LaunchConfig::new([12, 7, 1], [32, 8, 1]).with_shared_bytes(4096);
/// assert_eq!((config.grid[0], config.block[1], config.shared_bytes), (12, 8, 4096));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// So many blocks of so many threads, in x, y and z, without dynamic shared memory.
    #[must_use]
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            shared_bytes: 0,
        }
    }

    /// With so much dynamic shared memory for each block, in bytes.
    #[must_use]
    pub const fn with_shared_bytes(mut self, shared_bytes: u32) -> Self {
        self.shared_bytes = shared_bytes;
        self
    }

    /// One thread for each of `count` elements in blocks of 256; one block for no elements.
    ///
    /// # Errors
    /// [`LaunchError::Grid`] when there are more than 2^31 - 1 blocks.
    pub fn for_elements(count: usize) -> Result<Self, LaunchError> {
        let blocks = count.div_ceil(256).max(1);
        let x = u32::try_from(blocks)
            .ok()
            .filter(|&x| x <= i32::MAX as u32)
            .ok_or(LaunchError::Grid {
                axis: 'x',
                blocks: blocks as u64,
                max: i32::MAX as u32,
            })?;
        Ok(Self::new([x, 1, 1], [256, 1, 1]))
    }

    /// Checks the configuration against the limits of a device, for a function that did not ask for more shared memory.
    ///
    /// # Errors
    /// [`LaunchError::Grid`], [`LaunchError::Block`] or [`LaunchError::Shared`] with the limit.
    pub fn check(&self, device: &DeviceProperties) -> Result<(), LaunchError> {
        self.check_with_shared(device, device.shared_bytes_per_block)
    }

    /// As [`check`](Self::check), for a function that may use `allowed_bytes` of shared memory per block, which
    /// [`function_allow_shared`](crate::Kernels::function_allow_shared) arranges.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with_shared(
        &self,
        device: &DeviceProperties,
        allowed_bytes: u32,
    ) -> Result<(), LaunchError> {
        for (axis, blocks, max) in [
            ('x', self.grid[0], i32::MAX as u32),
            ('y', self.grid[1], 65_535),
            ('z', self.grid[2], 65_535),
        ] {
            if blocks == 0 || blocks > max {
                return Err(LaunchError::Grid {
                    axis,
                    blocks: blocks.into(),
                    max,
                });
            }
        }
        let threads = self.block.iter().map(|&n| u64::from(n)).product::<u64>();
        if threads == 0 || threads > device.max_block_threads.into() || self.block[2] > 64 {
            return Err(LaunchError::Block {
                block: self.block,
                max: device.max_block_threads,
            });
        }
        if self.shared_bytes > allowed_bytes {
            return Err(LaunchError::Shared {
                bytes: self.shared_bytes,
                max: allowed_bytes,
                opt_in: device.shared_bytes_per_block_opt_in,
            });
        }
        Ok(())
    }
}

/// A launch that the driver must not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Too few or too many arguments.
    #[error("kernel {kernel} takes {expected} arguments, not {given}")]
    ArgumentCount {
        /// The kernel.
        kernel: &'static str,
        /// Number of its parameters.
        expected: usize,
        /// Number of arguments.
        given: usize,
    },
    /// A scalar where an address is due, the reverse, or a scalar of another size.
    #[error("argument {index} of kernel {kernel} does not fit its parameter")]
    ArgumentType {
        /// The kernel.
        kernel: &'static str,
        /// Position of the argument, from 0.
        index: usize,
    },
    /// The declaration's footprint does not fit its own parameters.
    #[error("kernel {kernel} declares a footprint that its parameters don't allow")]
    Declaration {
        /// The kernel.
        kernel: &'static str,
    },
    /// An axis of the grid is empty or too long.
    #[error("a grid of {blocks} blocks in {axis} is not launchable: 1 to {max} are")]
    Grid {
        /// The axis.
        axis: char,
        /// Blocks asked for.
        blocks: u64,
        /// Blocks possible.
        max: u32,
    },
    /// The block is empty or has too many threads.
    #[error("a block of {block:?} threads is not launchable: at most {max} threads, 64 in z")]
    Block {
        /// Threads in x, y, z.
        block: [u32; 3],
        /// Threads possible.
        max: u32,
    },
    /// More shared memory than a block of this function may have.
    #[error(
        "{bytes} bytes of shared memory per block, but this function may have {max}: allow it more, up to {opt_in}"
    )]
    Shared {
        /// Bytes asked for.
        bytes: u32,
        /// Bytes that the function may have.
        max: u32,
        /// Bytes that any function of the device can be allowed.
        opt_in: u32,
    },
}
