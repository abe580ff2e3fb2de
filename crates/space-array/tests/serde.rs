//! Arrays as data.

use ndarray::{Array2, Ix2, array};
use space_array::{AllocArray, AllocBuffer, BumperAllocator, CheckedAllocArray, with_allocator};

#[test]
fn the_form_is_that_of_ndarray() {
    let x = array![[1, 2, 3], [4, 5, 6]];
    let text = serde_json::to_string(&AllocArray::from(x.clone())).unwrap();
    assert_eq!(text, serde_json::to_string(&x).unwrap());
    assert_eq!(serde_json::from_str::<Array2<i32>>(&text).unwrap(), x);

    let bumper = BumperAllocator::new(AllocBuffer::new(128).unwrap());
    with_allocator(&bumper, || {
        let y: AllocArray<i32, Ix2> = serde_json::from_str(&text).unwrap();
        assert_eq!(y, x);
        assert_eq!(bumper.statistics().arrays, 1);
        let z: CheckedAllocArray<i32, Ix2> = serde_json::from_str(&text).unwrap();
        assert_eq!(z, x);
        let full = serde_json::from_str::<AllocArray<i32, Ix2>>(&text).unwrap_err();
        assert!(full.to_string().contains("do not fit"), "{full}");
        drop(y);
        bumper.reset().unwrap();
        let gone = serde_json::to_string(&z).unwrap_err();
        assert!(gone.to_string().contains("reset since"), "{gone}");
    });
}
