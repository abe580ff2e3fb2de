//! A small kernel of three operands, launched through the ledger and without it.

use crate::Outcome;
use crate::bench::{Bench, Case, Scale};
use crate::table::Table;
use cuda_buffer::{AccessCompletion, CudaBuffer, DeviceData, Launch, acquire_all};
use cuda_contract::kernels::MODULE;
use cuda_driver::{Argument, LaunchConfig};

const N: usize = 1024;

pub(crate) fn case(scale: Scale) -> Case {
    Case {
        name: "a launch of three operands".to_owned(),
        rounds: scale.rounds(1000),
    }
}

pub(crate) fn run(bench: &Bench, table: &mut Table) -> Outcome {
    let case = case(bench.scale);
    let (driver, id, raw) = (&bench.driver, bench.id(), bench.bare(0));
    let stream = &bench.streams[0];
    let config = LaunchConfig::for_elements(N)?;

    let memory: Vec<_> = (0..3)
        .map(|_| driver.mem_alloc(id, 4 * N))
        .collect::<Result<_, _>>()?;
    let module = driver.module_load(id, &MODULE)?;
    let function = driver.module_function(id, module, "contract_add")?;
    for &memory in &memory {
        // SAFETY: the memory has so many numbers.
        unsafe { driver.fill_async(id, memory, cuda_driver::Pattern::U32(0), N, raw) }?;
    }
    let mut args = vec![Argument::scalar(N as u32)];
    args.extend(memory.iter().map(|memory| Argument::Pointer(*memory)));
    let bare = || {
        // SAFETY: the kernel takes these arguments; the stream orders the launches.
        Ok(unsafe { driver.launch(id, function, &config, raw, &args) }?)
    };

    let kernel = bench.device().kernel(&MODULE, "contract_add")?;
    let buffer = || CudaBuffer::<f32>::from_slice(bench.device(), &[0.0; N]);
    let (mut out, x, y) = (buffer()?, buffer()?, buffer()?);
    let carve = || {
        let (mut o, a, b) = acquire_all(stream, (out.write(), x.read(), y.read()))?;
        kernel.launch(stream, config, (N as u32, &mut o, &a, &b))?;
        Ok(AccessCompletion::new(stream).release((o, a, b))?)
    };
    let (bare, carve) = bench.compare(case.rounds, bare, carve)?;
    for memory in memory {
        // SAFETY: all work is done.
        unsafe { driver.mem_free(id, memory) }?;
    }
    // SAFETY: as above.
    unsafe { driver.module_unload(id, module) }?;

    table.add(case, Ok(bare), Ok(carve), None);
    table.note(format!(
        "the ledger adds {:.2} us to a launch",
        carve.median - bare.median
    ));
    Ok(())
}
