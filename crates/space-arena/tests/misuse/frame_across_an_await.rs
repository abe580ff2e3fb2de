use space_arena::{Arena, HostSlab};
use space_core::{Space, Undef};

fn arena() -> Arena<HostSlab> {
    Arena::with_capacity(1 << 16).unwrap()
}

fn floats(n: usize) -> Undef<f32, [usize; 1]> {
    Undef::new([n])
}

fn spawn<T: Send>(_: T) {}

fn main() {
    let mut arena = arena();
    spawn(async move {
        let frame = arena.frame();
        let before = frame.alloc(floats(3)).unwrap();
        std::future::ready(()).await;
        drop(before);
        drop(frame.alloc(floats(4)));
    });
}
