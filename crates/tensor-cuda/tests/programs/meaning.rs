//! What a program means: each operation at once, in order, on the host.

use crate::program::{Kind, MATRICES, Op, SLOTS};
use crate::{end_of, name_of};
use async_value::AsyncError;
use ndarray::{Array2, Axis};
use std::collections::HashMap;

/// What is counted of the ends of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Value,
    Empty,
    Error,
    Panic,
    Cancelled,
}

/// The operation that was the first to fail, by number, and how.
type Origin = (usize, End);

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Empty,
    /// A vector is a matrix of one column.
    Value {
        array: Array2<f64>,
        device: usize,
    },
    /// There may still be a tensor in the place, on a device.
    Failed {
        by: Origin,
        place: Option<usize>,
    },
}

impl State {
    fn place(&self) -> Option<usize> {
        match self {
            Self::Empty => None,
            Self::Value { device, .. } => Some(*device),
            Self::Failed { place, .. } => *place,
        }
    }

    /// As an input or in place; or else the operation that fails the one of number `op`.
    fn get(&self, op: usize) -> Result<(&Array2<f64>, usize), Origin> {
        match self {
            Self::Empty => Err((op, End::Error)),
            Self::Value { array, device } => Ok((array, *device)),
            Self::Failed { by, .. } => Err(*by),
        }
    }

    pub(crate) fn largest(&self) -> f64 {
        match self {
            Self::Value { array, .. } => array.iter().fold(0.0, |most, x| x.abs().max(most)),
            Self::Empty | Self::Failed { .. } => 0.0,
        }
    }

    /// Whether that is what was found.
    pub(crate) fn compare(
        &self,
        found: Result<Array2<f64>, AsyncError>,
        ops: &[Op],
    ) -> Result<End, String> {
        match (self, found) {
            (Self::Value { array, .. }, Ok(found)) if *array == found => Ok(End::Value),
            (Self::Empty, Err(AsyncError::Empty { .. })) => Ok(End::Empty),
            (Self::Failed { by: (by, end), .. }, Err(AsyncError::Failed(failure)))
                if failure.operation() == name_of(&ops[*by].kind)
                    && end_of(failure.cause()) == *end =>
            {
                Ok(*end)
            }
            (expected, found) => Err(format!("{found:?} and not {expected:?}")),
        }
    }
}

type Array = Array2<f64>;

/// An array with whole numbers from a first one on.
pub(crate) fn counted(slot: usize, first: f64) -> Array {
    let columns = if slot < MATRICES { 3 } else { 1 };
    Array2::from_shape_fn((3, columns), |(i, j)| {
        first + ((i * 5 + j * 2) % 7) as f64 - 3.0
    })
}

/// The values after all operations, and what downloads have seen.
pub(crate) fn of(ops: &[Op]) -> (Vec<State>, HashMap<usize, State>) {
    let mut run = Run {
        states: vec![State::Empty; SLOTS],
        at: 0,
    };
    let mut seen = HashMap::new();
    for (at, op) in ops.iter().enumerate() {
        run.at = at;
        if op.cancelled {
            run.cancel(&op.kind);
        } else {
            run.step(&op.kind);
        }
        if let Kind::Download { a } = op.kind {
            let state = match op.cancelled {
                true => State::Failed {
                    by: (at, End::Cancelled),
                    place: None,
                },
                // What can't be read because it is empty is a failure of the download.
                false => match run.states[a].get(at) {
                    Ok(_) => run.states[a].clone(),
                    Err(by) => State::Failed { by, place: None },
                },
            };
            seen.insert(at, state);
        }
    }
    (run.states, seen)
}

struct Run {
    states: Vec<State>,
    /// The number of the operation.
    at: usize,
}

impl Run {
    fn fail(&mut self, out: usize, by: Origin, place: Option<usize>) {
        self.states[out] = State::Failed { by, place };
    }

    /// The inputs, in the order of their tickets.
    fn inputs(&self, inputs: &[usize]) -> Result<Vec<(Array, usize)>, Origin> {
        let get = |&input: &usize| {
            let (array, device) = self.states[input].get(self.at)?;
            Ok((array.clone(), device))
        };
        inputs.iter().map(get).collect()
    }

    /// An output that is overwritten, or made on the device of the first input. All must be on one.
    fn make(&mut self, out: usize, inputs: &[usize], f: impl FnOnce(&[Array]) -> Array) {
        let inputs = match self.inputs(inputs) {
            Ok(inputs) => inputs,
            Err(by) => return self.fail(out, by, self.states[out].place()),
        };
        let device = inputs[0].1;
        let place = self.states[out].place().unwrap_or(device);
        if place != device || inputs.iter().any(|(_, other)| *other != device) {
            return self.fail(out, (self.at, End::Error), Some(place));
        }
        let inputs: Vec<_> = inputs.into_iter().map(|(array, _)| array).collect();
        let array = f(&inputs);
        self.states[out] = State::Value { array, device };
    }

    /// A value that is changed. All must be on one device.
    fn change(&mut self, x: usize, inputs: &[usize], f: impl FnOnce(&Array, &[Array]) -> Array) {
        let place = self.states[x].place();
        let inputs = match self.inputs(inputs) {
            Ok(inputs) => inputs,
            Err(by) => return self.fail(x, by, place),
        };
        let (array, device) = match self.states[x].get(self.at) {
            Ok((array, device)) => (array.clone(), device),
            Err(by) => return self.fail(x, by, place),
        };
        if inputs.iter().any(|(_, other)| *other != device) {
            return self.fail(x, (self.at, End::Error), place);
        }
        let inputs: Vec<_> = inputs.into_iter().map(|(array, _)| array).collect();
        let array = f(&array, &inputs);
        self.states[x] = State::Value { array, device };
    }

    /// What nothing was done of.
    fn cancel(&mut self, kind: &Kind) {
        match *kind {
            Kind::Upload { out, .. } | Kind::Move { out, .. } => {
                self.fail(out, (self.at, End::Cancelled), None)
            }
            Kind::Batch { out, .. } => out.into_iter().for_each(|out| {
                self.fail(out, (self.at, End::Cancelled), self.states[out].place())
            }),
            Kind::Product { out, .. }
            | Kind::Gemm { out, .. }
            | Kind::Gemv { out, .. }
            | Kind::Add { out, .. }
            | Kind::Linear { out, .. }
            | Kind::Absolute { out, .. }
            | Kind::Sum { out, .. }
            | Kind::Fill { x: out, .. }
            | Kind::Scale { x: out, .. }
            | Kind::Axpy { y: out, .. }
            | Kind::Bias { x: out, .. }
            | Kind::Copy { out, .. }
            | Kind::Early { out, .. }
            | Kind::Fails { out, .. }
            | Kind::Panics { out, .. } => {
                self.fail(out, (self.at, End::Cancelled), self.states[out].place())
            }
            Kind::Download { .. } => {}
            Kind::Lose { .. } | Kind::Drop { .. } => unreachable!("these are no tasks"),
        }
    }

    fn step(&mut self, kind: &Kind) {
        match *kind {
            Kind::Upload { out, first, device } => {
                let array = counted(out, first);
                self.states[out] = State::Value { array, device };
            }
            Kind::Product { out, a, b } => self.make(out, &[a, b], |x| x[0].dot(&x[1])),
            Kind::Gemm {
                out,
                alpha,
                a,
                b,
                beta,
            } => {
                self.gemm(out, [a, b], alpha, beta);
            }
            Kind::Batch { out, a, b, beta } => self.batch(out, a, b, beta),
            Kind::Gemv { out, a, x, beta } => self.gemm(out, [a, x], 1.0, beta),
            Kind::Add { out, a, b } => self.make(out, &[a, b], |x| &x[0] + &x[1]),
            Kind::Linear {
                out,
                alpha,
                a,
                beta,
                b,
            } => {
                self.make(out, &[a, b], |x| &x[0] * alpha + &x[1] * beta);
            }
            Kind::Absolute { out, a } => self.make(out, &[a], |x| x[0].mapv(f64::abs)),
            Kind::Sum { out, a } => {
                self.make(out, &[a], |x| x[0].sum_axis(Axis(0)).insert_axis(Axis(1)));
            }
            Kind::Fill { x, value } => self.change(x, &[], |x, _| x.mapv(|_| value)),
            Kind::Scale { x, alpha } => self.change(x, &[], |x, _| x * alpha),
            Kind::Axpy { y, alpha, x } => self.change(y, &[x], |y, x| y + &x[0] * alpha),
            Kind::Bias { x, bias } => self.change(x, &[bias], |x, bias| {
                let row = bias[0].t();
                (x + &row).mapv(|x| x.max(0.0))
            }),
            // From one device to another as well.
            Kind::Copy { out, a } => match self.inputs(&[a]) {
                Ok(mut inputs) => {
                    let (array, from) = inputs.remove(0);
                    let device = self.states[out].place().unwrap_or(from);
                    self.states[out] = State::Value { array, device };
                }
                Err(by) => self.fail(out, by, self.states[out].place()),
            },
            Kind::Move { out, a, device } => match self.states[a].get(self.at) {
                Ok((array, _)) => {
                    let array = array.clone();
                    self.states[out] = State::Value { array, device };
                }
                Err(by) => self.fail(out, by, None),
            },
            Kind::Early { out, a } => match self.states[a].get(self.at) {
                Ok(_) => self.states[out] = self.states[a].clone(),
                Err(by) => self.fail(out, by, self.states[out].place()),
            },
            Kind::Fails { out, a } | Kind::Panics { out, a } => {
                let end = match kind {
                    Kind::Panics { .. } => End::Panic,
                    _ => End::Error,
                };
                let by = self.states[a]
                    .get(self.at)
                    .map_or_else(|by| by, |_| (self.at, end));
                self.fail(out, by, self.states[out].place());
            }
            Kind::Lose { out } => self.fail(out, (self.at, End::Error), self.states[out].place()),
            Kind::Drop { out } => self.states[out] = State::Empty,
            Kind::Download { .. } => {}
        }
    }

    fn gemm(&mut self, out: usize, inputs: [usize; 2], alpha: f64, beta: f64) {
        if beta == 0.0 {
            return self.make(out, &inputs, |x| x[0].dot(&x[1]) * alpha);
        }
        // The inputs are asked first, and then the output.
        self.change(out, &inputs, |out, x| x[0].dot(&x[1]) * alpha + out * beta);
    }

    /// Two products that fail together.
    fn batch(&mut self, out: [usize; 2], a: [usize; 2], b: [usize; 2], beta: f64) {
        let places = out.map(|out| self.states[out].place());
        let fail = |run: &mut Self, by, places: [Option<usize>; 2]| {
            for (out, place) in out.into_iter().zip(places) {
                run.fail(out, by, place);
            }
        };
        let inputs = match self.inputs(&[a[0], a[1], b[0], b[1]]) {
            Ok(inputs) => inputs,
            Err(by) => return fail(self, by, places),
        };
        let device = inputs[0].1;
        let mut kept = Vec::new();
        for out in out {
            match self.states[out].get(self.at) {
                Ok((array, _)) if beta != 0.0 => kept.push(array.clone()),
                Err(by) if beta != 0.0 => return fail(self, by, places),
                _ => kept.push(Array::zeros((3, 3))),
            }
        }
        let places = places.map(|place| place.or(Some(device)));
        let devices = inputs.iter().map(|(_, device)| Some(*device)).chain(places);
        if devices.into_iter().any(|other| other != Some(device)) {
            return fail(self, (self.at, End::Error), places);
        }
        for (at, (out, kept)) in out.into_iter().zip(kept).enumerate() {
            let array = inputs[at].0.dot(&inputs[2 + at].0) + kept * beta;
            self.states[out] = State::Value { array, device };
        }
    }
}
