//! Signatures of C functions, to compare declarations of different crates: number of arguments, the type, size and
//! alignment of each, and of the result.
//!
//! Types are compared by the names that the header gives them, which all crates keep; paths, and our own pointer types
//! `Out` and `In`, are taken away first.

use std::any::type_name;

/// Arguments, and the result last: the type's plain name, size, alignment.
pub type Signature = Vec<(String, usize, usize)>;

/// A function whose signature can be told.
pub trait Describe {
    /// The signature.
    fn describe(self) -> Signature;
}

/// The place of a type that is to be inferred.
#[macro_export]
macro_rules! hole {
    ($type:ty) => {
        _
    };
}

fn part<T>() -> (String, usize, usize) {
    (plain(type_name::<T>()), size_of::<T>(), align_of::<T>())
}

/// Without paths; `Out<T>` and `In<T>` are the pointers that they hold.
fn plain(name: &str) -> String {
    let mut plain = String::new();
    for word in name.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
        plain.push_str(word.rsplit("::").next().unwrap_or(word));
    }
    plain
        .replace("Out<", "*mut <")
        .replace("In<", "*const <")
        .replace(['<', '>'], "")
}

macro_rules! describe {
    () => {
        describe!(@);
    };
    ($first:ident $($rest:ident)*) => {
        describe!(@ $first $($rest)*);
        describe!($($rest)*);
    };
    (@ $($argument:ident)*) => {
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

// The longest one of cuBLAS has 23 arguments.
describe!(A B C D E F G H I J K L M N O P Q S T U V W X);

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(transparent)]
    struct Out<T>(*mut T);

    #[test]
    fn other_signatures_are_told_apart() {
        unsafe extern "C" fn ours(_: Out<i32>, _: u32) -> u32 {
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
}
