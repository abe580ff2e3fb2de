#!/usr/bin/env python3
"""Makes the `.npy` files in this folder from the handwritten digits that scikit-learn ships.

    make_digits.py SOURCE [--out DIR]

SOURCE is a scikit-learn wheel (`pip download --no-deps scikit-learn`) or the
`digits.csv.gz` inside it. Only numpy is needed; scikit-learn itself is not imported.

Two runs write the same bytes. Training is done in f64 and its result is rounded to a
grid of 2^-14, so that another BLAS, which adds in another order, ends at the same files.
"""

import argparse
import gzip
import hashlib
import sys
import zipfile
from pathlib import Path

import numpy as np

CSV_IN_WHEEL = "sklearn/datasets/data/digits.csv.gz"
CSV_SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
SAMPLES, PIXELS, CLASSES = 1797, 64, 10
TRAIN = 1347
LAYERS = (PIXELS, 48, 32, CLASSES)

SEED = 2016
EPOCHS = 3000
BATCH = 192
RATE = 5e-3
NOISE = 0.1
KERNEL_GAMMA = 0.1
KERNEL_RIDGE = 1e-2
GRID = 2.0**14


def read_csv(source):
    """The unpacked text of digits.csv, checked against the digest of the known file."""
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            packed = wheel.read(CSV_IN_WHEEL)
    else:
        packed = source.read_bytes()
    text = gzip.decompress(packed)
    digest = hashlib.sha256(text).hexdigest()
    if digest != CSV_SHA256:
        sys.exit(f"{source}: digits.csv has digest {digest}, expected {CSV_SHA256}")
    return text.decode("ascii")


def load(source):
    """Images in 0..1 and labels, in the order of the file."""
    rows = [line.split(",") for line in read_csv(source).split()]
    table = np.array(rows, dtype=np.float64)
    if table.shape != (SAMPLES, PIXELS + 1):
        sys.exit(f"{source}: digits.csv has shape {table.shape}")
    return table[:, :PIXELS] / 16.0, table[:, PIXELS].astype(np.int64)


def kernel(left, right):
    """Gaussian similarity of every row of `left` with every row of `right`."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
    return np.exp(-KERNEL_GAMMA * (squares - 2.0 * left @ right.T))


def teacher(images, labels):
    """Kernel ridge regression onto -1 and 1. It generalises better than the small network, and
    can label any image, so the network learns from more images than there are."""
    targets = np.eye(CLASSES)[labels] * 2.0 - 1.0
    ridge = KERNEL_RIDGE * np.eye(len(images))
    coefficients = np.linalg.solve(kernel(images, images) + ridge, targets)
    return lambda others: kernel(others, images) @ coefficients


def blended(images, rng):
    """Each image mixed with another one at random, with some noise."""
    share = rng.random_sample((len(images), 1))
    mixed = share * images + (1.0 - share) * images[rng.permutation(len(images))]
    return np.clip(mixed + NOISE * rng.standard_normal(mixed.shape), 0.0, 1.0)


def forward(parameters, images):
    """The activations of every layer; the last entry holds the logits."""
    activations = [images]
    for layer, (weight, bias) in enumerate(parameters):
        z = activations[-1] @ weight + bias
        last = layer == len(parameters) - 1
        activations.append(z if last else np.maximum(z, 0.0))
    return activations


def gradients(parameters, images, scores):
    """Gradients of half the mean squared distance to `scores`, in the order of `parameters`."""
    activations = forward(parameters, images)
    delta = (activations[-1] - scores) / len(images)
    result = []
    for layer in reversed(range(len(parameters))):
        inputs = activations[layer]
        result.append((inputs.T @ delta, delta.sum(axis=0)))
        if layer > 0:
            delta = (delta @ parameters[layer][0].T) * (inputs > 0.0)
    return result[::-1]


def train(images, labels):
    """Adam, with a rate that falls to zero along a cosine."""
    # RandomState, since numpy keeps its streams the same from version to version.
    rng = np.random.RandomState(SEED)
    score = teacher(images, labels)
    parameters = [
        (rng.standard_normal((rows, cols)) * np.sqrt(2.0 / rows), np.zeros(cols))
        for rows, cols in zip(LAYERS, LAYERS[1:])
    ]
    first = [tuple(np.zeros_like(p) for p in pair) for pair in parameters]
    second = [tuple(np.zeros_like(p) for p in pair) for pair in parameters]

    batches = len(images) // BATCH
    step = 0
    for _ in range(EPOCHS):
        epoch_images = blended(images, rng)
        epoch_scores = score(epoch_images)
        for batch in range(batches):
            chosen = slice(batch * BATCH, (batch + 1) * BATCH)
            step += 1
            rate = RATE * 0.5 * (1.0 + np.cos(np.pi * step / (EPOCHS * batches)))
            grads = gradients(parameters, epoch_images[chosen], epoch_scores[chosen])
            for pair, grad_pair, m_pair, v_pair in zip(parameters, grads, first, second):
                for p, g, m, v in zip(pair, grad_pair, m_pair, v_pair):
                    m += 0.1 * (g - m)
                    v += 0.001 * (g * g - v)
                    m_hat = m / (1.0 - 0.9**step)
                    v_hat = v / (1.0 - 0.999**step)
                    p -= rate * m_hat / (np.sqrt(v_hat) + 1e-8)
    return parameters


def accuracy(parameters, images, labels):
    return float((forward(parameters, images)[-1].argmax(axis=1) == labels).mean())


def main():
    parser = argparse.ArgumentParser(description="Make the .npy files of the digits example.")
    parser.add_argument("source", type=Path, help="a scikit-learn wheel, or its digits.csv.gz")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    options = parser.parse_args()

    images, labels = load(options.source)
    trained = train(images[:TRAIN], labels[:TRAIN])
    parameters = [tuple(np.round(p * GRID) / GRID for p in pair) for pair in trained]

    files = {"images": images.astype("<f4"), "labels": labels.astype("u1")}
    for number, (weight, bias) in enumerate(parameters, start=1):
        files[f"w{number}"] = weight.astype("<f4")
        files[f"b{number}"] = bias.astype("<f4")

    options.out.mkdir(parents=True, exist_ok=True)
    for name, array in files.items():
        path = options.out / f"{name}.npy"
        np.save(path, np.ascontiguousarray(array), allow_pickle=False)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{digest[:16]}  {path.name:<11} {array.dtype.str} {array.shape}")

    # Measured with what the files hold: f32 parameters and f32 arithmetic.
    stored = [(files[f"w{n}"], files[f"b{n}"]) for n in (1, 2, 3)]
    logits = forward(stored, files["images"])[-1]
    ranked = np.sort(logits, axis=1)
    print(f"train accuracy     {accuracy(stored, files['images'][:TRAIN], labels[:TRAIN]):.4f}")
    print(f"held-out accuracy  {accuracy(stored, files['images'][TRAIN:], labels[TRAIN:]):.4f}")
    print(f"all {SAMPLES} samples  {accuracy(stored, files['images'], labels):.4f}")
    print(f"smallest gap between the two best logits  {(ranked[:, -1] - ranked[:, -2]).min():.2e}")


if __name__ == "__main__":
    main()
