use ndarray::ArrayView1;
use space_array::CheckedAllocArray;

fn main() {
    let x = CheckedAllocArray::filled([3], 1.0);
    let escaped: ArrayView1<'_, f64> = {
        let pinned = x.view();
        pinned.view()
    };
    println!("{}", escaped.sum());
}
