//! Running the Rust model of a kernel on the bytes behind its operands, without ever aliasing them.
//!
//! Operands that overlap nothing that is written get the memory itself, cut from the allocations by splitting.
//! Operands that share bytes with a written one, and operands with gaps, get a copy of what was there before the launch;
//! what they write is carried back afterwards. Both only where the footprint says so: a model that reads elsewhere
//! gets poison, and what it writes there is lost. Bytes that a launch declares as written and not read are
//! poisoned first, so that a model which reads its output, or leaves part of it unwritten, shows it.

use crate::backing::{Backing, POISON};
use crate::core::as_model;
use crate::explore::panic_message;
use crate::lane::Pending;
use crate::memory::AllocationId;
use crate::report::{Finding, MemorySpace, MemoryUse};
use crate::sim::Sim;
use crate::work::{Body, Span, Work};
use cuda_driver::{Arguments, ErrorCode, ModelError, ModelLaunch, ModelMemory};
use smallvec::SmallVec;
use std::ops::Range;

/// Where an operand's bytes come from.
enum Source {
    /// The allocation itself.
    Direct(usize),
    /// A copy, by index.
    Copied(usize),
}

impl Sim {
    pub(crate) fn run_kernel(&mut self, pending: &Pending) -> Result<(), ErrorCode> {
        let work = &pending.work;
        let Body::Kernel {
            declaration,
            config,
            args,
            ..
        } = &work.body
        else {
            return Ok(());
        };
        self.launches += 1;
        if let Some(code) = self.faults.launch_fault(self.launches) {
            return Err(code);
        }
        let mut ids: SmallVec<[Option<AllocationId>; 4]> = SmallVec::new();
        for id in &pending.memory {
            ids.push(self.memory_behind(*id)?);
        }
        if self.config.checks.races {
            self.report_aliased_writes(pending);
        }
        // Take each allocation's bytes once.
        let mut taken: SmallVec<[(AllocationId, u64, Backing); 4]> = SmallVec::new();
        for id in ids.iter().flatten() {
            if !taken.iter().any(|(other, ..)| other == id)
                && let Some(allocation) = self.allocations.get_mut(*id)
            {
                let base = allocation.base;
                taken.push((*id, base, allocation.take_backing()));
            }
        }
        let position = |id: &AllocationId| taken.iter().position(|(other, ..)| other == id);
        let places: SmallVec<[Option<usize>; 4]> = ids
            .iter()
            .map(|id| id.as_ref().and_then(position))
            .collect();

        let mut copies: Vec<Backing> = Vec::new();
        let sources: SmallVec<[Source; 4]> = work
            .spans
            .iter()
            .enumerate()
            .map(|(index, span)| match places[index] {
                Some(place) if !needs_copy(work, &ids, index) => Source::Direct(place),
                place => {
                    let len = (span.range.end - span.range.start) as usize;
                    let mut copy = Backing::poisoned(len, span.range.start as usize);
                    if let Some(place) = place {
                        let (_, base, backing) = &taken[place];
                        let own = work.touches.iter().filter(|touch| touch.span == index);
                        for range in own.map(|touch| &touch.range) {
                            copy.as_mut_slice()[within(range, span.range.start)]
                                .copy_from_slice(&backing.as_slice()[within(range, *base)]);
                        }
                    }
                    copies.push(copy);
                    Source::Copied(copies.len() - 1)
                }
            })
            .collect();
        for touch in work
            .touches
            .iter()
            .filter(|touch| touch.access == cuda_driver::Access::Write)
        {
            let (range, span) = (&touch.range, &work.spans[touch.span]);
            let (bytes, start) = match sources[touch.span] {
                Source::Direct(place) => {
                    let (_, base, backing) = &mut taken[place];
                    (backing.as_mut_slice(), *base)
                }
                Source::Copied(copy) => (copies[copy].as_mut_slice(), span.range.start),
            };
            bytes[within(range, start)].fill(POISON);
        }

        let outcome = {
            let mut memory: SmallVec<[Option<ModelMemory<'_>>; 8]> =
                args.iter().map(|_| None).collect();
            let mut copies_left: SmallVec<[Option<&mut Backing>; 4]> =
                copies.iter_mut().map(Some).collect();
            for (index, source) in sources.iter().enumerate() {
                if let Source::Copied(copy) = source
                    && let Some(copy) = copies_left[*copy].take()
                {
                    memory[work.spans[index].param] =
                        Some(as_memory(copy.as_mut_slice(), work.spans[index].writes));
                }
            }
            for (place, (_, base, backing)) in taken.iter_mut().enumerate() {
                let mut spans: SmallVec<[&Span; 4]> = sources
                    .iter()
                    .zip(&work.spans)
                    .filter(
                        |(source, _)| matches!(source, Source::Direct(other) if *other == place),
                    )
                    .map(|(_, span)| span)
                    .collect();
                spans.sort_by_key(|span| span.range.start);
                hand_out(&spans, *base, backing.as_mut_slice(), &mut memory);
            }
            let mut launch = ModelLaunch::new(*config, Arguments(args), memory);
            as_model(|| declaration.run_model(&mut launch))
        };

        carry_back(work, &sources, &places, &copies, &mut taken);
        for (id, _, backing) in taken {
            if let Some(allocation) = self.allocations.get_mut(id) {
                allocation.put_backing(backing);
            }
        }
        let error = match outcome {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(panic) => {
                ModelError::Fault(format!("the model panicked: {}", panic_message(panic)))
            }
        };
        let finding = Finding::KernelFault {
            operation: pending.operation,
            message: error.to_string(),
        };
        self.reports.add(finding);
        Err(ErrorCode::LAUNCH_FAILED)
    }

    /// Different parameters of one launch that write the same bytes.
    fn report_aliased_writes(&mut self, pending: &Pending) {
        let work = &pending.work;
        let writing = work.spans.iter().filter(|span| span.writes).count();
        if writing < 2 {
            return;
        }
        for (i, a) in work
            .touches
            .iter()
            .enumerate()
            .filter(|(_, touch)| touch.access.writes())
        {
            for b in work.touches[i + 1..]
                .iter()
                .filter(|touch| touch.access.writes() && touch.span != a.span)
            {
                let range = a.range.start.max(b.range.start)..a.range.end.min(b.range.end);
                if range.start < range.end {
                    let used = MemoryUse {
                        operation: pending.operation,
                        writes: true,
                        space: MemorySpace::Device,
                        range,
                        allocation: pending.memory[a.span]
                            .and_then(|id| self.allocations.get(id))
                            .map(|a| a.info()),
                    };
                    let params = (work.spans[a.span].param, work.spans[b.span].param);
                    self.reports.add(Finding::AliasedWrites { used, params });
                    return;
                }
            }
        }
    }
}

fn within(range: &Range<u64>, base: u64) -> Range<usize> {
    (range.start - base) as usize..(range.end - base) as usize
}

fn as_memory(bytes: &mut [u8], writes: bool) -> ModelMemory<'_> {
    if writes {
        ModelMemory::Write(bytes)
    } else {
        ModelMemory::Read(bytes)
    }
}

/// Whether an operand gets a copy: it has gaps, or it shares bytes with another of which one is written.
fn needs_copy(work: &Work, ids: &[Option<AllocationId>], index: usize) -> bool {
    let span = &work.spans[index];
    if !span.whole {
        return true;
    }
    work.spans.iter().enumerate().any(|(other_index, other)| {
        other_index != index
            && ids[other_index] == ids[index]
            && (other.writes || span.writes)
            && other.range.start < span.range.end
            && span.range.start < other.range.end
    })
}

/// Cuts operands, sorted by start, from the bytes of one allocation. Those that overlap are all read.
fn hand_out<'m>(
    spans: &[&Span],
    base: u64,
    bytes: &'m mut [u8],
    memory: &mut [Option<ModelMemory<'m>>],
) {
    let (mut rest, mut at) = (bytes, base);
    let mut spans = spans;
    while let Some((first, more)) = spans.split_first() {
        let mut end = first.range.end;
        let together = more.iter().take_while(|span| {
            let overlaps = span.range.start < end;
            if overlaps {
                end = end.max(span.range.end);
            }
            overlaps
        });
        let count = together.count();
        let (_, from_first) = rest.split_at_mut((first.range.start - at) as usize);
        let (group, after) = from_first.split_at_mut((end - first.range.start) as usize);
        if count == 0 {
            memory[first.param] = Some(as_memory(group, first.writes));
        } else {
            let group: &'m [u8] = group;
            for span in &spans[..=count] {
                memory[span.param] = Some(ModelMemory::Read(
                    &group[within(&span.range, first.range.start)],
                ));
            }
        }
        (rest, at) = (after, end);
        spans = &more[count..];
    }
}

/// Writes what a launch wrote to copies back to the memory itself.
fn carry_back(
    work: &Work,
    sources: &[Source],
    places: &[Option<usize>],
    copies: &[Backing],
    taken: &mut [(AllocationId, u64, Backing)],
) {
    for touch in work.touches.iter().filter(|touch| touch.access.writes()) {
        let (Source::Copied(copy), Some(place)) = (&sources[touch.span], places[touch.span]) else {
            continue;
        };
        let (_, base, backing) = &mut taken[place];
        let start = work.spans[touch.span].range.start;
        backing.as_mut_slice()[within(&touch.range, *base)]
            .copy_from_slice(&copies[*copy].as_slice()[within(&touch.range, start)]);
    }
}
