//! The models of the kernels: one product for each element type, and one that looks at arrays of pointers.
//!
//! A product reads and writes what cuBLAS may: C is not read with beta = 0; A and B are read whatever alpha is, since cuBLAS does not
//! promise otherwise. It writes both ends of the workspace, so that who shares one unordered is found.

use bytemuck::Pod;
use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, ModuleImage, Param,
    Region,
};
use half::{bf16, f16};
use num_complex::Complex;
use std::ffi::CStr;
use std::ops::{Add, Mul};

/// Entry names, by [`Element::POSITION`]; that of tables last.
pub(crate) static NAMES: [&CStr; 7] = [
    c"cublas_gemm_f32",
    c"cublas_gemm_f64",
    c"cublas_gemm_f16",
    c"cublas_gemm_bf16",
    c"cublas_gemm_c32",
    c"cublas_gemm_c64",
    c"cublas_pointers",
];

pub(crate) static IMAGE: ModuleImage = ModuleImage {
    name: "emulated cuBLAS",
    ptx: None,
    kernels: &[
        declare::<f32>("cublas_gemm_f32"),
        declare::<f64>("cublas_gemm_f64"),
        declare::<f16>("cublas_gemm_f16"),
        declare::<bf16>("cublas_gemm_bf16"),
        declare::<Complex<f32>>("cublas_gemm_c32"),
        declare::<Complex<f64>>("cublas_gemm_c64"),
        POINTERS,
    ],
};

/// Positions of a product's parameters. Pairs of numbers, unless said otherwise.
pub(crate) mod at {
    pub(crate) const C: usize = 0;
    pub(crate) const A: usize = 1;
    pub(crate) const B: usize = 2;
    pub(crate) const WORKSPACE: usize = 3;
    /// m, n.
    pub(crate) const OUTPUT: usize = 4;
    /// k, and how many.
    pub(crate) const DEPTH: usize = 5;
    /// Leading dimension, and elements from one matrix to the next.
    pub(crate) const OF_C: usize = 6;
    pub(crate) const OF_A: usize = 7;
    pub(crate) const OF_B: usize = 8;
    /// How A and B take part: 0 as it is, 1 transposed, 2 transposed and conjugated.
    pub(crate) const OPERATIONS: usize = 9;
    /// Bytes of the workspace, and nothing.
    pub(crate) const BYTES: usize = 10;
    /// Numbers of the scale type.
    pub(crate) const ALPHA: usize = 11;
    pub(crate) const BETA: usize = 12;
    pub(crate) const COUNT: usize = 13;
}

/// What sums are computed in; scale factors are of this type.
pub(crate) trait Sum: Pod + PartialEq + Add<Output = Self> + Mul<Output = Self> {
    const ZERO: Self;
    fn conjugate(self) -> Self;
}

pub(crate) trait Element: Pod {
    type Sum: Sum;
    fn widen(self) -> Self::Sum;
    fn narrow(sum: Self::Sum) -> Self;
}

macro_rules! sums {
    ($($type:ty, $zero:expr, |$x:ident| $conjugate:expr;)+) => { $(
        impl Sum for $type {
            const ZERO: Self = $zero;
            fn conjugate(self) -> Self {
                let $x = self;
                $conjugate
            }
        }
        impl Element for $type {
            type Sum = Self;
            fn widen(self) -> Self {
                self
            }
            fn narrow(sum: Self) -> Self {
                sum
            }
        }
    )+ };
}

sums! {
    f32, 0.0, |x| x;
    f64, 0.0, |x| x;
    Complex<f32>, Complex::new(0.0, 0.0), |x| x.conj();
    Complex<f64>, Complex::new(0.0, 0.0), |x| x.conj();
}

macro_rules! halves {
    ($($type:ident)+) => { $(
        impl Element for $type {
            type Sum = f32;
            fn widen(self) -> f32 {
                self.to_f32()
            }
            fn narrow(sum: f32) -> Self {
                Self::from_f32(sum)
            }
        }
    )+ };
}

halves!(f16 bf16);

const fn declare<T: Element>(name: &'static str) -> KernelDeclaration {
    // SAFETY: there is no image but the one of empty functions; what the model touches is what the footprint says.
    unsafe { KernelDeclaration::new(name, const { &params::<T>() }, footprint::<T>, model::<T>) }
}

const fn params<T: Element>() -> [Param; at::COUNT] {
    let mut params = [Param::scalar::<[u64; 2]>(); at::COUNT];
    params[at::C] = Param::pointer::<T>(Access::ReadWrite);
    params[at::A] = Param::pointer::<T>(Access::Read);
    params[at::B] = Param::pointer::<T>(Access::Read);
    params[at::WORKSPACE] = Param::pointer::<u8>(Access::Write);
    params[at::ALPHA] = Param::scalar::<T::Sum>();
    params[at::BETA] = Param::scalar::<T::Sum>();
    params
}

/// The sizes of a launch. They were checked before it.
struct Sizes {
    m: u64,
    n: u64,
    k: u64,
    batch: u64,
    operations: [u64; 2],
    /// Of C, A, B: leading dimension, and elements from one matrix to the next.
    steps: [[u64; 2]; 3],
    workspace_bytes: u64,
}

impl Sizes {
    fn read(pair: impl Fn(usize) -> Option<[u64; 2]>) -> Option<Self> {
        let [[m, n], [k, batch]] = [pair(at::OUTPUT)?, pair(at::DEPTH)?];
        Some(Self {
            m,
            n,
            k,
            batch,
            operations: pair(at::OPERATIONS)?,
            steps: [pair(at::OF_C)?, pair(at::OF_A)?, pair(at::OF_B)?],
            workspace_bytes: pair(at::BYTES)?[0],
        })
    }

    /// Rows and columns of C, A, B as they are stored.
    fn stored(&self) -> [[u64; 2]; 3] {
        let turned = |operation, [rows, columns]: [u64; 2]| match operation {
            0 => [rows, columns],
            _ => [columns, rows],
        };
        let [a, b] = self.operations;
        [
            [self.m, self.n],
            turned(a, [self.m, self.k]),
            turned(b, [self.k, self.n]),
        ]
    }
}

fn footprint<T: Element>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let sizes = Sizes::read(|at| args.scalar(at))?;
    let output = match args.scalar::<T::Sum>(at::BETA)? == T::Sum::ZERO {
        true => Access::Write,
        false => Access::ReadWrite,
    };
    let bytes = size_of::<T>() as u64;
    let accesses = [output, Access::Read, Access::Read];
    for (param, access) in accesses.into_iter().enumerate() {
        let ([rows, columns], [leading, step]) = (sizes.stored()[param], sizes.steps[param]);
        for i in 0..sizes.batch {
            touched.region(Region {
                param,
                access,
                offset_bytes: i64::try_from(i.checked_mul(step)?.checked_mul(bytes)?).ok()?,
                width_bytes: rows * bytes,
                pitch_bytes: leading * bytes,
                rows: columns,
            });
        }
    }
    let end = sizes.workspace_bytes.min(256);
    for offset in [0, sizes.workspace_bytes - end] {
        touched.region(Region {
            param: at::WORKSPACE,
            access: Access::Write,
            offset_bytes: offset as i64,
            width_bytes: end,
            pitch_bytes: end,
            rows: 1,
        });
    }
    Some(())
}

fn model<T: Element>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let sizes = Sizes::read(|at| launch.scalar(at).ok());
    let sizes = sizes.ok_or(ModelError::Scalar { param: at::OUTPUT })?;
    let (alpha, beta) = (
        launch.scalar::<T::Sum>(at::ALPHA)?,
        launch.scalar::<T::Sum>(at::BETA)?,
    );
    let workspace = launch.take_write::<u8>(at::WORKSPACE)?;
    let end = workspace.len().min(256);
    let last = workspace.len() - end;
    // Nothing that a product which shares it could go on with.
    workspace[..end].fill(0xa5);
    workspace[last..].fill(0xa5);
    let c = launch.take_write::<T>(at::C)?;
    let a = launch.take_read::<T>(at::A)?;
    let b = launch.take_read::<T>(at::B)?;
    let read = |from: &[T], operand: usize, i: u64, row: u64, column: u64| {
        let [leading, step] = sizes.steps[operand];
        let operation = sizes.operations[operand - 1];
        let (row, column) = if operation == 0 {
            (row, column)
        } else {
            (column, row)
        };
        let value = from[(i * step + column * leading + row) as usize].widen();
        if operation == 2 {
            value.conjugate()
        } else {
            value
        }
    };
    let [leading, step] = sizes.steps[0];
    for (i, column) in (0..sizes.batch).flat_map(|i| (0..sizes.n).map(move |column| (i, column))) {
        for row in 0..sizes.m {
            let products =
                (0..sizes.k).map(|l| read(a, at::A, i, row, l) * read(b, at::B, i, l, column));
            let sum = products.fold(T::Sum::ZERO, |sum, product| sum + product);
            let out = &mut c[(i * step + column * leading + row) as usize];
            *out = T::narrow(match beta == T::Sum::ZERO {
                true => alpha * sum,
                false => alpha * sum + beta * out.widen(),
            });
        }
    }
    Ok(())
}

/// Arrays of pointers to C, A and B, each of so many elements, with the sum that they had when the product was called.
const POINTERS: KernelDeclaration = {
    const PARAMS: [Param; 4] = [
        Param::pointer::<u64>(Access::Read),
        Param::pointer::<u64>(Access::Read),
        Param::pointer::<u64>(Access::Read),
        Param::scalar::<[u64; 2]>(),
    ];
    fn footprint(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
        let [count, _] = args.scalar::<[u64; 2]>(3)?;
        (0..3).for_each(|param| touched.contiguous(param, Access::Read, 8 * count));
        Some(())
    }
    fn model(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
        let [_, expected] = launch.scalar::<[u64; 2]>(3)?;
        let mut arrays = [&[][..]; 3];
        for (param, array) in arrays.iter_mut().enumerate() {
            *array = launch.take_read::<u64>(param)?;
        }
        match checksum(arrays) == expected {
            true => Ok(()),
            false => Err(ModelError::Fault(
                "the pointers of a batch are others than when the product was called".to_owned(),
            )),
        }
    }
    // SAFETY: as for products.
    unsafe { KernelDeclaration::new("cublas_pointers", &PARAMS, footprint, model) }
};

/// A number that tells arrays apart.
pub(crate) fn checksum(arrays: [&[u64]; 3]) -> u64 {
    arrays
        .into_iter()
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, value| {
            (sum ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
        })
}
