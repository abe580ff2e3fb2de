//! Capturing programs.

use super::*;

#[test]
fn a_recording_is_captured_without_waiting_or_is_refused_before() {
    for seed in 0..10 {
        let runtime = runtime(seed, 1, 4);
        let device = runtime.default_device();
        let executor = SeededExecutor::new(seed);
        let new = |seed| from_ndarray(&executor, device, matrix(4, seed)).unwrap();
        let (a, x, y, z) = (new(0), new(1), new(2), new(3));
        let program = |on: &dyn Spawn| {
            assign_product(on, &y, &a, &x).unwrap();
            scale(on, &y, 2.0).unwrap();
            add(on, &z, &y, &x).unwrap();
        };
        program(&executor);
        executor
            .run_until(async { z.read().await.map(drop) })
            .unwrap()
            .unwrap();
        let expected = a_times(&matrix(4, 0), &matrix(4, 1)) * 2.0 + &matrix(4, 1);

        // Behind an access that is not recorded: refused before the capture begins, and nothing has changed.
        let held = x.write();
        let recording = Recording::new();
        program(&recording);
        let lease = Arc::new(tensor_cuda::Blas::of(device).lease().unwrap());
        let captures = device.call_counts().of(Call::StreamBeginCapture);
        let Err(TensorError::Value(AsyncError::Pending {
            operation: None, ..
        })) = recording.capture(&lease)
        else {
            panic!("somebody else comes first")
        };
        assert_eq!(
            (
                recording.len(),
                device.call_counts().of(Call::StreamBeginCapture)
            ),
            (3, captures)
        );
        let mut guard = held.wait().unwrap();
        tensor_cuda::copy(
            lease.stream(),
            guard.get_mut().unwrap(),
            &*a.try_read().unwrap(),
        )
        .unwrap();
        guard.release();

        let graph = recording.capture(&lease).unwrap();
        assert!(recording.is_empty());
        graph.launch(lease.stream()).unwrap();
        let twice = a_times(&matrix(4, 0), &matrix(4, 0)) * 2.0 + &matrix(4, 0);
        assert_eq!(z.try_read().unwrap().to_ndarray().unwrap(), twice);
        // Replays are ordered with eager work on other streams.
        let other = device.streams().acquire().unwrap();
        let back = CudaTensor::from_ndarray(device, &matrix(4, 1).view()).unwrap();
        let mut guard = x.try_write().unwrap();
        tensor_cuda::copy(&other, guard.get_mut().unwrap(), &back).unwrap();
        guard.release();
        graph.launch(lease.stream()).unwrap();
        assert_eq!(z.try_read().unwrap().to_ndarray().unwrap(), expected);

        // What waits for something that is no value is refused before as well, and may be tried again.
        let recording = Recording::new();
        scale(&recording, &y, 1.0).unwrap();
        let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let gate = open.clone();
        spawn(&recording, "timer", || async move {
            std::future::poll_fn(|_| match gate.load(std::sync::atomic::Ordering::Relaxed) {
                true => std::task::Poll::Ready(Ok(())),
                false => std::task::Poll::Pending,
            })
            .await
        })
        .unwrap();
        let captures = device.call_counts().of(Call::StreamBeginCapture);
        let refused = recording.capture(&lease).unwrap_err();
        assert!(
            matches!(refused, TensorError::Suspended { left: 1 }),
            "{refused}"
        );
        assert_eq!(
            (
                recording.len(),
                device.call_counts().of(Call::StreamBeginCapture)
            ),
            (2, captures)
        );
        open.store(true, std::sync::atomic::Ordering::Relaxed);
        recording.capture(&lease).unwrap();
        // Also behind a value that is there.
        let late = Recording::new();
        spawn(&late, "late", || {
            let y = y.write();
            async move {
                let y = y.await;
                std::future::pending::<()>().await;
                y.release();
                Ok(())
            }
        })
        .unwrap();
        let refused = late.capture(&lease).unwrap_err();
        assert!(
            matches!(refused, TensorError::Suspended { left: 1 }),
            "{refused}"
        );
        drop(late);
        y.try_write()
            .unwrap()
            .set(CudaTensor::new(device, [4, 4]).unwrap());

        // An operation that fails takes the capture with it, and the stream stays usable.
        let wrong = Async::new(CudaTensor::<f64, 2>::new(device, [1, 3]).unwrap());
        let recording = Recording::new();
        scale(&recording, &y, 2.0).unwrap();
        add(&recording, &wrong, &y, &x).unwrap();
        let Err(TensorError::Value(AsyncError::Failed(failure))) = recording.capture(&lease) else {
            panic!("shapes differ")
        };
        assert_eq!(failure.operation(), "add");
        tensor_cuda::fill(
            lease.stream(),
            y.try_write().unwrap().get_mut().unwrap(),
            1.0,
        )
        .unwrap();
        drop((a, x, y, z, wrong, back, graph, lease, other, recording));
        check(runtime);
    }
}

fn a_times(a: &Array2<f64>, b: &Array2<f64>) -> Array2<f64> {
    a.dot(b)
}
