//! Views and requests: elements are named, checked and acquired together.

use crate::kit::{Kit, N, Rig, elements, step_of};
use cuda_buffer::{AccessCompletion, BufferError, CudaBuffer, DeviceData, Launch, acquire_all};
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
