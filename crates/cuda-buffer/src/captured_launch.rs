//! Launches of a graph that can be given another configuration and other values.

use crate::capture::{AccessSet, Graph};
use crate::launch::{OperandMemory, check_footprint};
use crate::{BufferError, BufferResult};
use bytemuck::NoUninit;
use cuda_driver::{Argument, CallSite, LaunchConfig, LaunchError, RawGraphNode};
use cuda_runtime::{Kernel, current_session};
use smallvec::SmallVec;

/// A launch in a captured step. [`Graph::set_launch`] gives it another configuration and other values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedLaunch {
    /// The number of the capture.
    capture: u64,
    /// Position among those that the capture noted.
    at: usize,
    kernel: &'static str,
}

/// In the place of an argument of a captured launch: it stays what it is. An operand can't be anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept;

/// What a graph knows of a launch: all that the launch was checked with.
#[derive(Debug)]
pub(crate) struct Noted {
    node: RawGraphNode,
    kernel: Kernel,
    arguments: SmallVec<[Argument; 8]>,
    memory: SmallVec<[Option<OperandMemory>; 8]>,
}

/// Notes a launch of the capture that is open on this thread.
pub(crate) fn note(
    kernel: &Kernel,
    node: RawGraphNode,
    arguments: &[Argument],
    memory: &[Option<OperandMemory>],
) -> CapturedLaunch {
    let session = current_session().expect("the launch was captured a moment ago");
    let noted = Noted {
        node,
        kernel: kernel.clone(),
        arguments: arguments.into(),
        memory: memory.into(),
    };
    let at = session.with_attachment(|set: &mut AccessSet| {
        set.launches.push(noted);
        set.launches.len() - 1
    });
    CapturedLaunch {
        capture: session.number(),
        at,
        kernel: kernel.declaration().name(),
    }
}

impl Graph {
    /// Gives a launch of the captured step another configuration and other values, from the next replay on: replays under way go
    /// on as they were. `args` has as many arguments as the launch, with [`Kept`] for those that stay.
    ///
    /// Operands stay: the graph orders its launches by the memory that they were captured with. What the kernel touches with the
    /// new values has to lie within that memory, and be used as it was to be.
    ///
    /// ```
    /// use cuda_buffer::{BufferResult, CaptureStep, CudaBuffer, DeviceData, Graph, Kept, Launch};
    /// use cuda_driver::LaunchConfig;
    /// use cuda_runtime::{Kernel, Stream};
    ///
    /// /// A step whose rate falls: captured once. `scale` takes a number of elements, a factor, and the elements.
    /// fn train(stream: &Stream, scale: &Kernel, x: &mut CudaBuffer<f32>) -> BufferResult<()> {
    ///     let config = LaunchConfig::for_elements(x.len())?;
    ///     let n = x.len() as u32;
    ///     let mut launch = None;
    ///     let mut graph = stream.capture(|_| {
    ///         let mut x = x.write_synchronized_with(stream)?;
    ///         launch = Some(scale.launch_captured(stream, config, (n, 1.0_f32, &mut x))?);
    ///         Ok::<_, cuda_buffer::BufferError>(x.release()?)
    ///     })?;
    ///     let launch = launch.expect("the step has run");
    ///     for rate in [1.0_f32, 0.5, 0.25] {
    ///         graph.set_launch(&launch, config, (Kept, rate, Kept))?;
    ///         graph.launch(stream)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`BufferError::StaleLaunch`] for a launch of another graph, or of what this one did before it was given other work;
    /// [`BufferError::Launch`] for a configuration or arguments that don't fit; [`BufferError::OperandBounds`],
    /// [`BufferError::ReadOnlyOperand`] when the kernel would touch more than its operands are; the driver's own. The graph is as it was then.
    #[track_caller]
    pub fn set_launch(
        &mut self,
        launch: &CapturedLaunch,
        config: LaunchConfig,
        args: impl NewArgs,
    ) -> BufferResult<()> {
        let _site = CallSite::enter();
        let (graph, noted) = self.noted(launch)?;
        let Noted {
            node,
            kernel,
            arguments,
            memory,
        } = noted;
        config.check(kernel.device().properties())?;
        let declaration = kernel.declaration();
        let new = args.list();
        if new.len() != arguments.len() {
            return Err(BufferError::Launch(LaunchError::ArgumentCount {
                kernel: declaration.name(),
                expected: arguments.len(),
                given: new.len(),
            }));
        }
        let both = new.into_iter().zip(&*arguments);
        let new: SmallVec<[_; 8]> = both.map(|(new, old)| new.unwrap_or(*old)).collect();
        check_footprint(declaration, &new, memory)?;
        // SAFETY: the node is of the graph's last capture, which noted it with this kernel. The arguments fit the declaration, whose
        // footprint lies within the operands of the launch as it was captured, with writes only where one allows them: the graph
        // keeps their memory, and each replay acquires it.
        unsafe { graph.set_kernel(*node, kernel, &config, &new) }?;
        *arguments = new;
        Ok(())
    }

    fn noted(
        &mut self,
        launch: &CapturedLaunch,
    ) -> BufferResult<(&mut cuda_runtime::Graph, &mut Noted)> {
        let (number, graph, launches) = self.launches();
        let known = launches
            .get_mut(launch.at)
            .filter(|_| launch.capture == number);
        let kernel = launch.kernel;
        Ok((graph, known.ok_or(BufferError::StaleLaunch { kernel })?))
    }
}

/// An argument of [`Graph::set_launch`]: a plain value of at most 16 bytes, or [`Kept`].
pub trait NewArg {
    /// The value; `None` for what stays.
    fn argument(self) -> Option<Argument>;
}

impl<T: NoUninit> NewArg for T {
    fn argument(self) -> Option<Argument> {
        Some(Argument::scalar(self))
    }
}

impl NewArg for Kept {
    fn argument(self) -> Option<Argument> {
        None
    }
}

/// The arguments of [`Graph::set_launch`]: a tuple of [`NewArg`]s, or a slice where only the running program knows their number.
pub trait NewArgs: sealed::List {}

impl<A: sealed::List> NewArgs for A {}

mod sealed {
    use super::{Argument, SmallVec};

    pub trait List {
        #[doc(hidden)]
        fn list(self) -> SmallVec<[Option<Argument>; 8]>;
    }
}

impl sealed::List for &[Option<Argument>] {
    fn list(self) -> SmallVec<[Option<Argument>; 8]> {
        self.into()
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: NewArg),+> sealed::List for ($($name,)+) {
            #[expect(non_snake_case, reason = "a tuple's fields are named after its types")]
            fn list(self) -> SmallVec<[Option<Argument>; 8]> {
                let ($($name,)+) = self;
                [$($name.argument()),+].into_iter().collect()
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);
