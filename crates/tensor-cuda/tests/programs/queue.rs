//! Queueing operations.

use crate::meaning::counted;
use crate::program::{Kind, MATRICES, Op, SLOTS};
use async_value::{Async, AsyncError, Spawn, WriteGuard, spawn};
use cuda_runtime::Device;
use ndarray::{Array2, Axis};
use std::task::Poll;
use tensor_cuda::asynchronous::{
    add, add_bias, assign_product, axpy, copy, device_task, fill, from_ndarray, gemm, gemm_batched,
    gemv, linear, map, scale, sum, to_device, to_ndarray,
};
use tensor_cuda::{Activation, CudaTensor, Map, TensorError};

type Matrix = Async<CudaTensor<f64, 2>>;
type Vector = Async<CudaTensor<f64, 1>>;

/// What a program works on.
#[derive(Default)]
pub(crate) struct Values {
    matrices: [Matrix; MATRICES],
    vectors: [Vector; SLOTS - MATRICES],
}

impl Values {
    /// Queues an operation; what it brings to the host.
    pub(crate) fn queue(
        &mut self,
        on: &dyn Spawn,
        devices: &[Device],
        op: &Op,
    ) -> Option<Async<Array2<f64>>> {
        let m = &mut self.matrices;
        let v = &mut self.vectors;
        match op.kind {
            Kind::Upload { out, first, device } => {
                let array = counted(out, first);
                match out.checked_sub(MATRICES) {
                    None => m[out] = from_ndarray(on, &devices[device], array).unwrap(),
                    Some(out) => {
                        let column = array.remove_axis(Axis(1));
                        v[out] = from_ndarray(on, &devices[device], column).unwrap();
                    }
                }
            }
            Kind::Product { out, a, b } => assign_product(on, &m[out], &m[a], &m[b]).unwrap(),
            Kind::Gemm {
                out,
                alpha,
                a,
                b,
                beta,
            } => {
                gemm(on, &m[out], alpha, &m[a], &m[b], beta).unwrap();
            }
            Kind::Batch { out, a, b, beta } => {
                let [out, a, b] = [out, a, b].map(|all| all.map(|at| &m[at]));
                gemm_batched(on, &out, 1.0, &a, &b, beta).unwrap();
            }
            Kind::Gemv { out, a, x, beta } => {
                let (y, x) = (&v[out - MATRICES], &v[x - MATRICES]);
                gemv(on, y, 1.0, &m[a], x, beta).unwrap();
            }
            Kind::Add { out, a, b } => add(on, &m[out], &m[a], &m[b]).unwrap(),
            Kind::Linear {
                out,
                alpha,
                a,
                beta,
                b,
            } => {
                linear(on, &m[out], alpha, &m[a], beta, &m[b]).unwrap();
            }
            Kind::Absolute { out, a } => map(on, &m[out], Map::Absolute, &m[a]).unwrap(),
            Kind::Sum { out, a } => sum(on, &v[out - MATRICES], &m[a], [0]).unwrap(),
            Kind::Fill { x, value } => fill(on, &m[x], value).unwrap(),
            Kind::Scale { x, alpha } => scale(on, &m[x], alpha).unwrap(),
            Kind::Axpy { y, alpha, x } => axpy(on, &m[y], alpha, &m[x]).unwrap(),
            Kind::Bias { x, bias } => {
                add_bias(on, &m[x], &v[bias - MATRICES], Activation::Relu).unwrap();
            }
            Kind::Copy { out, a } => copy(on, &m[out], &m[a]).unwrap(),
            Kind::Move { out, a, device } => {
                m[out] = to_device(on, &m[a], &devices[device]).unwrap();
            }
            Kind::Download { a } => return Some(to_ndarray(on, &m[a]).unwrap()),
            Kind::Early { out, a } => early(on, &m[out], &m[a]),
            Kind::Fails { out, a } => {
                fails(on, "fails", &m[out], &m[a], || Err(TensorError::NoOperand))
            }
            Kind::Panics { out, a } => fails(on, "panics", &m[out], &m[a], || panic!("planned")),
            Kind::Lose { out } => drop(m[out].write()),
            Kind::Drop { out } => m[out] = Async::empty(),
        }
        None
    }

    /// What a value is in the end.
    pub(crate) fn read(&self, slot: usize) -> Result<Array2<f64>, AsyncError> {
        match slot.checked_sub(MATRICES) {
            None => Ok(self.matrices[slot].try_read()?.to_ndarray().unwrap()),
            Some(slot) => {
                let column = self.vectors[slot].try_read()?.to_ndarray().unwrap();
                Ok(column.insert_axis(Axis(1)))
            }
        }
    }

    /// Whatever happened to a value, the next writer finds it usable, and nobody accesses it any more.
    pub(crate) fn are_usable(&self, devices: &[Device], context: &str) {
        let ones = Array2::from_elem((3, 3), 1.0);
        for value in &self.matrices {
            let tensor = CudaTensor::from_ndarray(&devices[0], &ones.view()).unwrap();
            value.try_write().expect(context).set(tensor);
            assert_eq!(value.try_read().expect(context).to_ndarray().unwrap(), ones);
            let dump = value.dump();
            assert!(
                dump.values.iter().all(|value| value.epochs.is_empty()),
                "{context}: {dump}"
            );
        }
    }
}

/// Suspends so many times.
async fn pause(mut times: usize) {
    std::future::poll_fn(|context| {
        if times == 0 {
            return Poll::Ready(());
        }
        times -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn early(on: &dyn Spawn, out: &Matrix, a: &Matrix) {
    spawn(on, "early", || {
        let (from, to) = (a.read(), out.write());
        async move {
            pause(1).await;
            let from = from.await?;
            let stream = from.device().streams().acquire_async().await?;
            let copy = from.duplicate(&stream)?;
            // The copy may not have run; what comes next is ordered by the ledger.
            drop((from, stream));
            pause(3).await;
            to.await.set(copy);
            Ok(())
        }
    })
    .unwrap();
}

/// Does half of its work.
fn fails(
    on: &dyn Spawn,
    name: &'static str,
    out: &Matrix,
    a: &Matrix,
    end: impl FnOnce() -> Result<(), TensorError> + Send + 'static,
) {
    let tickets = || (a.read(), out.write());
    let leaf = move |stream: &_, (a, mut out): (_, WriteGuard<CudaTensor<f64, 2>>)| {
        drop::<async_value::ReadGuard<CudaTensor<f64, 2>>>(a);
        if let Some(out) = out.overwrite() {
            // It may be on another device.
            let _ = tensor_cuda::scale(stream, out, 2.0);
        }
        end()
    };
    device_task(on, name, tickets, leaf).unwrap();
}
