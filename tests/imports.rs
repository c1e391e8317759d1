//! The order of the modules in `docs/ARCHITECTURE.md`, and the absence of import cycles, in all
//! packages. The sources are read as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PACKAGES: [(&str, &str); 3] = [
    ("k8s-informer", "src"),
    ("k8s-informer-controller", "crates/controller/src"),
    ("k8s-informer-testing", "crates/testing/src"),
];

/// The path of a module from the root of its package.
type Module = Vec<String>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Collects the modules of a folder that are files, without tests.
fn collect(folder: &Path, path: &[String], modules: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        if name.contains("tests") || name == "simulated" {
            continue;
        }
        let mut module = path.to_vec();
        if file.is_dir() {
            module.push(name);
            collect(&file, &module, modules);
        } else if file.extension().is_some_and(|extension| extension == "rs") {
            if name != "mod" && name != "lib" {
                module.push(name);
            }
            modules.insert(module, file);
        }
    }
}

/// Returns the code of a file without comments and without the modules of its tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code = code
        .split("#[cfg(all(test, not(shuttle)))]\nmod tests {")
        .next()
        .unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Splits the items of a `use` with braces: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(path: &str) -> Vec<String> {
    let Some(open) = path.find('{') else {
        return vec![path.split(" as ").next().unwrap().trim().to_owned()];
    };
    let (prefix, mut depth, mut start) = (&path[..open], 0, open + 1);
    let mut paths = Vec::new();
    for (at, character) in path.char_indices().skip(open) {
        match character {
            '{' => depth += 1,
            '}' | ',' if depth == 1 => {
                paths.extend(expand(&format!("{prefix}{}", path[start..at].trim())));
                start = at + 1;
                if character == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    paths
}

/// Returns the paths that begin with `crate`, `super` or `self`.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
                continue;
            }
            let rest = &code[at..];
            let is_use = code[..at].trim_end().ends_with("use");
            let end = match is_use {
                true => rest.find(';').unwrap_or(rest.len()),
                false => rest
                    .find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'))
                    .unwrap_or(rest.len()),
            };
            found.extend(expand(&rest[..end]));
        }
    }
    found
}

/// The names that a module exports from others, with their paths.
type Reexports = BTreeMap<Module, BTreeMap<String, String>>;

fn reexports(code: &str) -> BTreeMap<String, String> {
    let uses = code
        .split("use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next());
    let named = uses.flat_map(expand).filter_map(|path| {
        let name = path.rsplit("::").next()?.to_owned();
        Some((name, path))
    });
    named.collect()
}

/// Returns the module of a path in `module`: its longest prefix that is a file, or the file of the
/// item that this prefix exports.
fn target(
    path: &str,
    module: &Module,
    modules: &BTreeMap<Module, PathBuf>,
    reexports: &Reexports,
) -> Option<Module> {
    let mut of: Module = match path.starts_with("crate") {
        true => Vec::new(),
        false => module.clone(),
    };
    for part in path.split("::") {
        match part {
            "crate" | "self" => {}
            "super" => drop(of.pop()),
            part => of.push(part.to_owned()),
        }
    }
    let mut name = None;
    while !of.is_empty() && !modules.contains_key(&of) {
        name = of.pop();
    }
    let exported = name.and_then(|name| reexports.get(&of)?.get(&name));
    if let Some(path) = exported.filter(|_| of != *module) {
        let is_child = !["crate", "super", "self"].contains(&path.split("::").next().unwrap());
        let path = if is_child {
            format!("self::{path}")
        } else {
            path.clone()
        };
        // One step is enough: exports of exports are rare, and then their module counts.
        let direct = Reexports::new();
        if let Some(file) = target(&path, &of, modules, &direct) {
            return (file != *module).then_some(file);
        }
    }
    (!of.is_empty() && of != *module).then_some(of)
}

fn imports(folder: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut modules = BTreeMap::new();
    collect(&root().join(folder), &[], &mut modules);
    let codes = modules
        .iter()
        .map(|(module, file)| (module.clone(), code(file)));
    let codes: BTreeMap<Module, String> = codes.collect();
    let exports = codes
        .iter()
        .map(|(module, code)| (module.clone(), reexports(code)));
    let exports: Reexports = exports.collect();
    let of = |(module, code): (&Module, &String)| {
        let paths = paths(code);
        let targets = paths
            .iter()
            .filter_map(|path| target(path, module, &modules, &exports));
        (module.clone(), targets.collect())
    };
    codes.iter().map(of).collect()
}

/// Returns a circle of modules that import each other. A module and its children may do so.
fn cycle(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    let is_family = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
    let mut done = BTreeSet::new();
    for start in imports.keys() {
        // A search in depth, with the path from the start.
        let mut path: Vec<(&Module, Vec<&Module>)> = vec![(start, imports[start].iter().collect())];
        while let Some((module, rest)) = path.last_mut() {
            let module = *module;
            match rest.pop() {
                Some(next) if done.contains(next) || is_family(module, next) => {}
                Some(next) => {
                    if let Some(at) = path.iter().position(|(module, _)| *module == next) {
                        return Some(
                            path[at..]
                                .iter()
                                .map(|(module, _)| (*module).clone())
                                .collect(),
                        );
                    }
                    path.push((next, imports[next].iter().collect()));
                }
                None => {
                    done.insert(module);
                    path.pop();
                }
            }
        }
    }
    None
}

/// Returns the rank of each top-level module: the row of a package's table in ARCHITECTURE.md.
fn ranks(package: &str) -> BTreeMap<String, usize> {
    let document = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let (_, section) = document.split_once(&format!("\n### {package}\n")).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with("| `"));
    let rows = rows.take_while(|line| line.starts_with("| `"));
    let names = rows.enumerate().flat_map(|(rank, row)| {
        let cell = row.split(" | ").next().unwrap();
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(move |name| (name.to_owned(), rank))
    });
    names.collect()
}

#[test]
fn files_do_not_import_each_other() {
    for (package, folder) in PACKAGES {
        let imports = imports(folder);
        assert!(
            imports.values().map(BTreeSet::len).sum::<usize>() > 20,
            "{package}: too few imports"
        );
        assert_eq!(cycle(&imports), None, "{package}");
    }
}

#[test]
fn modules_import_only_from_rows_above() {
    for (package, folder) in PACKAGES {
        let ranks = ranks(package);
        let rank = |module: &Module| module.first().and_then(|name| ranks.get(name));
        for (module, targets) in imports(folder) {
            if module.is_empty() || module[0] == "guide" {
                continue;
            }
            let own = rank(&module);
            assert!(
                own.is_some(),
                "{package}: {} is not in ARCHITECTURE.md",
                module[0]
            );
            for target in &targets {
                assert!(
                    rank(target) <= own,
                    "{package}: {} imports {}",
                    module.join("::"),
                    target.join("::")
                );
            }
        }
    }
}

#[test]
fn cycles_are_found() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let imports = |edges: &[(&str, &str)]| {
        let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, to) in edges {
            imports.entry(module(to)).or_default();
            imports.entry(module(from)).or_default().insert(module(to));
        }
        imports
    };
    assert_eq!(cycle(&imports(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert_eq!(cycle(&imports(&[("a", "a::b"), ("a::b", "a")])), None);
    assert_eq!(
        cycle(&imports(&[("a", "b"), ("b", "c"), ("c", "a")]))
            .unwrap()
            .len(),
        3
    );
    let uses = "use super::b::{C, d::{E, F as G}};\nfn f() { crate::h::i() }";
    let expected = [
        "crate::h::i",
        "super::b::C",
        "super::b::d::E",
        "super::b::d::F",
    ];
    assert_eq!(paths(uses), expected);
}
