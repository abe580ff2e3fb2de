//! Compares every exported function with the declarations of `cust_raw` and `cudarc`: number of arguments, the type, size
//! and alignment of each, and of the result.
//!
//! Types are compared by the names that the driver's header gives them, which both crates keep; paths and our own
//! pointer types are taken away first.

use std::any::type_name;

/// Arguments, and the result last: the type's plain name, size, alignment.
pub(crate) type Signature = Vec<(String, usize, usize)>;

pub(crate) trait Describe {
    fn describe(self) -> Signature;
}

macro_rules! hole {
    ($type:ty) => {
        _
    };
}
pub(crate) use hole;

fn part<T>() -> (String, usize, usize) {
    (plain(type_name::<T>()), size_of::<T>(), align_of::<T>())
}

/// Without paths; `Out<T>` and `In<T>` are the pointers that they hold.
fn plain(name: &str) -> String {
    let name = name
        .replace("cuda::types::Out<", "*mut <")
        .replace("cuda::types::In<", "*const <");
    let mut plain = String::new();
    for word in name.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
        plain.push_str(word.rsplit("::").next().unwrap_or(word));
    }
    plain.replace(['<', '>'], "")
}

macro_rules! describe {
    ($($argument:ident)*) => {
        describe!(@ $($argument)*, unsafe extern "C" fn($($argument),*) -> Result);
        describe!(@ $($argument)*, unsafe fn($($argument),*) -> Result);
    };
    (@ $($argument:ident)*, $function:ty) => {
        impl<$($argument,)* Result> Describe for $function {
            fn describe(self) -> Signature {
                vec![$(part::<$argument>(),)* part::<Result>()]
            }
        }
    };
}

describe!();
describe!(A);
describe!(A B);
describe!(A B C);
describe!(A B C D);
describe!(A B C D E);
describe!(A B C D E F);
describe!(A B C D E F G);
describe!(A B C D E F G H);
describe!(A B C D E F G H I);
describe!(A B C D E F G H I J);
describe!(A B C D E F G H I J K);

#[test]
fn every_function_has_the_declared_signature() {
    let mut compared = 0;
    for export in crate::export::all() {
        assert_eq!((export.ours)(), (export.theirs)(), "{}", export.name);
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn other_signatures_are_told_apart() {
    unsafe extern "C" fn ours(_: crate::types::Out<i32>, _: u32) -> u32 {
        0
    }
    unsafe extern "C" fn theirs(_: *mut i32, _: i32) -> u32 {
        0
    }
    unsafe extern "C" fn shorter(_: *mut i32) -> u32 {
        0
    }
    let ours = (ours as unsafe extern "C" fn(_, _) -> _).describe();
    let theirs = (theirs as unsafe extern "C" fn(_, _) -> _).describe();
    assert_eq!(ours[0], theirs[0]);
    assert_ne!(ours[1], theirs[1]);
    assert_ne!(ours, (shorter as unsafe extern "C" fn(_) -> _).describe());
}
