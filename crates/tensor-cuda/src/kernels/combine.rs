//! out = f(alpha a (+ or times) beta b + gamma out), for up to two operands.
//!
//! `combine_T(out, a, b, plan[8], codes, alpha, beta, gamma)`; `codes` are the rank, whether indices need 64 bits, the
//! [`Form`] with the flags of conjugated operands, and the function. An operand whose coefficient is 0 is not read.

use super::walk::{PLAN, Walk, bad};
use crate::Number;
use crate::map::code;
use crate::number::sealed::Arithmetic;
use crate::number::wide::Wide;
use cuda_driver::{
    Access, Arguments, Footprint, KernelDeclaration, ModelError, ModelLaunch, Param,
};

const OUT: usize = 0;
const A: usize = 1;
const B: usize = 2;
const DIMS: usize = 3;
const CODES: usize = DIMS + PLAN.len();
const ALPHA: usize = CODES + 1;
const BETA: usize = CODES + 2;
const GAMMA: usize = CODES + 3;

/// How the operands are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// alpha a + beta b + gamma out.
    Sum = 0,
    /// alpha a b + gamma out.
    Product = 1,
    /// alpha a out.
    InPlace = 2,
}

/// What a launch does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Codes {
    pub(crate) form: Form,
    pub(crate) conjugate: [bool; 2],
    /// The code of the function that is applied last.
    pub(crate) function: u32,
}

impl Codes {
    pub(crate) fn numbers(self, rank: u32, wide: u32) -> [u32; 4] {
        let flags = u32::from(self.conjugate[0]) << 8 | u32::from(self.conjugate[1]) << 9;
        [rank, wide, self.form as u32 | flags, self.function]
    }

    fn read([_, _, form, function]: [u32; 4]) -> Option<Self> {
        Some(Self {
            form: match form & 0xff {
                0 => Form::Sum,
                1 => Form::Product,
                2 => Form::InPlace,
                _ => return None,
            },
            conjugate: [form & 1 << 8 != 0, form & 1 << 9 != 0],
            function,
        })
    }
}

/// Which of out, a and b are read.
fn reads<T: Number>(form: Form, [alpha, beta, gamma]: [T; 3]) -> [bool; 3] {
    let [alpha, beta, gamma] = [alpha, beta, gamma].map(|x| x != T::ZERO);
    match form {
        Form::Sum => [gamma, alpha, beta],
        Form::Product => [gamma, alpha, alpha],
        Form::InPlace => [alpha, alpha, false],
    }
}

pub(super) const fn declare<T: Number>(name: &'static str) -> KernelDeclaration {
    // SAFETY: the kernel in tensor.cu has these parameters, and touches what the footprint says.
    let declaration = unsafe {
        KernelDeclaration::new(name, const { &params::<T>() }, footprint::<T>, model::<T>)
    };
    declaration.with_flops(flops)
}

const fn params<T>() -> [Param; GAMMA + 1] {
    let mut params = [Param::scalar::<[u32; 4]>(); GAMMA + 1];
    params[OUT] = Param::pointer::<T>(Access::ReadWrite);
    params[A] = Param::pointer::<T>(Access::Read);
    params[B] = Param::pointer::<T>(Access::Read);
    let mut i = 0;
    while i < PLAN.len() {
        params[DIMS + i] = PLAN[i];
        i += 1;
    }
    params[ALPHA] = Param::scalar::<T>();
    params[BETA] = Param::scalar::<T>();
    params[GAMMA] = Param::scalar::<T>();
    params
}

fn walk(scalar: impl Fn(usize) -> Option<[i64; 2]>, codes: [u32; 4]) -> Option<Walk<3>> {
    Walk::read(scalar, DIMS, codes[0])
}

fn footprint<T: Number>(args: &Arguments<'_>, touched: &mut Footprint) -> Option<()> {
    let codes = args.scalar(CODES)?;
    let walk = walk(|at| args.scalar(at), codes)?;
    let coefficients = [args.scalar(ALPHA)?, args.scalar(BETA)?, args.scalar(GAMMA)?];
    let [out, a, b] = reads::<T>(Codes::read(codes)?.form, coefficients);
    let bytes = size_of::<T>();
    let access = if out {
        Access::ReadWrite
    } else {
        Access::Write
    };
    walk.touch(touched, OUT, 0, access, bytes)?;
    if a {
        walk.touch(touched, A, 1, Access::Read, bytes)?;
    }
    if b {
        walk.touch(touched, B, 2, Access::Read, bytes)?;
    }
    Some(())
}

fn flops(args: &Arguments<'_>) -> f64 {
    let walk = args
        .scalar(CODES)
        .and_then(|codes| walk(|at| args.scalar(at), codes));
    let count = |walk: Walk<3>| {
        walk.dims()
            .iter()
            .map(|dim| dim.extent as f64)
            .product::<f64>()
    };
    2.0 * walk.map_or(0.0, count)
}

fn model<T: Number>(launch: &mut ModelLaunch<'_>) -> Result<(), ModelError> {
    let codes = launch.scalar::<[u32; 4]>(CODES)?;
    let walk = walk(|at| launch.scalar(at).ok(), codes).ok_or_else(|| bad(DIMS))?;
    let Codes {
        form,
        conjugate,
        function,
    } = Codes::read(codes).ok_or_else(|| bad(CODES))?;
    let coefficients = [
        launch.scalar(ALPHA)?,
        launch.scalar(BETA)?,
        launch.scalar(GAMMA)?,
    ];
    let read = reads::<T>(form, coefficients);
    let [alpha, beta, gamma] = coefficients.map(T::widen);
    let out = launch.take_write::<T>(OUT)?;
    let (a, b) = (launch.take_read::<T>(A)?, launch.take_read::<T>(B)?);
    let zero = <T as Arithmetic>::Wide::ZERO;
    let of = |values: &[T], at: usize, read: bool, conjugate: bool| match (read, conjugate) {
        (false, _) => zero,
        (true, false) => values[at].widen(),
        (true, true) => values[at].widen().conjugate(),
    };
    walk.each(walk.start(), &mut |[o, i, j]| {
        let (a, b) = (
            of(a, i, read[1], conjugate[0]),
            of(b, j, read[2], conjugate[1]),
        );
        let before = of(out, o, read[0], false);
        // A coefficient of 0 leaves its term out, so that what is not read can't be anything; one of 1 changes nothing.
        let term = |read: bool, factor, value| match read {
            false => zero,
            true if factor == Wide::ONE => value,
            true => factor * value,
        };
        let mut terms = match form {
            Form::Sum => [
                (read[1], term(read[1], alpha, a)),
                (read[2], term(read[2], beta, b)),
            ],
            Form::Product => [(read[1], term(read[1], alpha, a * b)), (false, zero)],
            Form::InPlace => [(read[0], term(read[0], alpha, a * before)), (false, zero)],
        }
        .into_iter()
        .chain([(
            form != Form::InPlace && read[0],
            term(read[0], gamma, before),
        )])
        .filter_map(|(read, term)| read.then_some(term));
        let first = terms.next();
        let sum = first.map_or(zero, |first| terms.fold(first, |sum, term| sum + term));
        let value = match function {
            code::NOTHING => sum,
            function => sum.apply(function).ok_or_else(|| bad(CODES))?,
        };
        out[o] = T::narrow(value);
        Ok(())
    })
}
