//! What a kernel's Rust model sees of one launch on a simulated device.

use crate::{Arguments, LaunchConfig};
use bytemuck::{AnyBitPattern, NoUninit};
use smallvec::SmallVec;

/// Memory behind one parameter, from the lowest to the highest byte of its declared regions.
#[derive(Debug)]
pub enum ModelMemory<'m> {
    /// Memory that the launch only reads.
    Read(&'m [u8]),
    /// Memory that the launch writes.
    Write(&'m mut [u8]),
}

/// One launch, as the model of its kernel sees it. Memory is taken once per parameter.
#[derive(Debug)]
pub struct ModelLaunch<'m> {
    config: LaunchConfig,
    args: Arguments<'m>,
    memory: SmallVec<[Slot<'m>; 8]>,
}

#[derive(Debug)]
enum Slot<'m> {
    /// A scalar, or a pointer behind which nothing is touched.
    Absent,
    Present(ModelMemory<'m>),
    Taken,
}

/// What a model can't do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The scalar at this position has another size than the model reads.
    #[error("the model reads parameter {param} as a scalar of another size")]
    Scalar {
        /// Position of the parameter.
        param: usize,
    },
    /// The memory was taken before, or is only read where the model writes.
    #[error("the memory of parameter {param} was taken before, or is not declared for writing")]
    Memory {
        /// Position of the parameter.
        param: usize,
    },
    /// The memory is not a whole number of elements, or not aligned to them.
    #[error(
        "{bytes} bytes behind parameter {param} are no aligned array of {element_bytes}-byte elements"
    )]
    Elements {
        /// Position of the parameter.
        param: usize,
        /// Bytes declared.
        bytes: usize,
        /// Size of the model's element.
        element_bytes: usize,
    },
    /// The kernel itself reports a fault, as a failed device-side assertion would.
    #[error("the kernel failed: {0}")]
    Fault(String),
}

impl<'m> ModelLaunch<'m> {
    /// A launch whose `memory` is given by position of the parameters; `None` for scalars and for parameters of
    /// which nothing is touched.
    #[must_use]
    pub fn new(
        config: LaunchConfig,
        args: Arguments<'m>,
        memory: impl IntoIterator<Item = Option<ModelMemory<'m>>>,
    ) -> Self {
        Self {
            config,
            args,
            memory: memory
                .into_iter()
                .map(|memory| memory.map_or(Slot::Absent, Slot::Present))
                .collect(),
        }
    }

    /// Grid and block.
    #[must_use]
    pub fn config(&self) -> LaunchConfig {
        self.config
    }

    /// The arguments.
    #[must_use]
    pub fn arguments(&self) -> Arguments<'m> {
        self.args
    }

    /// The scalar at `param`.
    ///
    /// # Errors
    /// [`ModelError::Scalar`].
    pub fn scalar<T: AnyBitPattern>(&self, param: usize) -> Result<T, ModelError> {
        self.args.scalar(param).ok_or(ModelError::Scalar { param })
    }

    /// Takes the memory of `param` for reading; empty when the launch touches nothing there.
    ///
    /// # Errors
    /// [`ModelError::Memory`] and [`ModelError::Elements`].
    pub fn take_read<T: AnyBitPattern>(&mut self, param: usize) -> Result<&'m [T], ModelError> {
        let bytes: &'m [u8] = match self.take_bytes(param)? {
            None => return Ok(&[]),
            Some(ModelMemory::Read(bytes)) => bytes,
            Some(ModelMemory::Write(bytes)) => bytes,
        };
        bytemuck::try_cast_slice(bytes).map_err(|_| ModelError::Elements {
            param,
            bytes: bytes.len(),
            element_bytes: size_of::<T>(),
        })
    }

    /// Takes the memory of `param` for writing; empty when the launch touches nothing there.
    ///
    /// # Errors
    /// [`ModelError::Memory`] and [`ModelError::Elements`].
    pub fn take_write<T: AnyBitPattern + NoUninit>(
        &mut self,
        param: usize,
    ) -> Result<&'m mut [T], ModelError> {
        let bytes: &'m mut [u8] = match self.take_bytes(param)? {
            None => return Ok(&mut []),
            Some(ModelMemory::Read(_)) => return Err(ModelError::Memory { param }),
            Some(ModelMemory::Write(bytes)) => bytes,
        };
        let len = bytes.len();
        bytemuck::try_cast_slice_mut(bytes).map_err(|_| ModelError::Elements {
            param,
            bytes: len,
            element_bytes: size_of::<T>(),
        })
    }

    /// Takes the memory of `param` as bytes; `None` when the launch touches nothing there.
    ///
    /// # Errors
    /// [`ModelError::Memory`].
    pub fn take_bytes(&mut self, param: usize) -> Result<Option<ModelMemory<'m>>, ModelError> {
        if self.args.pointer(param).is_none() {
            return Err(ModelError::Memory { param });
        }
        let slot = self
            .memory
            .get_mut(param)
            .ok_or(ModelError::Memory { param })?;
        match std::mem::replace(slot, Slot::Taken) {
            Slot::Present(memory) => Ok(Some(memory)),
            Slot::Absent => Ok(None),
            Slot::Taken => Err(ModelError::Memory { param }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Argument, DevicePtr};

    const CONFIG: LaunchConfig = LaunchConfig::new([1; 3], [1; 3]);

    #[test]
    fn memory_is_taken_once_and_only_written_where_declared() {
        let args = [
            Argument::Pointer(DevicePtr(256)),
            Argument::Pointer(DevicePtr(512)),
            Argument::scalar(7_u32),
        ];
        let read = [1_u32, 2];
        let mut write = [0_u32; 2];
        let mut launch = ModelLaunch::new(
            CONFIG,
            Arguments(&args),
            [
                Some(ModelMemory::Read(bytemuck::cast_slice(&read))),
                Some(ModelMemory::Write(bytemuck::cast_slice_mut(&mut write))),
                None,
            ],
        );
        assert_eq!(launch.scalar::<u32>(2), Ok(7));
        assert_eq!(
            launch.scalar::<u64>(2),
            Err(ModelError::Scalar { param: 2 })
        );
        assert_eq!(
            launch.take_read::<u32>(2),
            Err(ModelError::Memory { param: 2 })
        );
        assert_eq!(launch.take_read::<u32>(0), Ok(&[1, 2][..]));
        assert_eq!(
            launch.take_read::<u32>(0),
            Err(ModelError::Memory { param: 0 })
        );
        launch.take_write::<u32>(1).unwrap()[1] = 9;
        drop(launch);
        assert_eq!(write, [0, 9]);
    }

    #[test]
    fn nothing_touched_is_an_empty_slice_of_any_element() {
        let args = [Argument::Pointer(DevicePtr(256)); 2];
        let mut launch = ModelLaunch::new(CONFIG, Arguments(&args), [None, None]);
        assert_eq!(launch.take_read::<u64>(0), Ok(&[][..]));
        assert_eq!(launch.take_write::<u64>(1), Ok(&mut [][..]));
    }

    #[test]
    fn read_memory_is_not_written_and_odd_sizes_are_no_elements() {
        let args = [Argument::Pointer(DevicePtr(256)); 2];
        let bytes = [0_u8; 3];
        let memory = || Some(ModelMemory::Read(&bytes));
        let mut launch = ModelLaunch::new(CONFIG, Arguments(&args), [memory(), memory()]);
        assert_eq!(
            launch.take_write::<u8>(0),
            Err(ModelError::Memory { param: 0 })
        );
        assert_eq!(
            launch.take_read::<u16>(1),
            Err(ModelError::Elements {
                param: 1,
                bytes: 3,
                element_bytes: 2
            })
        );
    }
}
