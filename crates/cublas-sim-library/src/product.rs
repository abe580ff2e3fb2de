//! One product: what cuBLAS checks of its arguments, and its launch.

use crate::driver::{Handle, check, driver};
use crate::handle::{Settings, State};
use crate::kernels::at;
use crate::loading::{Batch, Kind, function};
use crate::types::{
    Status, cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType_t, refused,
};
use std::ffi::{c_uint, c_void};
use std::ptr::{from_mut, null_mut};

/// A matrix as it is passed: address, type, leading dimension, elements to the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) address: u64,
    pub(crate) data: cudaDataType_t,
    pub(crate) leading: i64,
    pub(crate) step: i64,
}

/// The arguments of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) operations: [cublasOperation_t; 2],
    pub(crate) sizes: [i64; 3],
    pub(crate) alpha: *const c_void,
    pub(crate) beta: *const c_void,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Matrix,
    pub(crate) batch: i64,
    pub(crate) compute: cublasComputeType_t,
    pub(crate) algorithm: cublasGemmAlgo_t,
}

/// Element type by number: the position of its kernel, its bytes, those of scale factors, and the compute types it goes with.
static TYPES: &[(u32, usize, u64, usize, [u32; 2])] = &[
    (0, 0, 4, 4, [68, 69]),
    (1, 1, 8, 8, [70, 71]),
    (2, 2, 2, 4, [68, 69]),
    (14, 3, 2, 4, [68, 69]),
    (4, 4, 8, 8, [68, 69]),
    (5, 5, 16, 16, [70, 71]),
];

/// A checked product. `None` of it is left when there is nothing to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    kernel: usize,
    element_bytes: u64,
    scale_bytes: usize,
    alpha: [u8; 16],
    beta: [u8; 16],
    sizes: [u64; 4],
    operations: [u64; 2],
    /// Of C, A, B: leading dimension and step.
    steps: [[u64; 2]; 3],
}

impl Product {
    /// What can be checked without the matrices' addresses.
    pub(crate) fn check(&self, settings: &Settings) -> Result<Option<Checked>, Status> {
        let [m, n, k] = self.sizes;
        for (name, size) in [
            ("m", m),
            ("n", n),
            ("k", k),
            ("the number of products", self.batch),
        ] {
            if size < 0 {
                return Err(refused!(InvalidValue, "{name} is {size}"));
            }
        }
        if self.operations.iter().any(|operation| operation.0 > 2) {
            return Err(refused!(
                InvalidValue,
                "there is no operation {:?}",
                self.operations
            ));
        }
        let stored = |turned: cublasOperation_t, rows, columns| match turned.0 {
            0 => [rows, columns],
            _ => [columns, rows],
        };
        let [of_a, of_b] = self.operations;
        let of_a = stored(of_a, m, k);
        let of_b = stored(of_b, k, n);
        for (name, [rows, _], matrix) in [
            ("A", of_a, self.a),
            ("B", of_b, self.b),
            ("C", [m, n], self.c),
        ] {
            if matrix.leading < rows.max(1) {
                return Err(refused!(
                    InvalidValue,
                    "{name} has {rows} rows and a leading dimension of {}",
                    matrix.leading
                ));
            }
            if matrix.step < 0 {
                return Err(refused!(InvalidValue, "{name} steps by {}", matrix.step));
            }
        }
        if self.overlaps() {
            return Err(refused!(
                InvalidValue,
                "{} matrices of {m} x {n} elements with leading dimension {} and step {} overlap in the output",
                self.batch,
                self.c.leading,
                self.c.step
            ));
        }
        if self.alpha.is_null() || self.beta.is_null() {
            return Err(refused!(InvalidValue, "a factor is a null pointer"));
        }
        if settings.device_scalars {
            return Err(refused!(
                NotSupported,
                "factors in device memory are not emulated"
            ));
        }
        let known = TYPES.iter().find(|(data, ..)| *data == self.a.data.0);
        let same = self.b.data == self.a.data && self.c.data == self.a.data;
        let Some(&(_, kernel, element_bytes, scale_bytes, compute)) = known.filter(|_| same) else {
            return Err(refused!(
                NotSupported,
                "elements of types {:?}, {:?}, {:?}",
                self.a.data,
                self.b.data,
                self.c.data
            ));
        };
        if !compute.contains(&self.compute.0) {
            return Err(refused!(
                NotSupported,
                "{:?} for elements of {:?}",
                self.compute,
                self.a.data
            ));
        }
        if self.algorithm.0 != -1 {
            return Err(refused!(NotSupported, "{:?}", self.algorithm));
        }
        if m == 0 || n == 0 || self.batch == 0 {
            return Ok(None);
        }
        for factor in [self.alpha, self.beta] {
            if !factor.addr().is_multiple_of(scale_bytes) {
                return Err(refused!(
                    InvalidValue,
                    "a factor of {scale_bytes} bytes lies at {factor:p}: cuBLAS reads it at once, so it has to be aligned"
                ));
            }
        }
        let factor = |from: *const c_void| {
            let mut bytes = [0; 16];
            // SAFETY: not null, so that the caller has promised a number of the scale type.
            let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), scale_bytes) };
            bytes[..scale_bytes].copy_from_slice(given);
            bytes
        };
        let steps = |matrix: Matrix| [matrix.leading as u64, matrix.step as u64];
        Ok(Some(Checked {
            kernel,
            element_bytes,
            scale_bytes,
            alpha: factor(self.alpha),
            beta: factor(self.beta),
            sizes: [m as u64, n as u64, k as u64, self.batch as u64],
            operations: self.operations.map(|operation| operation.0.into()),
            steps: [steps(self.c), steps(self.a), steps(self.b)],
        }))
    }
}

impl Product {
    /// Whether two elements of the output may lie at one place.
    fn overlaps(&self) -> bool {
        let [m, n, _] = self.sizes;
        let mut dims = [(m, 1), (n, self.c.leading), (self.batch, self.c.step)];
        dims.sort_by_key(|(_, stride)| *stride);
        let mut span: i128 = 1;
        dims.into_iter()
            .filter(|(count, _)| *count > 1)
            .any(|(count, stride)| {
                let overlaps = i128::from(stride) < span;
                span += i128::from(count - 1) * i128::from(stride);
                overlaps
            })
    }
}

/// Refuses a capture with a workspace that is not the program's: cuBLAS makes nodes of memory then.
pub(crate) fn check_capture(settings: &Settings) -> Result<bool, Status> {
    let mut status: c_uint = 0;
    // SAFETY: the pointer is to a number of ours.
    let asked = unsafe { (driver()?.is_capturing)(settings.stream, &mut status) };
    check(asked, "cuStreamIsCapturing")?;
    let capturing = status != 0;
    if capturing && settings.workspace.is_none() {
        return Err(refused!(
            NotSupported,
            "a product is captured without a workspace of the program's own: set one after the stream"
        ));
    }
    Ok(capturing)
}

impl Checked {
    /// One product of the matrices at these addresses; the others of a batch are left out.
    pub(crate) fn alone(mut self) -> Self {
        self.sizes[3] = 1;
        self
    }

    /// Refuses what a table of pointers must not have: the kernels of 16-bit elements, and those of TF32, read 16 bytes at a time, and
    /// cuBLAS can't look at the pointers before it chooses one.
    pub(crate) fn check_pointers(
        &self,
        settings: &Settings,
        tables: [&[u64]; 3],
    ) -> Result<(), Status> {
        let fast = self.element_bytes == 2 || settings.math & 3 == 3;
        let mut pointers = tables.into_iter().flatten();
        match pointers.find(|pointer| fast && !pointer.is_multiple_of(16)) {
            None => Ok(()),
            Some(pointer) => Err(refused!(
                InvalidValue,
                "a matrix of a batch lies at {pointer:#x}: its kernel would end with a misaligned address"
            )),
        }
    }

    /// Launches it for C, A and B at these addresses.
    pub(crate) fn launch(
        &self,
        state: &State,
        settings: &Settings,
        batch: Batch,
        addresses: [u64; 3],
    ) -> Result<(), Status> {
        let kind = Kind {
            model: self.kernel,
            operations: self.operations,
            batch,
        };
        for (name, address) in ["C", "A", "B"].into_iter().zip(addresses) {
            // Without a sum A and B are not there.
            let needed = name == "C" || self.sizes[2] > 0;
            if (address == 0 && needed) || !address.is_multiple_of(self.element_bytes.min(16)) {
                return Err(refused!(
                    InvalidValue,
                    "{name} lies at {address:#x}: it needs an address of aligned elements"
                ));
            }
        }
        let (workspace, bytes) = state.workspace(settings);
        let [m, n, k, count] = self.sizes;
        let mut pointers = [addresses[0], addresses[1], addresses[2], workspace];
        let mut pairs = [
            [m, n],
            [k, count],
            self.steps[0],
            self.steps[1],
            self.steps[2],
            self.operations,
            [bytes as u64, 0],
        ];
        let (mut alpha, mut beta) = (self.alpha, self.beta);
        debug_assert!(self.scale_bytes <= alpha.len());
        let mut arguments: Vec<*mut c_void> = Vec::with_capacity(at::COUNT);
        arguments.extend(pointers.iter_mut().map(|pointer| from_mut(pointer).cast()));
        arguments.extend(pairs.iter_mut().map(|pair| from_mut(pair).cast::<c_void>()));
        arguments.push(from_mut(&mut alpha).cast());
        arguments.push(from_mut(&mut beta).cast());
        let function = function(state.context, kind)?;
        launch(function, settings.stream, &mut arguments)
    }
}

/// Launches the check of a batch's arrays of pointers, of C, A, B, whose sum is `checksum`.
pub(crate) fn launch_pointers(
    state: &State,
    settings: &Settings,
    mut arrays: [u64; 3],
    count: u64,
    checksum: u64,
) -> Result<(), Status> {
    let mut rest = [count, checksum];
    let mut arguments: Vec<*mut c_void> = Vec::with_capacity(4);
    arguments.extend(
        arrays
            .iter_mut()
            .map(|array| from_mut(array).cast::<c_void>()),
    );
    arguments.push(from_mut(&mut rest).cast());
    launch(state.pointers, settings.stream, &mut arguments)
}

fn launch(function: Handle, stream: Handle, arguments: &mut [*mut c_void]) -> Result<(), Status> {
    // SAFETY: there is one pointer for each parameter of the function, to a value of its size.
    let launched = unsafe {
        (driver()?.launch)(
            function,
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            stream,
            arguments.as_mut_ptr(),
            null_mut(),
        )
    };
    check(launched, "cuLaunchKernel")
}
