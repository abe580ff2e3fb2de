//! Operations that can be captured, on the device and on the models.

use super::coverage::Noun;
use super::op::Work;
use super::world::{Model, Replay, World, two};
use crate::kit::{N, elements, join_of, map_of, step_of};
use cuda_buffer::{
    AccessCompletion, BufferResult, DeviceData, Launch, Rows, acquire_all, copy_slice,
};
use cuda_runtime::Stream;
use space_core::{Space, Undef};
use std::cell::Cell;
use std::rc::Rc;

impl World {
    /// Queues work on streams of device `d`, and says what it does to the models.
    pub(super) fn work(
        &mut self,
        d: usize,
        [stream, second]: [&Stream; 2],
        work: &Work,
    ) -> BufferResult<Replay> {
        match work.clone() {
            Work::Fill { b, v } => {
                let b = self.near(b, d);
                self.buffers[b].data.fill(stream, v)?;
                let x = self.buffers[b].model.clone();
                Ok(Box::new(move || x.borrow_mut().fill(v)))
            }
            Work::Copy { near, far, push } => {
                let near = self.near(near, d);
                let far = self.any(far, near);
                let (dst, src) = if push { (far, near) } else { (near, far) };
                let (out, x) = two(&mut self.buffers, dst, src);
                out.data.copy_from(&x.data, stream)?;
                if out.d != x.d {
                    self.coverage.note(&[Noun::BetweenDevices]);
                }
                Ok(copied(&out.model, &x.model))
            }
            Work::Step { b, a } => {
                let b = self.near(b, d);
                let kit = &self.places[d].kit;
                let a = Rc::new(Cell::new(a));
                if stream.is_capturing() {
                    let mut out = self.buffers[b].data.write_synchronized_with(stream)?;
                    let args = (N as u32, a.get(), &mut out);
                    let launch = kit.step.launch_captured(stream, elements(N), args)?;
                    out.release()?;
                    self.noted.push((launch, a.clone()));
                } else {
                    kit.step(stream, &mut self.buffers[b].data, a.get())?;
                }
                let x = self.buffers[b].model.clone();
                Ok(Box::new(move || {
                    let step = |x: &mut u32| *x = step_of(*x, a.get());
                    x.borrow_mut().iter_mut().for_each(step);
                }))
            }
            Work::Map { dst, src, a } => {
                let (dst, src) = self.pair(dst, src, d);
                let (out, x) = two(&mut self.buffers, dst, src);
                self.places[d].kit.map(stream, &mut out.data, &x.data, a)?;
                let (out, x) = (out.model.clone(), x.model.clone());
                Ok(Box::new(move || {
                    let mapped: Vec<_> = x.borrow().iter().map(|x| map_of(*x, a)).collect();
                    *out.borrow_mut() = mapped;
                }))
            }
            Work::Join { dst, x, y } => {
                let under_guards = x % 2 == 0;
                let (dst, x) = self.pair(dst, x, d);
                let (_, y) = self.pair_with(dst, y, d);
                let (out, x, y) = if x == y {
                    let (out, x) = two(&mut self.buffers, dst, x);
                    (out, x, x)
                } else {
                    let three = self.buffers.get_disjoint_mut([dst, x, y]);
                    let [out, x, y] = three.expect("different");
                    (out, &*x, &*y)
                };
                let kit = &self.places[d].kit;
                let (to, from) = (&mut out.data, (&x.data, &y.data));
                match under_guards {
                    true => kit.join_under_guards(stream, to, from.0, from.1)?,
                    false => kit.join(stream, to, from.0, from.1)?,
                }
                let (out, x, y) = (out.model.clone(), x.model.clone(), y.model.clone());
                Ok(Box::new(move || {
                    let joined = x
                        .borrow()
                        .iter()
                        .zip(&*y.borrow())
                        .map(|(x, y)| join_of(*x, *y))
                        .collect();
                    *out.borrow_mut() = joined;
                }))
            }
            Work::PartialStep { b, range, a } => {
                let b = self.near(b, d);
                let (n, kernel) = (range.len(), &self.places[d].kit.step);
                let mut x = self.buffers[b].data.write_synchronized_with(stream)?;
                let part = x.slice_mut(range.clone())?;
                kernel.launch(stream, elements(n), (n as u32, a, part))?;
                x.release()?;
                let x = self.buffers[b].model.clone();
                Ok(Box::new(move || {
                    x.borrow_mut()[range.clone()]
                        .iter_mut()
                        .for_each(|x| *x = step_of(*x, a));
                }))
            }
            Work::PartialCopy {
                dst,
                far,
                range,
                to,
            } => {
                let dst = self.near(dst, d);
                let src = self.any(far, dst);
                let to = to.min(N - range.len());
                let target = to..to + range.len();
                let (out, x) = two(&mut self.buffers, dst, src);
                if out.d == x.d {
                    let from = x.data.read().slice(range.clone())?;
                    let (mut to, from) = acquire_all(stream, (out.data.write(), from))?;
                    copy_slice(stream, to.slice_mut(target.clone())?, from.as_slice())?;
                    AccessCompletion::new(stream).release((to, from))?;
                } else {
                    let to = out.data.write().slice(target.clone())?;
                    to.copy_from(x.data.read().slice(range.clone())?, stream)?;
                }
                let (out, x) = (out.model.clone(), x.model.clone());
                Ok(Box::new(move || {
                    out.borrow_mut()[target.clone()].copy_from_slice(&x.borrow()[range.clone()]);
                }))
            }
            Work::Rows {
                b,
                other,
                way,
                rows,
            } => self.rows(stream, self.near(b, d), (other, way), rows),
            Work::FromPinned { b, p } => {
                let (b, p) = (self.near(b, d), p as usize % self.pinned.len());
                let (to, from) = (&mut self.buffers[b], &self.pinned[p]);
                to.data.copy_from_pinned(&from.0, stream)?;
                Ok(copied(&to.model, &from.1))
            }
            Work::ToPinned { p, b } => {
                let (b, p) = (self.near(b, d), p as usize % self.pinned.len());
                let (to, from) = (&mut self.pinned[p], &self.buffers[b]);
                from.data.copy_to_pinned(&mut to.0, stream)?;
                Ok(copied(&to.1, &from.model))
            }
            Work::Frame { b, other, deep } => {
                let (b, other) = self.pair(b, other, d);
                let place = &mut self.places[d];
                let (kit, arena) = (&place.kit, &mut place.arena);
                let (x, y) = two(&mut self.buffers, b, other);
                arena.frame().scratch(|frame| {
                    let mut kept = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                    frame.scratch(|frame| {
                        let mut inner = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                        inner.copy_from(&x.data, stream)?;
                        kit.step(second, &mut inner, 11)?;
                        if deep {
                            frame.scratch(|frame| {
                                let mut deepest = frame.alloc(Undef::<u32, _>::new([N])).unwrap();
                                kit.join(stream, &mut deepest, &y.data, &inner)?;
                                kit.map(second, &mut inner, &deepest, 13)
                            })?;
                        }
                        kit.map(second, &mut kept, &inner, 17)
                    })?;
                    kit.join(stream, &mut x.data, &kept, &y.data)
                })?;
                let (x, y) = (x.model.clone(), y.model.clone());
                Ok(Box::new(move || {
                    let joined = x
                        .borrow()
                        .iter()
                        .zip(&*y.borrow())
                        .map(|(&x, &y)| {
                            let mut inner = step_of(x, 11);
                            if deep {
                                inner = map_of(join_of(y, inner), 13);
                            }
                            join_of(map_of(inner, 17), y)
                        })
                        .collect();
                    *x.borrow_mut() = joined;
                }))
            }
        }
    }
}

impl World {
    fn rows(
        &mut self,
        stream: &Stream,
        near: usize,
        (other, way): (u8, u8),
        rows: Rows,
    ) -> BufferResult<Replay> {
        let p = other as usize % self.pinned.len();
        let (to, from) = match way % 4 {
            0 => {
                let (to, from) = (&mut self.buffers[near], &self.pinned[p]);
                to.data.copy_rows_from_pinned(&from.0, rows, stream)?;
                (&to.model, &from.1)
            }
            1 => {
                let (to, from) = (&mut self.pinned[p], &self.buffers[near]);
                from.data.copy_rows_to_pinned(&mut to.0, rows, stream)?;
                (&to.1, &from.model)
            }
            way => {
                let far = self.any(other, near);
                let (to, from) = if way == 2 { (near, far) } else { (far, near) };
                let (to, from) = two(&mut self.buffers, to, from);
                to.data.copy_rows_from(&from.data, rows, stream)?;
                if to.d != from.d {
                    self.coverage.note(&[Noun::BetweenDevices]);
                }
                (&to.model, &from.model)
            }
        };
        let (to, from) = (to.clone(), from.clone());
        Ok(Box::new(move || {
            let (mut to, from) = (to.borrow_mut(), from.borrow());
            for row in 0..rows.rows {
                let from = &from[row * rows.src_pitch..][..rows.width];
                to[row * rows.dst_pitch..][..rows.width].copy_from_slice(from);
            }
        }))
    }
}

fn copied(to: &Model, from: &Model) -> Replay {
    let (to, from) = (to.clone(), from.clone());
    Box::new(move || to.borrow_mut().copy_from_slice(&from.borrow()))
}
