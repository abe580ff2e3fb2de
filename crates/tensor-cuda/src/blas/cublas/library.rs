//! Finding and loading cuBLAS. What is loaded stays so: a handle, or a driver that calls back, may need it to the end of the process.

use super::calls::{
    Handles, Products32, Products64, Properties, cublasStatus_t, libraryPropertyType_t,
};
use super::error::{CublasError, TriedFile, TriedPlace};
use super::needs::{Target, check_version};
use super::owned::Idle;
use super::places::{Candidate, Place, Surroundings, name_of};
use super::trial::Trials;
use parking_lot::Mutex;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::{Path, PathBuf};

/// A version of cuBLAS. The first number is that of the CUDA that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second one.
    pub minor: u32,
    /// The third one.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A loaded cuBLAS.
#[derive(Debug)]
pub(super) struct Library {
    /// What it is called, with the version.
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    pub(super) version: Version,
    pub(super) handles: Handles,
    pub(super) products: Products32,
    /// Those with 64-bit sizes, where there are any.
    pub(super) wide: Option<Products64>,
    /// Whether it had been loaded here from another path before: then the loader may know its name from that alone.
    loaded_before: bool,
    /// Handles that nobody has.
    pub(super) idle: Idle,
    /// Products that can be captured.
    pub(super) trials: Trials,
}

/// Libraries by the path that they were loaded from.
static LOADED: Mutex<Vec<&'static Library>> = Mutex::new(Vec::new());

impl Library {
    /// The library at this path, or in this folder.
    pub(super) fn at(path: &Path, target: Target) -> Result<&'static Self, CublasError> {
        let place = Place::explicit(path);
        let alone = place.candidates.len() == 1;
        let mut again = None;
        let mut files = match try_place(&place, target, &mut again) {
            Ok(library) => return Ok(library),
            Err(files) => files,
        };
        if let Some(library) = again {
            return Ok(library);
        }
        match alone.then(|| files.pop()).flatten() {
            None => Err(not_found(target, vec![tried(place, files)])),
            Some(file) => Err(file.problem.map_or_else(
                || CublasError::Load {
                    path: path.to_owned(),
                    reason: "there is no such file".to_owned(),
                },
                |problem| *problem,
            )),
        }
    }

    /// The first one of the places that can be used.
    pub(super) fn search(
        surroundings: Surroundings<'_>,
        target: Target,
    ) -> Result<&'static Self, CublasError> {
        let (mut all, mut again) = (Vec::new(), None);
        for place in surroundings.places() {
            let files = match try_place(&place, target, &mut again) {
                Ok(library) => return Ok(library),
                Err(files) => files,
            };
            if place.explicit && again.is_none() && files.iter().all(|file| file.problem.is_none())
            {
                // Who names a path wants what is there.
                return Err(CublasError::Load {
                    path: place.name.into(),
                    reason: "there is no such library".to_owned(),
                });
            }
            all.push(tried(place, files));
        }
        again.ok_or_else(|| not_found(target, all))
    }

    fn load(candidate: &Candidate) -> Result<&'static Self, CublasError> {
        let path = &candidate.path;
        let mut loaded = LOADED.lock();
        if let Some(known) = loaded.iter().find(|known| known.path == *path) {
            return Ok(known);
        }
        load_beside(path)?;
        let opened = open(path)?;
        let address = |name: &'static CStr| address(opened, name);
        let missing = |function| CublasError::MissingFunction {
            path: path.clone(),
            function,
        };
        // SAFETY: the library is never closed. One that has this name is cuBLAS, or stands in for it.
        let properties = unsafe { Properties::find(address) }.map_err(missing)?;
        let version = version(&properties, path)?;
        check_version(path, version)?;
        // SAFETY: as above, for these names and those below.
        let handles = unsafe { Handles::find(address) }.map_err(missing)?;
        // SAFETY: as above.
        let products = unsafe { Products32::find(address) }.map_err(missing)?;
        // SAFETY: as above.
        let wide = unsafe { Products64::find(address) }.ok();
        let create = |library: &Handles| library.cublasCreate_v2 as *const ();
        let same = |known: &&'static Self| create(&known.handles) == create(&handles);
        let loaded_before = loaded.iter().any(same);
        let library = Box::leak(Box::new(Self {
            name: Box::leak(format!("cuBLAS {version}").into_boxed_str()),
            path: path.clone(),
            version,
            handles,
            products,
            wide,
            loaded_before,
            idle: Idle::default(),
            trials: Trials::default(),
        }));
        loaded.push(library);
        Ok(library)
    }
}

fn tried(place: Place, files: Vec<TriedFile>) -> TriedPlace {
    TriedPlace {
        place: place.name,
        files,
    }
}

fn not_found(target: Target, tried: Vec<TriedPlace>) -> CublasError {
    CublasError::NotFound {
        device: target.device,
        capability: target.capability,
        driver: target.driver,
        names: target.majors().map(name_of).collect(),
        tried,
    }
}

/// The first library of a place that can be used, or what was looked at. Those that can't be by their names come last, so that they
/// are not loaded where another one is there. What the loader may know only since another device uses it from elsewhere is noted in
/// `again`, for the end: a device must not get another version because another one came first.
fn try_place(
    place: &Place,
    target: Target,
    again: &mut Option<&'static Library>,
) -> Result<&'static Library, Vec<TriedFile>> {
    let fits = |candidate: &&Candidate| candidate.major.is_none_or(|major| target.takes(major));
    let (fitting, others): (Vec<_>, Vec<_>) = place.candidates.iter().partition(fits);
    let mut files = Vec::new();
    for candidate in fitting.into_iter().chain(others) {
        let problem = match try_candidate(candidate, place.by_loader, target) {
            Ok(Some(library)) if place.by_loader && library.loaded_before => {
                again.get_or_insert(library);
                None
            }
            Ok(Some(library)) => return Ok(library),
            Ok(None) => None,
            Err(error) => Some(Box::new(error)),
        };
        let path = candidate.path.clone();
        files.push(TriedFile { path, problem });
    }
    Err(files)
}

/// `None` when it is not there.
fn try_candidate(
    candidate: &Candidate,
    by_loader: bool,
    target: Target,
) -> Result<Option<&'static Library>, CublasError> {
    let path = &candidate.path;
    if !by_loader && !path.exists() {
        return Ok(None);
    }
    // Where the name tells, it need not be loaded.
    if let Some(major) = candidate.major.filter(|_| !by_loader) {
        let first = Version {
            major,
            minor: 0,
            patch: 0,
        };
        target.check(path, first)?;
    }
    let library = match Library::load(candidate) {
        Err(CublasError::Load { reason, .. }) if by_loader && is_absence(path, &reason) => {
            return Ok(None);
        }
        result => result?,
    };
    target.check(path, library.version)?;
    Ok(Some(library))
}

/// Whether the loader misses the library itself, and not one that it needs.
fn is_absence(name: &Path, reason: &str) -> bool {
    let missing = format!("{}: cannot open shared object file", name.display());
    reason.starts_with(&missing)
}

/// Loads the library that cuBLAS needs from the folder that it is in, where that has one: the loader alone might take another one.
fn load_beside(path: &Path) -> Result<(), CublasError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some((folder, name)) = path
        .parent()
        .zip(name)
        .filter(|(folder, _)| folder.is_dir())
    else {
        return Ok(());
    };
    let needed = folder.join(name.replacen("libcublas.", "libcublasLt.", 1));
    match needed != *path && needed.exists() {
        true => open(&needed).map(drop),
        false => Ok(()),
    }
}

/// Opens a library for good.
fn open(path: &Path) -> Result<&'static libloading::Library, CublasError> {
    // SAFETY: its initialisers are those of cuBLAS, which a program that links it runs as well.
    let opened = unsafe { libloading::Library::new(path) };
    match opened {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => Err(CublasError::Load {
            path: path.to_owned(),
            reason: std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), ToString::to_string),
        }),
    }
}

/// The address of a symbol; null when there is none.
fn address(library: &libloading::Library, name: &CStr) -> *mut c_void {
    // SAFETY: the symbol is taken as an address, which any symbol has, and nothing is done with it here.
    let found = unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) };
    found.map_or(std::ptr::null_mut(), |symbol| *symbol)
}

fn version(properties: &Properties, path: &Path) -> Result<Version, CublasError> {
    use libraryPropertyType_t as Property;
    let property = |property| {
        let mut value = 0;
        // SAFETY: the pointer is to a number of ours.
        let status = unsafe { (properties.cublasGetProperty)(property, &mut value) };
        match status == cublasStatus_t::SUCCESS {
            true => Ok(value.unsigned_abs()),
            false => Err(CublasError::Load {
                path: path.to_owned(),
                reason: format!("cublasGetProperty returned status {}", status.0),
            }),
        }
    };
    Ok(Version {
        major: property(Property::MAJOR)?,
        minor: property(Property::MINOR)?,
        patch: property(Property::PATCH)?,
    })
}
