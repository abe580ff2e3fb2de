//! Operators, and methods without `try_`, panic where they were called.

use std::{
    panic::{self, AssertUnwindSafe, Location, catch_unwind},
    sync::Mutex,
};

use ndarray::Axis;
use space_array::{AllocArray, AllocBuffer, BumperAllocator, CheckedAllocArray, with_allocator};

static PANICKED_AT: Mutex<Option<(String, u32)>> = Mutex::new(None);

/// That `body`, which is one line after this call, panics there.
#[track_caller]
fn panics_here<R>(body: impl FnOnce() -> R) {
    let here = Location::caller();
    assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
    let at = PANICKED_AT.lock().unwrap().take().unwrap();
    assert_eq!(at, (here.file().to_owned(), here.line()));
}

#[test]
fn panics_are_those_of_the_caller() {
    panic::set_hook(Box::new(|info| {
        let at = info.location().map(|at| (at.file().to_owned(), at.line()));
        *PANICKED_AT.lock().unwrap() = at;
    }));
    let (x, y) = (AllocArray::from([1, 2]), AllocArray::from([1, 2, 3]));
    panics_here(|| &x + &y);
    panics_here(|| x.clone() * &y);
    panics_here(|| x.clone() / y.view());
    panics_here(|| &x - y.clone());
    panics_here(|| y.view() - &x);
    panics_here(|| &y.to_array() % x.clone());
    panics_here(|| x.clone().add_assign_to(&y));
    panics_here(|| x.zip_map(&y, |a, _| a));
    panics_here(|| x.less(&y));
    panics_here(|| x.less(&x).choose(&y, &x));
    panics_here(|| x.clone().assign(&y));
    panics_here(|| x.sum_axis(Axis(1)));
    panics_here(|| x.select(Axis(0), &[2]));
    panics_here(|| x.dot(&y));
    panics_here(|| x.clone().reshape([3]));
    panics_here(|| x.clone().into_dimensionality::<ndarray::Ix2>());
    panics_here(|| x.similar().copied_from(y.view()));

    let (mut out, mut mask) = (y.clone(), y.equal(&y));
    panics_here(|| x.map_into(&mut out, |a| a));
    panics_here(|| x.zip_map_into(&x, &mut out, |a, _| a));
    panics_here(|| x.convert_into(&mut out));
    panics_here(|| x.less_into(&x, &mut mask));
    panics_here(|| x.less(&x).choose_into(&x, &x, &mut out));
    panics_here(|| x.select_into(Axis(0), &[0], &mut out));
    panics_here(|| AllocArray::concatenate_into(Axis(0), &[&x], &mut out));
    let mut square = AllocArray::filled([2, 2], 0);
    panics_here(|| AllocArray::stack_into(Axis(0), &[&x], &mut square));
    panics_here(|| square.sum_axis_into(Axis(0), &mut out));
    panics_here(|| square.dot_into(&x, &mut out));
    panics_here(|| AllocArray::concatenate(Axis(1), &[&x, &y]));
    panics_here(|| AllocArray::stack(Axis(0), &[&x, &y]));

    let bumper = BumperAllocator::new(AllocBuffer::new(64).unwrap());
    let mut gone = with_allocator(&bumper, || CheckedAllocArray::filled([4], 1));
    bumper.reset().unwrap();
    panics_here(|| gone.view());
    panics_here(|| gone.sum());
    panics_here(|| gone.view_mut());
    panics_here(|| gone.to_array());
    panics_here(|| gone.fold(0, |a, b| a + b));
    panics_here(|| -&gone);
    panics_here(|| &gone + 1);
    panics_here(|| 1 + &gone);
    panics_here(|| gone.map_in_place(|x| x));
    panics_here(|| gone.neg_in_place());
    panics_here(|| gone.fill(1));
    panics_here(|| gone += 1);
    panics_here(|| gone.map(|x| x));
    panics_here(|| gone.convert::<i64>());
    with_allocator(&bumper, || {
        panics_here(|| AllocArray::filled([1000], 1));
        panics_here(|| AllocArray::<f64, _>::uninit([1000]));
        panics_here(|| AllocArray::<f64, _>::zeros([1000]));
        let large = AllocArray::from(vec![0; 1000]);
        panics_here(|| large.similar());
        panics_here(|| large.similar_with::<u8, _>([1000]));
        panics_here(|| large.clone());
        panics_here(|| AllocArray::copy_of(large.view()));
        panics_here(|| 1 + &large);
        panics_here(|| &large + &large);
    });
    drop(panic::take_hook());
}

trait AddAssignTo {
    fn add_assign_to(self, other: &Self);
}

impl AddAssignTo for AllocArray<i32, ndarray::Ix1> {
    #[track_caller]
    fn add_assign_to(mut self, other: &Self) {
        self += other;
    }
}
