use std::{alloc::Layout, cell::Cell};

use space_array::{Scope, with_allocator};
use space_core::{AllocError, Heap, Host, HostBlock, Space};

struct Local(Cell<usize>);

impl Space for Local {
    type Family = Host;
    type Block = HostBlock;
    fn block(&self, layout: Layout) -> Result<HostBlock, AllocError> {
        self.0.set(self.0.get() + layout.size());
        Heap.block(layout)
    }
}

fn main() {
    with_allocator(&Scope::new(Local(Cell::new(0))), || ());
}
