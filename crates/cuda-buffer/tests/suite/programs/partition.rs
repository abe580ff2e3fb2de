//! A buffer in parts for a while.

use super::op::Op;
use super::world::World;
use crate::kit::{N, elements, step_of};
use cuda_buffer::{BufferError, BufferResult, DeviceData, Launch, PartitionedCudaBuffer, Refused};

impl World {
    pub(super) fn cut(&mut self, op: &Op) -> BufferResult<()> {
        let &Op::Cut {
            b,
            dst,
            at,
            s,
            v,
            drop_from,
        } = op
        else {
            return Ok(());
        };
        let b = b as usize % self.buffers.len();
        let d = self.buffers[b].d;
        let (_, dst) = self.pair_with(b, dst, d);
        let streams = s.map(|s| self.stream_of(d, s));
        let whole = self.take(b)?;
        let ranges = [0..at[0], at[0]..at[1], at[1]..N];
        let mut parts = match PartitionedCudaBuffer::new(whole, &ranges) {
            Ok(parts) => parts,
            // A graph holds it, or it is somebody else's.
            Err(Refused {
                value: whole,
                error: BufferError::Held { .. } | BufferError::ForeignMemory,
            }) => {
                self.buffers[b].data = whole;
                return Ok(());
            }
            Err(refused) => return Err(refused.error),
        };
        let kit = self.places[d].kit.clone();
        for (part, stream) in parts.parts_mut().iter_mut().zip(&streams) {
            kit.step(stream, part, v)?;
        }
        let mut all = parts.write_synchronized_with(&streams[2])?;
        kit.step
            .launch(&streams[2], elements(N), (N as u32, v, &mut all))?;
        all.release()?;
        parts.parts_mut()[1].fill(&streams[0], v)?;
        let all = parts.read_synchronized_with(&streams[1])?;
        let mut out = self.buffers[dst]
            .data
            .write_synchronized_with(&streams[1])?;
        kit.map
            .launch(&streams[1], elements(N), (N as u32, 31_u32, &mut out, &all))?;
        drop((out, all));
        {
            let mut model = self.buffers[b].model.borrow_mut();
            model
                .iter_mut()
                .for_each(|x| *x = step_of(step_of(*x, v), v));
            model[ranges[1].clone()].fill(v);
        }
        let model = self.buffers[b].model.clone();
        self.mapped(dst, &model, 31);
        match drop_from {
            None => self.buffers[b].data = parts.into_whole().map_err(|refused| refused.error)?,
            Some(first) => {
                let mut parts = parts.into_parts();
                parts.rotate_left(first as usize % 3);
                parts.into_iter().for_each(drop);
                self.renew(b, None, &streams[0], v)?;
            }
        }
        Ok(())
    }
}
