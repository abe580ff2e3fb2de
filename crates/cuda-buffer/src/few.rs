//! A list that nearly always has one element or none.

use smallvec::SmallVec;
use std::mem;

/// The list, in no particular order.
#[derive(Debug)]
pub(crate) struct Few<T> {
    /// `None` for an empty list.
    first: Option<T>,
    /// Empty unless there is a first one. `None` before the first of them: most lists end without, and cost nothing then.
    more: Option<SmallVec<[T; 1]>>,
}

impl<T> Default for Few<T> {
    #[inline]
    fn default() -> Self {
        Self::at_most_one(None)
    }
}

impl<T> Few<T> {
    /// One, or none.
    #[inline(always)]
    pub(crate) fn at_most_one(first: Option<T>) -> Self {
        Self { first, more: None }
    }

    #[inline(always)]
    fn no_more(&self) -> bool {
        self.more.as_ref().is_none_or(|more| more.is_empty())
    }

    fn more(&self) -> &[T] {
        self.more.as_deref().unwrap_or_default()
    }

    fn more_mut(&mut self) -> &mut SmallVec<[T; 1]> {
        self.more.get_or_insert_default()
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more().len()
    }

    /// The element of a list that has one only.
    #[inline(always)]
    pub(crate) fn sole(&self) -> Option<&T> {
        match self.no_more() {
            true => self.first.as_ref(),
            false => None,
        }
    }

    /// As [`sole`](Self::sole), to be changed.
    #[inline(always)]
    pub(crate) fn sole_mut(&mut self) -> Option<&mut T> {
        match self.no_more() {
            true => self.first.as_mut(),
            false => None,
        }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.push_more(value),
        }
    }

    #[cold]
    fn push_more(&mut self, value: T) {
        self.more_mut().push(value);
    }

    #[inline(always)]
    pub(crate) fn for_each(&self, mut f: impl FnMut(&T)) {
        if let Some(first) = &self.first {
            f(first);
            if !self.no_more() {
                self.more().iter().for_each(f);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more())
    }

    /// The first of those that are wanted.
    #[inline(always)]
    pub(crate) fn find(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        if self.first.as_ref().is_some_and(&mut is_it) {
            return self.first.as_mut();
        }
        self.find_more(is_it)
    }

    fn find_more(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let mut more = self.more.iter_mut().flatten();
        more.find(|value| is_it(value))
    }

    /// Takes out one of those that are wanted.
    #[inline(always)]
    pub(crate) fn take(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Option<T> {
        match &self.first {
            Some(first) if self.no_more() && is_it(first) => self.first.take(),
            _ => self.take_one_of_many(is_it),
        }
    }

    fn take_one_of_many(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Option<T> {
        if self.first.as_ref().is_some_and(&mut is_it) {
            let next = self.more_mut().pop();
            return mem::replace(&mut self.first, next);
        }
        let at = self.more().iter().position(is_it)?;
        Some(self.more_mut().swap_remove(at))
    }

    /// Takes out all. The first one comes last, so that the list is whole when `f` panics.
    #[inline(always)]
    pub(crate) fn drain(&mut self, mut f: impl FnMut(T)) {
        if !self.no_more() {
            self.more_mut().drain(..).for_each(&mut f);
        }
        if let Some(first) = self.first.take() {
            f(first);
        }
    }

    /// Keeps those that are wanted; shows the others to `gone`.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&T) -> bool, mut gone: impl FnMut(T)) {
        while let Some(value) = self.take(|value| !wanted(value)) {
            gone(value);
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut few = Self::default();
        values.into_iter().for_each(|value| few.push(value));
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn sorted(values: impl IntoIterator<Item = u8>) -> Vec<u8> {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_unstable();
        values
    }

    proptest! {
        /// Whatever is done, it has what a vector has.
        #[test]
        fn a_few_are_a_bag(steps in prop::collection::vec((0_u8..6, 0_u8..5), 0..40)) {
            let (mut few, mut model) = (Few::default(), Vec::new());
            for (step, value) in steps {
                match step {
                    0..=2 => {
                        few.push(value);
                        model.push(value);
                    }
                    3 => {
                        let at = model.iter().position(|known| *known == value);
                        let taken = at.map(|at| model.swap_remove(at));
                        prop_assert_eq!(few.take(|known| *known == value), taken);
                    }
                    4 => {
                        let mut gone = Vec::new();
                        few.retain(|known| *known != value, |value| gone.push(value));
                        let all = model.len();
                        model.retain(|known| *known != value);
                        prop_assert_eq!(gone, vec![value; all - model.len()]);
                    }
                    _ if value > 2 => {
                        let mut all = Vec::new();
                        few.drain(|value| all.push(value));
                        prop_assert_eq!(sorted(all), sorted(mem::take(&mut model)));
                    }
                    _ => {}
                }
                prop_assert_eq!(few.len(), model.len());
                prop_assert_eq!(few.is_empty(), model.is_empty());
                prop_assert_eq!(few.find(|known| *known == value).is_some(), model.contains(&value));
                prop_assert_eq!(few.sole().copied(), Some(&model).filter(|m| m.len() == 1).map(|m| m[0]));
                let mut seen = Vec::new();
                few.for_each(|value| seen.push(*value));
                prop_assert_eq!(sorted(seen), sorted(model.clone()));
                prop_assert_eq!(sorted(few.iter().copied()), sorted(model.clone()));
            }
        }
    }

    /// What a panic leaves is a list: empty means that there is nothing.
    #[test]
    fn a_panic_on_the_way_hides_nothing() {
        for panics_at in 0..3 {
            let mut few: Few<u8> = (0..3).collect();
            let drained = catch_unwind(AssertUnwindSafe(|| {
                let mut seen = 0;
                few.drain(|_| {
                    assert!(seen < panics_at, "on purpose");
                    seen += 1;
                });
            }));
            assert!(drained.is_err());
            assert_eq!(few.is_empty(), few.iter().next().is_none());
        }
    }
}
