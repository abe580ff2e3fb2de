use ndarray::ArrayViewMut1;
use space_array::CheckedAllocArray;

fn main() {
    let mut x = CheckedAllocArray::filled([3], 1.0);
    let escaped: ArrayViewMut1<'_, f64> = {
        let mut pinned = x.view_mut();
        pinned.view_mut()
    };
    println!("{}", escaped.sum());
}
