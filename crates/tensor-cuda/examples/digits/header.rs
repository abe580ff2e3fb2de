//! What a `.npy` file says of itself, read with care before anything is allocated for it.

use std::fs::File;
use std::io::Read;

/// Longest header that is read, in bytes. Numpy pads short ones to a multiple of 64.
const LONGEST: u64 = 1 << 16;

/// The element type of a file, such as `<f4`, and its shape.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) dtype: String,
}

impl Header {
    /// Reads the header, and checks that the file is as long as it says.
    pub(crate) fn read(file: &File) -> Result<Self, String> {
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        if metadata.is_dir() {
            return Err("is a directory".into());
        }
        let mut start = Vec::new();
        file.take(LONGEST)
            .read_to_end(&mut start)
            .map_err(|error| error.to_string())?;
        let foreign = || "is not a .npy file".to_owned();
        let (text, header_bytes) = split(&start).ok_or_else(foreign)??;
        let dtype = value(text, "'descr':")
            .and_then(|rest| rest.strip_prefix('\''))
            .and_then(|rest| rest.split_once('\''))
            .map(|(dtype, _)| dtype.to_owned())
            .ok_or_else(foreign)?;
        let shape = value(text, "'shape':")
            .and_then(|rest| rest.strip_prefix('('))
            .and_then(|rest| rest.split_once(')'))
            .map(|(shape, _)| shape)
            .ok_or_else(foreign)?;
        let too_large = || format!("has shape ({shape}), more than can be counted");
        let mut count = 1_u64;
        let mut empty = false;
        for extent in shape
            .split(',')
            .map(str::trim)
            .filter(|extent| !extent.is_empty())
        {
            let extent: u64 = extent.parse().map_err(|_| foreign())?;
            empty |= extent == 0;
            // Extents besides a zero must be countable as well.
            count = count.checked_mul(extent.max(1)).ok_or_else(too_large)?;
        }
        // The last digits of the type are the bytes of an element; other types are refused later.
        let digits = dtype.trim_start_matches(|c: char| !c.is_ascii_digit());
        let element_bytes: u64 = digits.parse().unwrap_or(1);
        let bytes = count.checked_mul(element_bytes).ok_or_else(too_large)?;
        i64::try_from(bytes).map_err(|_| too_large())?;
        let bytes = if empty { 0 } else { bytes };
        let wanted = header_bytes.checked_add(bytes).ok_or_else(too_large)?;
        if metadata.is_file() && metadata.len() < wanted {
            return Err("ends before its data does".into());
        }
        Ok(Self { dtype })
    }
}

/// The text of the header, and the bytes up to the data. `None` for a file of another kind.
fn split(start: &[u8]) -> Option<Result<(&str, u64), String>> {
    let rest = start.strip_prefix(b"\x93NUMPY")?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, text, fixed) = if version[0] == 1 {
        let (length, text) = rest.split_first_chunk::<2>()?;
        (u64::from(u16::from_le_bytes(*length)), text, 10)
    } else {
        let (length, text) = rest.split_first_chunk::<4>()?;
        (u64::from(u32::from_le_bytes(*length)), text, 12)
    };
    if length > LONGEST {
        return Some(Err(format!(
            "has a header of {length} bytes, where at most {LONGEST} are read"
        )));
    }
    let Some(text) = text.get(..length as usize) else {
        return Some(Err("ends before its header does".into()));
    };
    let text = std::str::from_utf8(text).ok()?;
    Some(Ok((text, fixed + length)))
}

/// What follows a key, without leading spaces.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.split_once(key).map(|(_, rest)| rest.trim_start())
}
