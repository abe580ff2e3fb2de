//! Views and requests: elements are named, checked and acquired together.

use crate::kit::{Kit, N, Rig, elements, step_of};
use cuda_buffer::{
    AccessCompletion, BufferError, BufferResult, CudaBuffer, DeviceData, Launch, PinnedBuffer,
    Rows, acquire_all,
};
use std::collections::HashSet;

#[test]
fn a_view_names_elements_of_a_value_and_is_lowered_to_an_access() {
    let rig = Rig::seeded(1, 2);
    let kit = Kit::new(rig.runtime.default_device());
    let [stream] = rig.streams();
    let mut x = CudaBuffer::<u32>::from_slice(&rig.device(), &[5; N]).unwrap();
    let id = x.domain_id();
    let view = x.view().slice(4..20).unwrap().slice(2..8).unwrap();
    assert_eq!((view.domain_id(), view.offset(), view.len()), (id, 6, 6));
    let access = view.read_synchronized_with(&stream).unwrap();
    assert_eq!(access.len(), 6);
    drop(access);
    let refused = view.slice(3..7).unwrap_err();
    let wanted = BufferError::OutOfBounds {
        start: 3,
        end: 7,
        len: 6,
    };
    assert_eq!(refused, wanted);

    let (mut first, mut rest) = x.view_mut().split_at(N - 4).unwrap();
    assert_eq!(
        (rest.offset(), rest.len(), rest.as_view().offset()),
        (N - 4, 4, N - 4)
    );
    {
        // Parts of one value: the ledger takes an access of one for all of it.
        let mut access = rest.write_synchronized_with(&stream).unwrap();
        let refused = first.write_synchronized_with(&stream).map(drop);
        assert!(matches!(refused, Err(BufferError::Access(_))));
        let args = (4_u32, 1_u32, &mut access);
        kit.step.launch(&stream, elements(4), args).unwrap();
    }
    kit.step(&stream, &mut first, 2).unwrap();
    let mut expected = [step_of(5, 2); N];
    expected[N - 4..].fill(step_of(5, 1));
    assert_eq!(x.to_vec().unwrap(), expected);
    drop((kit, stream, x));
    rig.finish();
}

/// What only reads is a source of copies as a whole value is.
#[test]
fn views_are_copied_from() {
    let rig = Rig::seeded(3, 2);
    let [s, t] = rig.streams();
    let values: Vec<u32> = (0..N as u32).collect();
    let x = CudaBuffer::<u32>::from_slice(&rig.device(), &values).unwrap();
    let mut y = CudaBuffer::<u32>::new_on(&s, N).unwrap();
    y.fill(&s, 9).unwrap();
    let view = x.view().slice(N - 4..).unwrap();
    y.view_mut()
        .slice(..4)
        .unwrap()
        .copy_from(view, &t)
        .unwrap();
    y.view_mut()
        .slice(4..=7)
        .unwrap()
        .copy_from(view, &s)
        .unwrap();
    let rows = Rows {
        width: 2,
        rows: 2,
        dst_pitch: 2,
        src_pitch: 4,
    };
    let mut edge = y.view_mut().slice(8..12).unwrap();
    edge.copy_rows_from(x.view().slice(1..7).unwrap(), rows, &t)
        .unwrap();
    let n = N as u32;
    let last = [n - 4, n - 3, n - 2, n - 1];
    assert_eq!(y.read().slice(..4).unwrap().to_vec().unwrap(), last);
    assert_eq!(y.read().slice(4..8).unwrap().to_vec().unwrap(), last);
    assert_eq!(
        y.read().slice(8..13).unwrap().to_vec().unwrap(),
        [1, 2, 5, 6, 9]
    );
    drop((x, y, s, t));
    rig.finish();
}

/// Ranges of every form, up to the largest numbers, for every kind of slice.
#[test]
fn ranges_are_checked_with_their_numbers() {
    use std::ops::Bound::{self, Excluded, Included, Unbounded};
    const MAX: usize = usize::MAX;
    let rig = Rig::seeded(4, 1);
    let [stream] = rig.streams();
    let mut x = CudaBuffer::<u32>::new_on(&stream, N).unwrap();
    let mut pinned = PinnedBuffer::<u32>::new(&rig.device(), N).unwrap();
    let past = |start, end| Err::<usize, _>(BufferError::OutOfBounds { start, end, len: N });
    let backwards = |start, end| Err(BufferError::BadRange { start, end });
    type Bounds = (Bound<usize>, Bound<usize>);
    let cases: [(Bounds, BufferResult<usize>); 14] = [
        ((Unbounded, Unbounded), Ok(N)),
        ((Included(N), Unbounded), Ok(0)),
        ((Included(1), Included(N - 1)), Ok(N - 1)),
        ((Excluded(0), Excluded(N)), Ok(N - 1)),
        ((Included(3), Excluded(3)), Ok(0)),
        ((Included(0), Excluded(N + 1)), past(0, N + 1)),
        ((Included(N + 1), Unbounded), past(N + 1, N + 1)),
        ((Included(MAX), Unbounded), past(MAX, MAX)),
        ((Excluded(MAX), Unbounded), past(MAX, MAX)),
        ((Unbounded, Included(MAX)), past(0, MAX)),
        ((Included(1), Excluded(MAX)), past(1, MAX)),
        ((Included(MAX), Included(MAX)), past(MAX, MAX)),
        ((Included(4), Excluded(3)), backwards(4, 3)),
        ((Included(MAX), Excluded(0)), backwards(MAX, 0)),
    ];
    for (range, wanted) in cases {
        assert_eq!(x.view().slice(range).map(|part| part.len()), wanted);
        assert_eq!(x.view_mut().slice(range).map(|part| part.len()), wanted);
        assert_eq!(x.read().slice(range).map(|part| part.len()), wanted);
        assert_eq!(pinned.slice(range).map(drop), wanted.clone().map(drop));
        assert_eq!(pinned.slice_mut(range).map(drop), wanted.clone().map(drop));
        let mut access = x.write_synchronized_with(&stream).unwrap();
        assert_eq!(access.slice(range).map(|part| part.len()), wanted);
        assert_eq!(access.slice_mut(range).map(|part| part.len()), wanted);
    }
    for at in [N + 1, MAX] {
        assert_eq!(x.view_mut().split_at(at).map(drop), past(0, at).map(drop));
    }
    drop((x, pinned, stream));
    rig.finish();
}

/// Tuples, arrays, vectors and slices, of reads and writes, nested: all or none, with one event.
#[test]
fn any_shape_of_requests_is_acquired_at_once() {
    let rig = Rig::seeded(2, 2);
    let [s, t] = rig.streams();
    let buffer = |_| CudaBuffer::<u32>::new_on(&s, N).unwrap();
    let mut outs: Vec<_> = (0..20).map(buffer).collect();
    let ins: Vec<_> = (0..20).map(buffer).collect();
    let [mut a, b, c] = [0, 1, 2].map(buffer);
    a.fill(&t, 1).unwrap();
    let work = |_: &dyn cuda_driver::Driver, _| Ok(());
    let records = rig.device().order_counts().completions_recorded;
    let requests = (a.write(), [b.read(), c.read()], (&mut outs[..], &ins[..]));
    let (a_write, pair, (writes, reads)) = acquire_all(&t, requests).unwrap();
    assert_eq!((pair.len(), writes.len(), reads.len()), (2, 20, 20));
    // SAFETY: nothing is queued.
    unsafe { t.enqueue(work) }.unwrap();
    let all = (a_write, (pair, writes, reads));
    AccessCompletion::new(&t).release(all).unwrap();
    let done = t.record().unwrap();
    done.wait().unwrap();
    let records = rig.device().order_counts().completions_recorded - records;
    assert!(records <= 2, "one for the fill, one for all: {records}");

    // One that is held keeps all of them out, and nothing is left held.
    let held = ins[7].read_synchronized_with(&s).unwrap();
    let mut ins = ins.iter().collect::<Vec<_>>();
    ins.swap(0, 7);
    let refused = acquire_all(&t, (&mut outs[..], ins[0].read(), a.write())).map(drop);
    assert!(refused.is_ok(), "readers share");
    drop(held);
    let writing = outs[3].write_synchronized_with(&s).unwrap();
    std::mem::forget(writing);
    let refused = acquire_all(&t, (a.write(), &outs[..])).map(drop);
    assert!(matches!(refused, Err(BufferError::Access(_))));
    a.write_synchronized_with(&t).unwrap().release().unwrap();
    drop((s, t, outs, ins, a, b, c));
    rig.sim.assert_no_reports();
}

/// Addresses are used again at once; identities of values never are.
#[test]
fn identities_are_not_used_again() {
    let rig = Rig::seeded(3, 1);
    let [s] = rig.streams();
    let (mut addresses, mut values) = (HashSet::new(), HashSet::new());
    for _ in 0..10 {
        let mut x = CudaBuffer::<u32>::new_on(&s, N).unwrap();
        x.fill(&s, 1).unwrap();
        addresses.insert(crate::cases::address(&x, &s));
        assert!(values.insert(x.domain_id()));
    }
    assert!(addresses.len() < values.len(), "{addresses:?}");
    drop(s);
    rig.finish();
}
