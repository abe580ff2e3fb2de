//! As much of PTX as a driver's table of contents needs: version, entry names, sizes of parameters.

use parking_lot::Mutex;
use std::sync::Arc;

/// An entry point.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Bytes of each parameter.
    pub(crate) params: Vec<usize>,
}

/// What a text declares.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ptx {
    /// Ten times the version, such as 60.
    pub(crate) version: u32,
    pub(crate) entries: Vec<Entry>,
}

/// What a text declares, parsed when it is first seen: programs load the same few texts again and again. `None` for what is no
/// PTX.
pub(crate) fn read(text: &str) -> Option<Arc<Ptx>> {
    static SEEN: Mutex<Vec<(String, Arc<Ptx>)>> = Mutex::new(Vec::new());
    let mut seen = SEEN.lock();
    if let Some((_, ptx)) = seen.iter().find(|(known, _)| known == text) {
        return Some(ptx.clone());
    }
    let ptx = Arc::new(parse(text)?);
    seen.push((text.to_owned(), ptx.clone()));
    Some(ptx)
}

fn parse(text: &str) -> Option<Ptx> {
    let text = without_comments(text);
    let mut words = text.split_whitespace();
    words.find(|&word| word == ".version")?;
    let (major, minor) = words.next()?.split_once('.')?;
    let version = 10 * major.parse::<u32>().ok()? + minor.parse::<u32>().ok()?;
    let mut entries = Vec::new();
    for part in text.split(".entry").skip(1) {
        let head = &part[..part.find('{').unwrap_or(part.len())];
        let (name, params) = match head.find('(') {
            Some(open) => (&head[..open], &head[open + 1..head.rfind(')')?]),
            None => (head, ""),
        };
        let params = params.split(',').filter(|param| !param.trim().is_empty());
        entries.push(Entry {
            name: name.split_whitespace().next()?.to_owned(),
            params: params.map(bytes_of).collect::<Option<_>>()?,
        });
    }
    Some(Ptx { version, entries })
}

/// `.param .u64 name` or `.param .align 8 .b8 name[16]`.
fn bytes_of(param: &str) -> Option<usize> {
    let words: Vec<&str> = param.split_whitespace().collect();
    let one = words.iter().find_map(|word| match *word {
        ".b8" | ".u8" | ".s8" => Some(1),
        ".b16" | ".u16" | ".s16" | ".f16" => Some(2),
        ".b32" | ".u32" | ".s32" | ".f32" => Some(4),
        ".b64" | ".u64" | ".s64" | ".f64" => Some(8),
        _ => None,
    })?;
    let name = words.last()?;
    match name.split_once('[') {
        None => Some(one),
        Some((_, count)) => Some(one * count.trim_end_matches(']').parse::<usize>().ok()?),
    }
}

fn without_comments(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_with_the_sizes_of_their_parameters() {
        let text = "// .version 9.9\n.version 6.4\n.target sm_52\n.address_size 64\n\
            .visible .entry scale(\n\t.param .u64 scale_param_0, // where\n\t.param .f32 scale_param_1\n)\n\
            { ret; }\n.entry none { ret; }\n\
            .visible .entry rows(.param .align 8 .b8 rows_param_0[24],.param .u64 .ptr .global .align 4 p)\n\
            .maxntid 128\n{ ret; }";
        let ptx = parse(text).unwrap();
        assert_eq!(ptx.version, 64);
        let entries: Vec<(&str, &[usize])> =
            ptx.entries.iter().map(|e| (&*e.name, &*e.params)).collect();
        assert_eq!(
            entries,
            [("scale", &[8, 4][..]), ("none", &[]), ("rows", &[24, 8])]
        );
    }

    #[test]
    fn other_texts_are_none() {
        for text in ["", "\x7fELF", ".version six", ".target sm_52"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
