//! A shared value whose references are counted, several at a time where several come or go together.
//!
//! `std::sync::Arc` counts one by one, and has weak references, so that even a look whether a reference is the only one takes
//! a locked operation. Here there are none, and the count itself tells. A value that nobody shares any more goes where its
//! type says: most are used again.

use crate::primitive::{AtomicUsize, Fault, Ordering, faulty};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Values that are counted.
pub trait Last: Sized {
    /// The last reference has gone.
    fn last(value: Sole<Self>);
}

/// A counted reference.
///
/// ```
/// use cuda_runtime::{Counted, Last, Room, Sole};
///
/// struct Name(&'static str);
///
/// impl Last for Name {
///     fn last(name: Sole<Self>) {
///         drop(name); // or clear it, and use its room again
///     }
/// }
///
/// let one = Counted::first(Room::new().fill(Name("x")));
/// let mut other = one.clone();
/// assert_eq!((other.0, Counted::count(&other)), ("x", 2));
/// drop(one);
/// assert!(other.get_mut().is_some());
/// ```
pub struct Counted<T: Last>(Place<T>);

/// Several references to one value, or none, that are counted together.
pub(crate) struct Shares<T: Last> {
    place: Place<T>,
    count: usize,
}

/// A value that nobody else refers to, where references can be made. Dropping it drops the value.
pub struct Sole<T>(Place<T>);

/// Memory for a counted value, which can be used again when the value has ended.
pub struct Room<T>(Box<MaybeUninit<Inner<T>>>);

/// References at most that are made in one step. So many that are forgotten never make the number wrap unseen.
const MOST: usize = isize::MAX as usize >> 16;

/// Where a counted value is. It does not keep the value alive.
pub struct Place<T> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

struct Inner<T> {
    /// Those in [`Shares`] included; 1 for a [`Sole`].
    references: AtomicUsize,
    value: T,
}

// SAFETY: references on several threads reach the value shared, and the last one owns it, as with `std::sync::Arc`.
unsafe impl<T: Send + Sync> Send for Place<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Place<T> {}

impl<T> Clone for Place<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T> Place<T> {
    /// For those who have a reference.
    #[inline]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: the value is there as long as a reference is, and the caller has one.
        unsafe { self.inner.as_ref() }
    }

    #[inline]
    fn add(self, count: usize) {
        check(count);
        let before = self.inner().references.fetch_add(count, Ordering::Relaxed);
        if before > isize::MAX as usize {
            too_many();
        }
    }
}

/// As `std::sync::Arc` does: so many were forgotten that the number would wrap. It is a C function, which can't unwind, so that nobody
/// who counts has to be ready for that.
#[cold]
extern "C" fn too_many() -> ! {
    std::process::abort();
}

#[inline]
pub(crate) fn check(count: usize) {
    assert!(count <= MOST, "{count} handles at a time: at most {MOST}");
}

impl<T: Last> Place<T> {
    /// Gives up `count` references, which the caller has.
    #[inline]
    fn give_up(self, count: usize) {
        let references = &self.inner().references;
        // Who has all of them needs no locked operation: nobody else can make another one.
        if references.load(Ordering::Acquire) != count {
            if references.fetch_sub(count, Ordering::Release) != count {
                return;
            }
            // Pairs with the release of those that went before.
            references.load(Ordering::Acquire);
        }
        references.store(1, Ordering::Relaxed);
        T::last(Sole(self));
    }
}

impl<T: Last> Place<T> {
    /// One reference more to the value that is there.
    ///
    /// # Safety
    /// Somebody has a reference to that value, keeps it until this returns, and has not borrowed the value exclusively by it.
    #[inline]
    #[must_use]
    pub unsafe fn share(self) -> Counted<T> {
        self.add(1);
        Counted(self)
    }
}

impl<T> Room<T> {
    /// Room that nobody has used before.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new_uninit())
    }

    /// Makes a value there.
    #[inline(always)]
    pub fn fill(self, value: T) -> Sole<T> {
        let references = AtomicUsize::new(1);
        let inner = Box::leak(Box::write(self.0, Inner { references, value }));
        let (inner, owns) = (NonNull::from(inner), PhantomData);
        Sole(Place { inner, owns })
    }
}

impl<T> Default for Room<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Sole<T> {
    pub(crate) fn new(value: T) -> Self {
        Room::new().fill(value)
    }

    /// Drops the value and keeps its room.
    #[inline]
    #[must_use]
    pub fn clear(self) -> Room<T> {
        let inner = ManuallyDrop::new(self).0.inner;
        // SAFETY: it was made of a box, of a type with the same layout, and nobody else refers to it.
        let mut room = unsafe { Box::from_raw(inner.as_ptr().cast::<MaybeUninit<Inner<T>>>()) };
        // SAFETY: the value is there, and is not touched again. A panic on the way frees the room and nothing else.
        unsafe { room.assume_init_drop() };
        Room(room)
    }
}

impl<T: Last> Counted<T> {
    /// The first reference.
    #[inline]
    #[must_use]
    pub fn first(value: Sole<T>) -> Self {
        Self(ManuallyDrop::new(value).0)
    }

    #[inline]
    fn into_place(self) -> Place<T> {
        ManuallyDrop::new(self).0
    }

    /// The number of references at this moment.
    #[inline]
    #[must_use]
    pub fn count(this: &Self) -> usize {
        this.0.inner().references.load(Ordering::Relaxed)
    }

    /// Whether this and `other` refer to the same value.
    #[inline]
    #[must_use]
    pub fn same(this: &Self, other: &Self) -> bool {
        this.0.inner == other.0.inner
    }

    /// Where the value is.
    #[inline]
    #[must_use]
    pub fn place(this: &Self) -> Place<T> {
        this.0
    }

    /// The value, when this is the only reference.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        match self.is_alone() {
            // SAFETY: nobody else refers to the value, nor can while this is borrowed exclusively.
            true => Some(unsafe { &mut self.0.inner.as_mut().value }),
            false => None,
        }
    }

    /// The number of references. When it is 1, whatever others did with theirs comes before.
    #[inline]
    pub(crate) fn references(&mut self) -> usize {
        self.0.inner().references.load(Ordering::Acquire)
    }

    /// Whether this is the only reference.
    #[inline]
    pub(crate) fn is_alone(&mut self) -> bool {
        let references = self.references();
        references == 1 || faulty(Fault::CountedAlone) && references == 2
    }

    /// The value, when this is the only reference.
    #[inline]
    pub(crate) fn into_sole(mut self) -> Result<Sole<T>, Self> {
        match self.is_alone() {
            true => Ok(Sole(self.into_place())),
            false => Err(self),
        }
    }

    /// `count` references more, in one step; without a locked operation when this is the only one now.
    ///
    /// # Panics
    /// For more than [`MOST`].
    #[inline]
    pub(crate) fn share(&mut self, count: usize) -> Shares<T> {
        check(count);
        let place = self.0;
        match self.references() {
            // Nobody can change it meanwhile.
            1 => {
                let references = &place.inner().references;
                references.store(1 + count, Ordering::Relaxed);
            }
            _ => place.add(count),
        }
        Shares { place, count }
    }

    /// Takes back `shares`, if they are to this value and nobody else refers to it; without a locked operation. Whether it did: then
    /// there are none left.
    #[inline]
    pub(crate) fn take_back(&mut self, shares: &mut Shares<T>) -> bool {
        let all = self.0.inner == shares.place.inner && self.references() == 1 + shares.count;
        if all {
            // Nobody can change it meanwhile.
            self.0.inner().references.store(1, Ordering::Relaxed);
            shares.count = 0;
        }
        all
    }

    /// As [`share`](Self::share), of a reference that others may be sharing at the same time.
    #[inline]
    pub(crate) fn share_of(this: &Self, count: usize) -> Shares<T> {
        let place = this.0;
        place.add(count);
        Shares { place, count }
    }
}

impl<T: Last> Shares<T> {
    /// Those that are the given one alone.
    #[inline]
    pub(crate) fn of(one: Counted<T>) -> Self {
        let (place, count) = (one.into_place(), 1);
        Self { place, count }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One of them, while there are any.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Counted<T>> {
        self.count = self.count.checked_sub(1)?;
        Some(Counted(self.place))
    }

    /// One of them, or one more, for who keeps the value alive. Nothing here unwinds.
    #[inline(always)]
    pub(crate) fn take_or_more(&mut self) -> Counted<T> {
        match self.count {
            0 => self.place.add(1),
            _ => self.count -= 1,
        }
        Counted(self.place)
    }

    /// Takes over a reference, when it is to the same value.
    #[inline]
    pub(crate) fn join(&mut self, one: Counted<T>) -> Result<(), Counted<T>> {
        if one.0.inner != self.place.inner || self.count == 0 {
            return Err(one);
        }
        self.count += 1;
        one.into_place();
        Ok(())
    }
}

impl<T: Last> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.0.add(1);
        Self(self.0)
    }
}

impl<T: Last> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.inner().value
    }
}

impl<T> Deref for Sole<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.inner().value
    }
}

impl<T> DerefMut for Sole<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else refers to the value, and this is borrowed exclusively.
        unsafe { &mut self.0.inner.as_mut().value }
    }
}

impl<T: Last> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_up(1);
    }
}

impl<T: Last> Drop for Shares<T> {
    #[inline]
    fn drop(&mut self) {
        if self.count > 0 {
            self.place.give_up(self.count);
        }
    }
}

impl<T> Drop for Sole<T> {
    fn drop(&mut self) {
        // SAFETY: it was made of a box, and nobody else refers to it.
        drop(unsafe { Box::from_raw(self.0.inner.as_ptr()) });
    }
}

impl<T> fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> fmt::Debug for Room<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Room")
    }
}

impl<T: Last + fmt::Debug> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Sole<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Last> fmt::Debug for Shares<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shares({})", self.count)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    struct Value {
        number: u32,
        ended: Arc<AtomicUsize>,
        alive: Arc<()>,
    }

    impl Last for Value {
        fn last(value: Sole<Self>) {
            value.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// References come and go one by one and together, on several threads; the value ends once, with the last.
    #[test]
    fn the_last_reference_ends_the_value_however_they_go() {
        let (ended, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let value = |number| {
            let (ended, alive) = (ended.clone(), alive.clone());
            Sole::new(Value {
                number,
                ended,
                alive,
            })
        };
        let counts = || (ended.load(Ordering::Relaxed), Arc::strong_count(&alive) - 1);
        let mut sole = value(1);
        sole.number = 2;
        let mut first = Counted::first(sole);
        let mut three = first.share(3);
        assert_eq!((first.references(), first.number), (4, 2));
        let one = three.take().unwrap();
        let mut others = Counted::share_of(&one, 2);
        assert!(others.join(one).is_ok());
        assert_eq!(first.references(), 6);
        let threads = [three, others].map(|shares| std::thread::spawn(move || drop(shares)));
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!((first.references(), counts()), (1, (0, 1)));

        // References to another value are no business of these.
        let mut shares = Shares::of(first);
        let Err(stranger) = shares.join(Counted::first(value(3))) else {
            panic!("another value")
        };
        drop(stranger);
        assert_eq!(counts(), (1, 1));
        // Emptied ones take over none, give out none, and give up none.
        let mut one = shares.take().unwrap();
        let Err(two) = shares.join(one.clone()) else {
            panic!("there are none")
        };
        assert!(shares.take().is_none());
        drop(shares);
        assert_eq!(one.references(), 2);
        let Err(two) = two.into_sole() else {
            panic!("there are two")
        };
        drop(two);
        // All at once, with nobody else left; and a value that is taken out of its references is not ended, but dropped.
        let all = one.share(2);
        drop(one);
        drop(all);
        assert_eq!(counts(), (2, 0));
        let last = Counted::first(value(4)).into_sole();
        assert!(last.is_ok_and(|last| last.alive.as_ref() == &()));
        assert_eq!(counts(), (2, 0));
    }

    /// Room is used again, whatever became of the value before, and a value that is cleared is dropped once.
    #[test]
    fn room_is_used_again() {
        let (ended, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let value = |number| Value {
            number,
            ended: ended.clone(),
            alive: alive.clone(),
        };
        let mut room = Room::new();
        for number in 0..3 {
            let mut first = Counted::first(room.fill(value(number)));
            // SAFETY: `first` is a reference to it.
            let second = unsafe { Counted::place(&first).share() };
            assert_eq!((Counted::count(&second), second.number), (2, number));
            assert!(first.get_mut().is_none());
            drop(second);
            first.get_mut().unwrap().number += 10;
            assert_eq!(first.number, number + 10);
            room = first.into_sole().ok().unwrap().clear();
            assert_eq!(Arc::strong_count(&alive), 1);
        }
        assert_eq!(ended.load(Ordering::Relaxed), 0);
    }

    /// A number that would wrap is refused, before anything is counted.
    #[test]
    fn more_references_than_can_be_counted_are_refused() {
        let (ended, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let mut one = Counted::first(Sole::new(Value {
            number: 1,
            ended: ended.clone(),
            alive,
        }));
        for others in 0..2 {
            let held: Vec<_> = (0..others).map(|_| one.clone()).collect();
            for count in [MOST + 1, usize::MAX] {
                let refused = catch_unwind(AssertUnwindSafe(|| std::mem::forget(one.share(count))));
                assert!(refused.is_err());
                let refused = catch_unwind(AssertUnwindSafe(|| {
                    std::mem::forget(Counted::share_of(&one, count));
                }));
                assert!(refused.is_err());
            }
            assert_eq!(one.references(), 1 + others);
            drop(held);
        }
        let many = one.share(MOST);
        assert_eq!(one.references(), 1 + MOST);
        drop(many);
        assert_eq!((one.references(), ended.load(Ordering::Relaxed)), (1, 0));
    }
}
