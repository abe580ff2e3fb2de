//! Reading `.npy` files, with one clear line for whatever is wrong with one.

use crate::header::Header;
use crate::options::Options;
use ndarray::{Array, Array1, Array2, ArrayD, Axis, Dimension};
use ndarray_npy::{ReadNpyError, ReadNpyExt, ReadableElement};
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Pixels of an image.
pub(crate) const PIXELS: usize = 64;

/// Images per replay, unless told otherwise.
const BATCH: usize = 64;

/// A file that can't be used, and why.
#[derive(Debug)]
pub(crate) struct FileError {
    path: PathBuf,
    reason: String,
}

impl FileError {
    fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for FileError {}

/// The folder of the files that come with the example.
pub(crate) fn data(name: &str) -> PathBuf {
    const FOLDER: &str = "data/digits";
    // A program that was taken elsewhere has them beside it.
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.with_file_name(FOLDER);
    match beside.is_dir() {
        true => beside.join(name),
        false => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(FOLDER)
            .join(name),
    }
}

/// Images, one per row, and their digits where they are known.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) images: Array2<f32>,
    pub(crate) labels: Option<Array1<u32>>,
    /// Images per replay.
    pub(crate) batch: usize,
}

impl Input {
    pub(crate) fn load(options: &Options) -> Result<Self, FileError> {
        let (images, labels) = match &options.images {
            Some(images) => (images.clone(), options.labels.clone()),
            None => (data("images.npy"), Some(data("labels.npy"))),
        };
        let pictures = read_images(&images)?;
        let labels = match &labels {
            None => None,
            Some(path) => Some(read_labels(path, pictures.nrows())?),
        };
        let count = pictures.nrows();
        let batch = options.batch.map_or(count.min(BATCH), NonZeroUsize::get);
        if batch > count {
            let reason = format!("has {count} images, fewer than the {batch} of --batch");
            return Err(FileError::new(&images, reason));
        }
        Ok(Self {
            images: pictures,
            labels,
            batch,
        })
    }
}

fn read_images(path: &Path) -> Result<Array2<f32>, FileError> {
    let array: ArrayD<f32> = read(path, "f32")?;
    let shape = array.shape().to_vec();
    let images = match shape[..] {
        [n, PIXELS] | [n, 8, 8] => array.to_shape((n, PIXELS)).ok().map(|a| a.to_owned()),
        _ => None,
    };
    let images = images.ok_or_else(|| {
        let reason = format!("has shape {shape:?}, where (n, {PIXELS}) or (n, 8, 8) is needed");
        FileError::new(path, reason)
    })?;
    if images.is_empty() {
        return Err(FileError::new(path, "holds no images"));
    }
    finite(path, &images)?;
    Ok(images)
}

fn read_labels(path: &Path, images: usize) -> Result<Array1<u32>, FileError> {
    let wanted = "u8, i32 or i64";
    let labels: Array1<i64> = match dtype(path)?.as_str() {
        "<i8" => read(path, wanted)?,
        "<i4" => read::<i32, _>(path, wanted)?.mapv(i64::from),
        _ => read::<u8, _>(path, wanted)?.mapv(i64::from),
    };
    if labels.len() != images {
        let count = labels.len();
        let reason = format!("has {count} labels for {images} images");
        return Err(FileError::new(path, reason));
    }
    let digit = |(row, &label): (usize, &i64)| match u32::try_from(label) {
        Ok(digit @ 0..10) => Ok(digit),
        _ => {
            let reason = format!("label {row} is {label}, not a digit");
            Err(FileError::new(path, reason))
        }
    };
    labels.iter().enumerate().map(digit).collect()
}

/// Weights that come with the example.
pub(crate) fn read_weights<D: Dimension>(name: &str, shape: D) -> Result<Array<f32, D>, FileError> {
    let path = data(name);
    let weights: Array<f32, D> = read(&path, "f32")?;
    if weights.raw_dim() != shape {
        let (given, needed) = (weights.shape(), shape.slice());
        let reason = format!("has shape {given:?}, where {needed:?} is needed");
        return Err(FileError::new(&path, reason));
    }
    finite(&path, &weights)?;
    Ok(weights)
}

fn finite<D: Dimension>(path: &Path, array: &Array<f32, D>) -> Result<(), FileError> {
    let Some(at) = array.iter().position(|value| !value.is_finite()) else {
        return Ok(());
    };
    let row_length = array.len() / array.len_of(Axis(0));
    let (row, column) = (at / row_length, at % row_length);
    let reason = format!("value {column} of row {row} is not a finite number");
    Err(FileError::new(path, reason))
}

fn open(path: &Path) -> Result<File, FileError> {
    File::open(path).map_err(|error| FileError::new(path, error.to_string()))
}

/// The element type, of a file that is what it says.
fn dtype(path: &Path) -> Result<String, FileError> {
    let header = Header::read(&open(path)?).map_err(|reason| FileError::new(path, reason))?;
    Ok(header.dtype)
}

fn read<T, D>(path: &Path, wanted: &str) -> Result<Array<T, D>, FileError>
where
    T: ReadableElement,
    D: Dimension,
{
    let dtype = dtype(path)?;
    Array::<T, D>::read_npy(BufReader::new(open(path)?)).map_err(|error| {
        let reason = match &error {
            ReadNpyError::WrongDescriptor(_) => format!("holds '{dtype}', not {wanted}"),
            ReadNpyError::WrongNdim(Some(wanted), given) => {
                format!("has {given} dimensions, where {wanted} are needed")
            }
            ReadNpyError::MissingData => "ends before its data does".to_owned(),
            ReadNpyError::ExtraBytes(count) => format!("has {count} bytes after its data"),
            other => other.to_string(),
        };
        FileError::new(path, reason)
    })
}
