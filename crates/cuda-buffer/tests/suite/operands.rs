//! What a library's call may touch of an operand.

use crate::kit::Rig;
use cuda_buffer::{BufferError, BufferResult, CudaBuffer, DeviceData, LaunchArg, Operand};
use cuda_driver::{Access, LaunchError, Region};
use cuda_runtime::Stream;

/// Rows of bytes that are read, from the operand's address on.
fn rows(width_bytes: u64, rows: u64, pitch_bytes: u64) -> Region {
    Region {
        param: 7,
        access: Access::Read,
        offset_bytes: 0,
        width_bytes,
        pitch_bytes,
        rows,
    }
}

fn check(operand: &Operand<'_>, stream: &Stream, region: &Region) -> BufferResult<()> {
    operand.check_use("a call", stream, 4, region)
}

/// Numbers whose sums and products don't fit 64 bits reach past everything, and wrap to nothing that is there.
#[test]
fn no_region_wraps_into_what_is_guarded() {
    let rig = Rig::seeded(0, 1);
    let [stream] = rig.streams();
    let buffer = CudaBuffer::<u32>::new_on(&stream, 8).unwrap();
    let access = buffer.read_synchronized_with(&stream).unwrap();
    let operand = (&access).operand();
    for inside in [
        rows(32, 1, 0),
        rows(32, 1, u64::MAX),
        rows(8, 2, 24),
        rows(8, 4, 8),
        rows(0, 0, u64::MAX),
        Region {
            offset_bytes: 28,
            ..rows(4, 1, 4)
        },
    ] {
        check(&operand, &stream, &inside).unwrap();
    }
    let offset = |offset_bytes| Region {
        offset_bytes,
        ..rows(8, 2, 8)
    };
    for outside in [
        rows(33, 1, 0),
        rows(8, 2, 25),
        rows(8, 5, 8),
        // Products of 2^64 and a few, and sums of as much.
        rows(8, (1 << 32) + 1, 1 << 32),
        rows(8, u64::MAX, u64::MAX),
        rows(16, 2, u64::MAX - 7),
        rows(u64::MAX, 2, 8),
        Region {
            offset_bytes: i64::MAX,
            ..rows(1 << 63, 2, 9)
        },
        offset(-8),
        offset(i64::MIN),
        offset(17),
        offset(i64::MAX),
    ] {
        let refused = check(&operand, &stream, &outside).unwrap_err();
        let BufferError::OperandBounds {
            kernel,
            argument,
            first,
            bytes,
            ..
        } = refused
        else {
            panic!("{outside:?}: {refused}")
        };
        let told = (kernel, argument, first, bytes);
        assert_eq!(told, ("a call", 7, outside.offset_bytes, 32));
    }
    access.release().unwrap();
    drop((buffer, stream));
    rig.finish();
}

#[test]
fn stream_type_and_kind_of_access_are_looked_at() {
    let rig = Rig::seeded(1, 2);
    let [stream, other] = rig.streams();
    let mut buffer = CudaBuffer::<u32>::new_on(&stream, 8).unwrap();
    let written = Region {
        access: Access::Write,
        ..rows(32, 1, 32)
    };
    let access = buffer.read_synchronized_with(&stream).unwrap();
    let operand = (&access).operand();
    let refused = check(&operand, &stream, &written).unwrap_err();
    assert!(
        matches!(
            refused,
            BufferError::ReadOnlyOperand {
                kernel: "a call",
                argument: 7
            }
        ),
        "{refused}"
    );
    let refused = check(&operand, &other, &rows(4, 1, 4)).unwrap_err();
    assert!(
        matches!(refused, BufferError::WrongStream { guard, stream: on } if (guard, on) == (stream.id(), other.id())),
        "{refused}"
    );
    let refused = operand.check_use("a call", &stream, 2, &rows(4, 1, 4));
    let refused = refused.unwrap_err();
    assert!(
        matches!(
            refused,
            BufferError::OperandType {
                argument: 7,
                expected: 2,
                given: 4,
                ..
            }
        ),
        "{refused}"
    );
    let refused = check(&1_u32.operand(), &stream, &rows(4, 1, 4)).unwrap_err();
    assert!(
        matches!(
            refused,
            BufferError::Launch(LaunchError::ArgumentType { index: 7, .. })
        ),
        "{refused}"
    );
    access.release().unwrap();
    let mut access = buffer.write_synchronized_with(&stream).unwrap();
    check(&(&mut access).operand(), &stream, &written).unwrap();
    access.release().unwrap();
    drop((buffer, stream, other));
    rig.finish();
}
