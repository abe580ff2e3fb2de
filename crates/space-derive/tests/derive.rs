//! Derived descriptions, against the same entries carved one by one.

use proptest::prelude::*;
use space_arena::Arena;
use space_core::{
    AllocError, AmbientBlock, Block, Describe, Dims, Element, Entry, Frame, Heap, Host, HostBlock,
    HostCarve, In, Mode, Partial, Scope, Space, Spec, Undef, ambient_alloc, with_scratch,
};

#[derive(Describe)]
#[expect(clippy::type_complexity, reason = "one entry of each kind")]
struct Layer<M: Mode> {
    y: M::Of<f32, [usize; 2]>,
    mask: Option<M::Of<u8, [usize; 1]>>,
    pair: [M::Of<u16, [usize; 1]>; 2],
    inner: Inner<M>,
    tuple: (M::Of<f64, [usize; 1]>, M::Of<u8, Vec<usize>>),
    label: &'static str,
}

#[derive(Describe)]
struct Inner<M: Mode> {
    h: M::Of<f64, [usize; 1]>,
}

/// A struct over more than the mode.
#[derive(Describe)]
struct Generic<M, T: Element, D: Dims = [usize; 1], const N: usize = 2>
where
    M: Mode,
{
    each: [M::Of<T, D>; N],
}

/// More fields than one tuple describes.
#[derive(Describe)]
struct Many<M: Mode> {
    a: M::Of<u8, [usize; 1]>,
    b: M::Of<u8, [usize; 1]>,
    c: M::Of<u8, [usize; 1]>,
    d: M::Of<u8, [usize; 1]>,
    e: M::Of<u8, [usize; 1]>,
    f: M::Of<u8, [usize; 1]>,
    g: M::Of<u8, [usize; 1]>,
    h: M::Of<u8, [usize; 1]>,
    i: M::Of<u8, [usize; 1]>,
    j: M::Of<u8, [usize; 1]>,
    k: M::Of<u8, [usize; 1]>,
    l: M::Of<u8, [usize; 1]>,
    m: M::Of<u8, [usize; 1]>,
    n: M::Of<u16, [usize; 1]>,
}

#[derive(Describe)]
struct Empty<M: Mode> {
    nothing: std::marker::PhantomData<fn() -> u8>,
    none: Option<M::Of<u8, [usize; 1]>>,
}

fn layer(n: [usize; 7]) -> Layer<Spec> {
    Layer {
        y: Undef::new([n[0], 2]),
        mask: (!n[1].is_multiple_of(3)).then(|| Undef::new([n[1]])),
        pair: [Undef::new([n[2]]), Undef::new([n[3]])],
        inner: Inner {
            h: Undef::new([n[4]]),
        },
        tuple: (Undef::new([n[5]]), Undef::new(vec![n[6], 2])),
        label: "layer",
    }
}

/// The addresses of a layer, entry by entry.
fn addresses<B: Block<Family = Host>>(
    layer: &Layer<In<B>>,
    address: impl Fn(&dyn std::fmt::Debug) -> String,
) -> Vec<String>
where
    B::Array<f32, [usize; 2]>: std::fmt::Debug,
    B::Array<u8, [usize; 1]>: std::fmt::Debug,
    B::Array<u16, [usize; 1]>: std::fmt::Debug,
    B::Array<f64, [usize; 1]>: std::fmt::Debug,
    B::Array<u8, Vec<usize>>: std::fmt::Debug,
{
    let mut all = vec![address(&layer.y)];
    all.extend(layer.mask.iter().map(|it| address(it)));
    all.extend(layer.pair.iter().map(|it| address(it)));
    all.extend([
        address(&layer.inner.h),
        address(&layer.tuple.0),
        address(&layer.tuple.1),
    ]);
    all
}

fn one_by_one(frame: &Frame<'_, Host>, n: [usize; 7]) -> Result<Vec<String>, AllocError> {
    let spec = layer(n);
    let mut all = vec![format!("{:?}", frame.alloc(spec.y)?)];
    if let Some(mask) = spec.mask {
        all.push(format!("{:?}", frame.alloc(mask)?));
    }
    for one in spec.pair {
        all.push(format!("{:?}", frame.alloc(one)?));
    }
    all.push(format!("{:?}", frame.alloc(spec.inner.h)?));
    all.push(format!("{:?}", frame.alloc(spec.tuple.0)?));
    all.push(format!("{:?}", frame.alloc(spec.tuple.1)?));
    Ok(all)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_struct_is_carved_like_its_entries_one_by_one(n in prop::array::uniform7(0..200_usize)) {
        let mut arena = Arena::builder().alignment(16).capacity(4096).unwrap();
        let (single, offset) = {
            let frame = arena.frame();
            (one_by_one(&frame, n), frame.offset())
        };
        arena.reset().unwrap();
        let frame = arena.frame();
        let whole = frame.alloc(layer(n));
        prop_assert_eq!(whole.is_ok(), single.is_ok());
        match whole {
            Ok(layer) => {
                let found = addresses::<HostCarve<'_>>(&layer, |it| format!("{it:?}"));
                prop_assert_eq!(found, single.unwrap());
                prop_assert_eq!(frame.offset(), offset);
                prop_assert_eq!(layer.label, "layer");
            }
            // All or nothing.
            Err(_) => prop_assert_eq!(frame.offset(), 0),
        }
    }
}

/// An ambient array of each entry, in a frame of an arena and in a shared space.
#[test]
fn a_struct_is_materialised_ambiently() -> Result<(), AllocError> {
    let program = || {
        let made: Layer<In<AmbientBlock>> = ambient_alloc(layer([2, 3, 4, 5, 6, 7, 8]))?;
        let y = made.y;
        let again = Inner::<Partial<AmbientBlock>> {
            h: Entry::Given(made.inner.h),
        };
        let again: Inner<In<AmbientBlock>> = ambient_alloc(again)?;
        let [first, second] = made.pair;
        Ok::<_, AllocError>(y.len() + again.h.len() + first.len() + second.len())
    };
    let on_heap = Scope::new(Heap).enter(program)?;
    let mut arena = Arena::with_capacity(1 << 14)?;
    assert_eq!(with_scratch(&mut arena.frame(), program)?, on_heap);
    assert_eq!((arena.offset(), arena.pinned_bytes()), (0, 0));
    assert!(matches!(program(), Err(AllocError::Unbound)));
    Ok(())
}

#[test]
fn what_is_given_passes_through() -> Result<(), AllocError> {
    let made = Heap.alloc(layer([1, 2, 3, 4, 5, 6, 7]))?;
    let address = made.inner.h.as_ptr();
    let partly: Layer<Partial<HostBlock>> = Layer {
        inner: Inner {
            h: Entry::Given(made.inner.h),
        },
        ..layer([1, 2, 3, 4, 5, 6, 7]).into()
    };
    let again: Layer<In<HostBlock>> = Heap.alloc(partly)?;
    assert_eq!(again.inner.h.as_ptr(), address);
    assert_ne!(again.y.as_ptr(), made.y.as_ptr());
    Ok(())
}

#[test]
fn parameters_beyond_the_mode_are_kept() -> Result<(), AllocError> {
    let made: Generic<In<HostBlock>, u32> = Heap.alloc(Generic::<Spec, u32> {
        each: [Undef::new([3]), Undef::new([4])],
    })?;
    assert_eq!(made.each.map(|it| it.len()), [3, 4]);
    Ok(())
}

#[test]
fn any_number_of_fields_is_described() -> Result<(), AllocError> {
    let one = || Undef::new([1]);
    let spec = Many::<Spec> {
        a: one(),
        b: one(),
        c: one(),
        d: one(),
        e: one(),
        f: one(),
        g: one(),
        h: one(),
        i: one(),
        j: one(),
        k: one(),
        l: one(),
        m: one(),
        n: Undef::new([9]),
    };
    let mut arena = Arena::builder().alignment(16).capacity(256)?;
    let frame = arena.frame();
    let made = frame.alloc(spec)?;
    assert_eq!((made.a.len(), made.m.len(), made.n.len()), (1, 1, 9));
    assert_eq!(frame.offset(), 13 * 16 + 32);

    let none = Empty::<Spec> {
        nothing: std::marker::PhantomData,
        none: None,
    };
    assert!(frame.alloc(none)?.none.is_none());
    assert_eq!(frame.offset(), 13 * 16 + 32);
    Ok(())
}

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
