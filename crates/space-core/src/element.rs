//! What arrays hold.

/// Plain data: what an array may hold.
///
/// `Copy`, so that giving memory back in bulk never skips a destructor, and `'static`, so that an
/// array's bytes never borrow anything. Every such type is an element.
pub trait Element: Copy + 'static {}

impl<T: Copy + 'static> Element for T {}
