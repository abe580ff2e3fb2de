//! Where cuBLAS may be: an explicit path, the loader's path, CUDA folders, Python wheels.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The environment variable with an explicit path, of the library or of its folder. Set to nothing, cuBLAS is not looked for.
pub(super) const VARIABLE: &str = "CARVE_CUBLAS";

/// Names of the library with the major version that each means, the one to prefer first.
const NAMES: [(&str, Option<u32>); 2] =
    [("libcublas.so.13", Some(13)), ("libcublas.so.12", Some(12))];

/// The name of a library of this major version.
pub(super) fn name_of(major: u32) -> String {
    format!("libcublas.so.{major}")
}

/// The name in the folder of a toolkit, which does not tell the version.
const UNVERSIONED: (&str, Option<u32>) = ("libcublas.so", None);

/// One library that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// A path, or a name for the loader.
    pub(super) path: PathBuf,
    /// The major version that its name means.
    pub(super) major: Option<u32>,
}

/// A place, with the libraries that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What it is, for errors.
    pub(super) name: String,
    pub(super) candidates: Vec<Candidate>,
    /// Whether the loader looks for the names.
    pub(super) by_loader: bool,
    /// Whether it was named: then there is no other.
    pub(super) explicit: bool,
}

/// What places are worked out from.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'e> {
    /// An environment variable.
    pub(super) variable: &'e dyn Fn(&str) -> Option<OsString>,
    /// `/`, but for tests.
    pub(super) root: &'e Path,
}

impl Surroundings<'static> {
    /// Those of the process.
    pub(super) fn of_process() -> Self {
        Self {
            variable: &|name| std::env::var_os(name),
            root: Path::new("/"),
        }
    }
}

impl Place {
    /// The library at `path`, or those in this folder; a mere name is for the loader.
    pub(super) fn explicit(path: &Path) -> Self {
        let name = path.display().to_string();
        if path.is_dir() {
            return Self {
                explicit: true,
                ..Self::folder(name, path, true)
            };
        }
        Self {
            name,
            candidates: vec![Candidate {
                path: path.to_owned(),
                major: None,
            }],
            by_loader: path.components().count() == 1 && !path.exists(),
            explicit: true,
        }
    }

    fn folder(name: String, folder: &Path, unversioned: bool) -> Self {
        let names = NAMES
            .into_iter()
            .chain(unversioned.then_some(UNVERSIONED))
            .map(|(name, major)| Candidate {
                path: folder.join(name),
                major,
            });
        Self {
            name,
            candidates: names.collect(),
            by_loader: false,
            explicit: false,
        }
    }
}

impl Surroundings<'_> {
    fn path(&self, variable: &str) -> Option<PathBuf> {
        let value = (self.variable)(variable)?;
        (!value.is_empty()).then(|| PathBuf::from(value))
    }

    /// Every place, the first to be tried first.
    pub(super) fn places(&self) -> Vec<Place> {
        if let Some(explicit) = (self.variable)(VARIABLE) {
            let told = format!("{VARIABLE}={}", explicit.to_string_lossy());
            return match explicit.is_empty() {
                true => Vec::new(),
                false => vec![Place {
                    name: told,
                    ..Place::explicit(Path::new(&explicit))
                }],
            };
        }
        let mut places = vec![Place {
            name: "the loader's path".to_owned(),
            candidates: NAMES
                .into_iter()
                .map(|(name, major)| Candidate {
                    path: name.into(),
                    major,
                })
                .collect(),
            by_loader: true,
            explicit: false,
        }];
        for (why, folder) in self.cuda_folders() {
            for below in ["lib64", "lib", "targets/x86_64-linux/lib"] {
                let folder = folder.join(below);
                // Of a folder that was named by nobody only what is there is told.
                if why.is_some() || folder.is_dir() {
                    let name = match why {
                        Some(variable) => format!("{} ({variable})", folder.display()),
                        None => folder.display().to_string(),
                    };
                    places.push(Place::folder(name, &folder, true));
                }
            }
        }
        for site in self.sites() {
            for below in ["nvidia/cu13/lib", "nvidia/cublas/lib"] {
                let folder = site.join(below);
                if folder.is_dir() {
                    let name = format!("{} (a Python wheel)", folder.display());
                    places.push(Place::folder(name, &folder, false));
                }
            }
        }
        places
    }

    /// CUDA folders, with the variable that names each.
    fn cuda_folders(&self) -> Vec<(Option<&'static str>, PathBuf)> {
        let mut folders: Vec<(Option<&str>, PathBuf)> = ["CUDA_HOME", "CUDA_PATH"]
            .into_iter()
            .filter_map(|variable| Some((Some(variable), self.path(variable)?)))
            .collect();
        // Conda has toolkits in its own prefix.
        folders.extend(
            self.path("CONDA_PREFIX")
                .map(|prefix| (Some("CONDA_PREFIX"), prefix)),
        );
        let local = self.root.join("usr/local");
        folders.push((None, local.join("cuda")));
        let mut versioned: Vec<_> = children(&local)
            .into_iter()
            .filter_map(|folder| Some((version(folder.file_name()?)?, folder)))
            .collect();
        // The newest first.
        versioned.sort_by(|a, b| b.cmp(a));
        folders.extend(versioned.into_iter().map(|(_, folder)| (None, folder)));
        folders
    }

    /// Folders with Python packages: of the environment that is active, of the `python3` or `python` on the path, of the user.
    fn sites(&self) -> Vec<PathBuf> {
        let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
            .into_iter()
            .filter_map(|variable| self.path(variable))
            .collect();
        let path = (self.variable)("PATH").unwrap_or_default();
        let programs = ["python3", "python"].into_iter().filter_map(|name| {
            std::env::split_paths(&path)
                .map(|folder| folder.join(name))
                .find(|program| program.is_file())
        });
        for program in programs {
            // A virtual environment's program is a link to the one that it was made from.
            let real = program.canonicalize().ok();
            for program in [Some(program), real].into_iter().flatten() {
                prefixes.extend(program.parent().and_then(Path::parent).map(Path::to_owned));
            }
        }
        prefixes.push(self.root.join("usr/local"));
        prefixes.extend(self.path("HOME").map(|home| home.join(".local")));
        let mut sites = Vec::new();
        for prefix in prefixes {
            for lib in ["lib", "lib64"] {
                let pythons = children(&prefix.join(lib)).into_iter().filter(|folder| {
                    let name = folder.file_name().unwrap_or_default();
                    name.to_string_lossy().starts_with("python3")
                });
                for python in pythons {
                    sites.extend(["site-packages", "dist-packages"].map(|name| python.join(name)));
                }
            }
        }
        let mut seen = std::collections::HashSet::new();
        sites.retain(|site| site.is_dir() && seen.insert(site.clone()));
        sites
    }
}

/// What is in a folder, in order; nothing when it can't be read.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    paths
}

/// The version in the name of a folder such as `cuda-12.8`.
fn version(name: &OsStr) -> Option<(u32, u32)> {
    let version = name.to_str()?.strip_prefix("cuda-")?;
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, folders: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("carve-{name}-{}", std::process::id()));
            folders
                .iter()
                .for_each(|folder| std::fs::create_dir_all(root.join(folder)).unwrap());
            Self(root)
        }

        fn places(&self, variables: &[(&str, &str)]) -> Vec<Place> {
            let variable = |name: &str| {
                let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
                Some(OsString::from(
                    value.replace("ROOT", self.0.to_str().unwrap()),
                ))
            };
            let variable = &variable;
            let surroundings = Surroundings {
                variable,
                root: &self.0,
            };
            surroundings.places()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn places_are_tried_in_order() {
        let tree = Tree::new(
            "places",
            &[
                "usr/local/cuda-9.2/lib64",
                "usr/local/cuda-12.8/lib64",
                "usr/local/cuda-12.10/targets/x86_64-linux/lib",
                "usr/local/cudalike/lib64",
                "env/lib/python3.12/site-packages/nvidia/cublas/lib",
                "env/lib/python3.12/site-packages/nvidia/cu13/lib",
                "home/.local/lib/python3.9/site-packages/nvidia/cublas/lib",
                "bin",
            ],
        );
        std::fs::write(tree.0.join("bin/python3"), "").unwrap();
        std::fs::create_dir_all(
            tree.0
                .join("lib/python3.11/dist-packages/nvidia/cublas/lib"),
        )
        .unwrap();
        let variables = [
            ("CUDA_HOME", "ROOT/toolkit"),
            ("CUDA_PATH", ""),
            ("VIRTUAL_ENV", "ROOT/env"),
            ("PATH", "ROOT/nowhere:ROOT/bin"),
            ("HOME", "ROOT/home"),
        ];
        let places = tree.places(&variables);
        let root = tree.0.to_str().unwrap();
        let names: Vec<_> = places
            .iter()
            .map(|place| place.name.replace(root, ""))
            .collect();
        assert_eq!(
            names,
            [
                "the loader's path",
                "/toolkit/lib64 (CUDA_HOME)",
                "/toolkit/lib (CUDA_HOME)",
                "/toolkit/targets/x86_64-linux/lib (CUDA_HOME)",
                "/usr/local/cuda-12.10/targets/x86_64-linux/lib",
                "/usr/local/cuda-12.8/lib64",
                "/usr/local/cuda-9.2/lib64",
                "/env/lib/python3.12/site-packages/nvidia/cu13/lib (a Python wheel)",
                "/env/lib/python3.12/site-packages/nvidia/cublas/lib (a Python wheel)",
                "/lib/python3.11/dist-packages/nvidia/cublas/lib (a Python wheel)",
                "/home/.local/lib/python3.9/site-packages/nvidia/cublas/lib (a Python wheel)",
            ]
        );
        assert!(places[0].by_loader && !places[1].by_loader);
        let [first, second] = &places[0].candidates[..] else {
            panic!("{places:?}")
        };
        assert_eq!((first.major, second.major), (Some(13), Some(12)));
        assert_eq!(first.path, Path::new("libcublas.so.13"));
        // A toolkit has the name without a version, too.
        assert_eq!(places[1].candidates[2].major, None);
        assert_eq!(places[7].candidates.len(), 2);
    }

    #[test]
    fn an_explicit_path_is_the_only_one() {
        let tree = Tree::new("explicit", &["here"]);
        let [place] = &tree.places(&[("CARVE_CUBLAS", "ROOT/here"), ("CUDA_HOME", "/x")])[..]
        else {
            panic!()
        };
        assert_eq!(place.candidates.len(), 3);
        let [place] = &tree.places(&[("CARVE_CUBLAS", "ROOT/here/libcublas.so.12.3")])[..] else {
            panic!()
        };
        assert_eq!(place.candidates.len(), 1);
        assert!(place.name.starts_with("CARVE_CUBLAS="), "{place:?}");
        let [place] = &tree.places(&[("CARVE_CUBLAS", "libcublas.so.12")])[..] else {
            panic!()
        };
        assert!(place.by_loader && place.explicit);
        assert!(tree.places(&[("CARVE_CUBLAS", "")]).is_empty());
    }
}
