use ndarray::ArrayView1;
use space_array::CheckedAllocArray;

fn main() {
    let x = CheckedAllocArray::filled([3], 1.0);
    let pinned = x.view();
    let copied: ArrayView1<'_, f64> = *pinned;
    drop(pinned);
    println!("{}", copied.sum());
}
