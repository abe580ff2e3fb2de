use std::mem::MaybeUninit;

use space_arena::{Arena, BorrowedSlab};
use space_core::{Space, Undef};

fn main() {
    let mut arena;
    {
        let mut bytes = [MaybeUninit::<u8>::uninit(); 4096];
        arena = Arena::over(BorrowedSlab::new(&mut bytes)).unwrap();
    }
    drop(arena.frame().alloc(Undef::<f32, _>::new([3])));
}
