//! Partitions: parts are independent, together they are one value, and nothing is lost in any order of drops.

use crate::kit::{Rig, cases};
use cuda_buffer::{
    BufferError, CaptureStep, CudaBuffer, DeviceData, PartitionedCudaBuffer, Refused, copy_slice,
};
use cuda_driver::Call;
use proptest::prelude::*;

type Parts = PartitionedCudaBuffer<u8>;

fn cut(rig: &Rig, len: usize, ranges: &[std::ops::Range<usize>]) -> Result<Parts, BufferError> {
    let whole = CudaBuffer::new(&rig.device(), len).unwrap();
    PartitionedCudaBuffer::new(whole, ranges).map_err(|refused| {
        assert_eq!(refused.value.len(), len, "the buffer comes back");
        refused.error
    })
}

/// Case 17 (chelsea0x3b/cudarc#495): overlapping parts do not exist.
#[test]
#[expect(
    clippy::reversed_empty_ranges,
    clippy::single_range_in_vec_init,
    reason = "such ranges are what is meant"
)]
fn case_17_parts_are_in_order_disjoint_and_in_bounds() {
    let rig = Rig::seeded(7, 1);
    assert!(cut(&rig, 10, &[0..5, 5..10]).is_ok());
    assert!(cut(&rig, 10, &[0..0, 0..5, 5..5, 7..9, 9..9]).is_ok());
    assert!(cut(&rig, 10, &[]).is_ok());
    for (ranges, expected) in [
        (
            &[0..5, 4..10][..],
            BufferError::Overlap {
                first: 0,
                second: 1,
            },
        ),
        (
            &[5..11],
            BufferError::OutOfBounds {
                start: 5,
                end: 11,
                len: 10,
            },
        ),
        (&[6..5], BufferError::BadRange { start: 6, end: 5 }),
        (
            &[5..10, 0..5],
            BufferError::Unordered {
                first: 0,
                second: 1,
            },
        ),
        (
            &[2..6, 4..4, 0..2],
            BufferError::Unordered {
                first: 0,
                second: 2,
            },
        ),
    ] {
        assert_eq!(cut(&rig, 10, ranges).unwrap_err(), expected);
    }
    rig.finish();
}

/// Case 17: disjoint parts are independent.
#[test]
fn case_17_parts_on_two_streams_add_no_wait_and_the_whole_waits_for_both() {
    let rig = Rig::seeded(7, 3);
    let [one, two, three] = rig.streams();
    let mut parts = cut(&rig, 8, &[0..4, 4..8]).unwrap();
    // Everything is after the allocation, once.
    for (part, stream) in parts.parts_mut().iter_mut().zip([&one, &two]) {
        part.fill(stream, 0).unwrap();
    }
    let before = rig.device().order_counts();
    for (i, (part, stream)) in parts.parts_mut().iter_mut().zip([&one, &two]).enumerate() {
        part.fill(stream, i as u8 + 1).unwrap();
    }
    assert_eq!((rig.device().order_counts() - before).waits_issued, 0);
    let mut copy = CudaBuffer::new_on(&three, 8).unwrap();
    let before = rig.device().order_counts();
    {
        let mut to = copy.write_synchronized_with(&three).unwrap();
        let from = parts.read_synchronized_with(&three).unwrap();
        copy_slice(&three, to.as_slice_mut(), from.as_slice()).unwrap();
    }
    assert_eq!((rig.device().order_counts() - before).waits_issued, 2);
    assert_eq!(copy.to_vec().unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
    drop((one, two, three, copy, parts));
    rig.finish();
}

#[test]
fn access_of_all_parts_records_one_event() {
    let rig = Rig::seeded(7, 1);
    let [stream] = rig.streams();
    let ranges: Vec<_> = (0..1000).map(|i| i..i + 1).collect();
    let mut parts = cut(&rig, 1000, &ranges).unwrap();
    let before = rig.device().call_counts();
    let mut all = parts.write_synchronized_with(&stream).unwrap();
    let _ = all.as_slice_mut();
    all.release().unwrap();
    let calls = rig.device().call_counts() - before;
    // The allocation is waited for once.
    assert_eq!(
        (calls.of(Call::EventRecord), calls.of(Call::StreamWaitEvent)),
        (1, 1)
    );
    drop((stream, parts));
    rig.finish();
}

#[test]
fn parts_that_leave_elements_out_are_not_accessed_together() {
    let rig = Rig::seeded(7, 1);
    let [stream] = rig.streams();
    let parts = cut(&rig, 8, &[0..4, 5..8]).unwrap();
    let error = parts.read_synchronized_with(&stream).unwrap_err();
    assert_eq!(error, BufferError::NotCovered { parts: 7, len: 8 });
    let padded = PartitionedCudaBuffer::<u16>::padded(&rig.device(), &[3, 0, 5], 64).unwrap();
    assert_eq!(padded.len(), 32 + 5);
    drop(padded.read_synchronized_with(&stream).unwrap());
    for align_bytes in [0, 3, 512] {
        let error =
            PartitionedCudaBuffer::<u16>::padded(&rig.device(), &[1], align_bytes).unwrap_err();
        assert!(matches!(error, BufferError::BadAlign { .. }), "{error}");
    }
    let error =
        PartitionedCudaBuffer::<u16>::padded(&rig.device(), &[1, usize::MAX], 64).unwrap_err();
    assert!(matches!(error, BufferError::SizeOverflow { .. }), "{error}");
    drop((stream, parts, padded));
    rig.finish();
}

#[test]
fn a_part_that_was_swapped_ends_access_of_all() {
    let rig = Rig::seeded(7, 1);
    let [stream] = rig.streams();
    let mut parts = cut(&rig, 8, &[0..4, 4..8]).unwrap();
    let mut other = CudaBuffer::new(&rig.device(), 4).unwrap();
    std::mem::swap(&mut parts.parts_mut()[1], &mut other);
    let replaced = BufferError::PartReplaced { part: 1 };
    assert_eq!(
        parts.write_synchronized_with(&stream).unwrap_err(),
        replaced
    );
    let (mut parts, error) = parts.into_whole().unwrap_err().into_parts();
    assert_eq!(error, replaced);
    std::mem::swap(&mut parts.parts_mut()[1], &mut other);
    assert_eq!(parts.into_whole().unwrap().len(), 8);
    drop((stream, other));
    rig.finish();
}

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "one part is what is meant")]
fn what_a_graph_or_a_forgotten_guard_holds_is_not_put_together() {
    let rig = Rig::seeded(7, 1);
    let [stream] = rig.streams();
    let mut parts = cut(&rig, 8, &[0..4, 4..8]).unwrap();
    parts.parts_mut()[0].fill(&stream, 1).unwrap();
    let graph = stream
        .capture(|_| parts.parts_mut()[0].fill(&stream, 2))
        .unwrap();
    let (parts, error) = parts.into_whole().unwrap_err().into_parts();
    assert_eq!(error, BufferError::Held { holders: 1 });
    drop(graph);
    let whole = parts.into_whole().unwrap();
    let parts = PartitionedCudaBuffer::new(whole, &[0..8])
        .map_err(|refused| refused.error)
        .unwrap();
    std::mem::forget(parts.parts()[0].read_synchronized_with(&stream).unwrap());
    let (parts, error) = parts.into_whole().unwrap_err().into_parts();
    assert!(matches!(error, BufferError::Access(_)), "{error}");
    drop(parts);
    // What is read under the forgotten guard may go on for ever: the allocation is lost and counted.
    assert_eq!(rig.device().alive().leaked_bytes, 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    /// Parts used on any streams, dropped in any order or put together again, give what the host would have.
    #[test]
    fn parts_in_any_order_leave_nothing(
        cuts in prop::collection::vec(0_usize..=16, 0..5),
        work in prop::collection::vec((any::<usize>(), 0_usize..3, any::<u8>()), 0..12),
        drops in prop::collection::vec(any::<usize>(), 6),
        together in any::<bool>(),
    ) {
        let rig = Rig::seeded(7, 3);
        let streams: [_; 3] = rig.streams();
        let mut cuts = cuts;
        cuts.extend([0, 16]);
        cuts.sort_unstable();
        let ranges: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let mut parts = cut(&rig, 16, &ranges).unwrap();
        let mut model = [0_u8; 16];
        {
            let mut all = parts.write_synchronized_with(&streams[0]).unwrap();
            let zeros = CudaBuffer::from_slice(&rig.device(), &model).unwrap();
            let zeros = zeros.read_synchronized_with(&streams[0]).unwrap();
            copy_slice(&streams[0], all.as_slice_mut(), zeros.as_slice()).unwrap();
        }
        for (at, stream, value) in work {
            let at = at % ranges.len();
            parts.parts_mut()[at].fill(&streams[stream], value).unwrap();
            model[ranges[at].clone()].fill(value);
        }
        if together {
            let whole = parts.into_whole().map_err(|refused| refused.error).unwrap();
            prop_assert_eq!(whole.to_vec().unwrap(), model);
        } else {
            let mut parts = parts.into_parts();
            for at in drops {
                if !parts.is_empty() {
                    drop(parts.swap_remove(at % parts.len()));
                }
            }
            let alive = rig.device().alive().allocations;
            let left = parts.iter().any(|part| !part.is_empty());
            prop_assert_eq!(alive, usize::from(left));
        }
        drop(streams);
        rig.finish();
    }
}

/// What gives a value back is an error like any other, and goes through `?`.
#[test]
fn a_refusal_is_told_as_its_error_wherever_it_goes() {
    type Boxed = Box<dyn std::error::Error + Send + Sync>;
    let rig = Rig::seeded(0, 1);
    let whole = || CudaBuffer::<f32>::new(&rig.device(), 8).unwrap();
    let cut = || PartitionedCudaBuffer::new(whole(), &[0..4, 3..8]);
    let alone = || -> Result<(), BufferError> { cut().map(drop).map_err(Into::into) };
    let boxed = || -> Result<PartitionedCudaBuffer<f32>, Boxed> { Ok(cut()?) };
    let error = BufferError::Overlap {
        first: 0,
        second: 1,
    };
    let (boxed, refused) = (boxed().unwrap_err(), cut().unwrap_err());
    assert_eq!(alone(), Err(error.clone()));
    for text in [boxed.to_string(), refused.to_string()] {
        assert_eq!(text, error.to_string());
    }
    assert!(boxed.is::<Refused<CudaBuffer<f32>>>());
    let (back, told) = refused.into_parts();
    assert_eq!((back.len(), told), (8, error));
    drop(back);
    drop(boxed);
    rig.finish();
}
