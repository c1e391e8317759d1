//! The order of the modules in `docs/ARCHITECTURE.md`, and the absence of import cycles, in all
//! packages. The sources are read as text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

const PACKAGES: [(&str, &str); 3] = [
    ("k8s-informer", "src"),
    ("k8s-informer-controller", "crates/controller/src"),
    ("k8s-informer-testing", "crates/testing/src"),
];

/// A bench, which has no rows in ARCHITECTURE.md.
const PEERS: (&str, &str) = ("peers", "benches/peers/src");

/// The path of a module from the root of its package.
type Module = Vec<String>;

/// The modules that each module imports.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

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
            if !["mod", "lib", "main"].contains(&&*name) {
                module.push(name);
            }
            modules.insert(module, file);
        }
    }
}

/// Returns the code of a file without comments and without the modules of its tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("\nmod tests {").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Splits the items of a `use` with braces: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(path: &str) -> Vec<String> {
    let Some(open) = path.find('{') else {
        let path = path.split(" as ").next().unwrap().trim();
        return vec![path.trim_end_matches("::self").to_owned()];
    };
    let (prefix, mut depth, mut start) = (&path[..open], 0, open + 1);
    let mut paths = Vec::new();
    for (at, character) in path.char_indices().skip(open) {
        match character {
            '{' => depth += 1,
            '}' | ',' if depth == 1 => {
                let item = path[start..at].trim();
                if !item.is_empty() {
                    paths.extend(expand(&format!("{prefix}{item}")));
                }
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

/// The code of a file, split into its imports and the rest.
#[derive(Default)]
struct Source {
    /// The paths of its `use` declarations.
    imports: Vec<String>,
    /// Those of its `pub use` declarations.
    exports: Vec<String>,
    /// The names that it has by both, with their paths.
    names: BTreeMap<String, String>,
    /// The code without both.
    rest: String,
}

impl Source {
    fn parse(code: &str) -> Self {
        let mut source = Self::default();
        let mut lines = code.lines();
        while let Some(line) = lines.next() {
            let (indent, line) = line.split_at(line.len() - line.trim_start().len());
            let declaration = line.split_once("use ");
            let declaration = declaration
                .filter(|(visibility, _)| visibility.is_empty() || visibility.starts_with("pub"));
            let Some((visibility, start)) = declaration else {
                // The reason of a lint can have the name of an item.
                if !line.starts_with("#[") {
                    source.rest.push_str(line);
                    source.rest.push('\n');
                }
                continue;
            };
            let mut path = start.to_owned();
            while !path.contains(';') {
                path.push_str(lines.next().unwrap());
            }
            let paths = expand(path.split(';').next().unwrap());
            // A function or a module inside of the file has the indented ones.
            if indent.is_empty() {
                let name = |path: &String| path.rsplit("::").next().unwrap().to_owned();
                let named = paths.iter().map(|path| (name(path), path.clone()));
                source.names.extend(named);
            }
            match visibility {
                "" => source.imports.extend(paths),
                _ => source.exports.extend(paths),
            }
        }
        source
    }

    /// Returns the paths that this file uses. They begin with `crate`, `super`, `self` or the name
    /// of a child. The names that it exports from its children are not among them, unless its own
    /// code has them: such a file lies above its children, and no other file needs it for these names.
    fn used(&self, children: &[&str]) -> Vec<String> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = self.rest.split(|c| !is_word(c)).collect();
        let is_used = |path: &&String| {
            let is_child = children.iter().any(|child| {
                let path = path.strip_prefix("self::").unwrap_or(path);
                path.starts_with(&format!("{child}::"))
            });
            !is_child || words.contains(path.rsplit("::").next().unwrap())
        };
        let mut used: Vec<_> = self.exports.iter().filter(is_used).cloned().collect();
        used.extend(self.imports.iter().cloned());
        for start in ["crate", "super", "self"].iter().chain(children) {
            for (at, _) in self.rest.match_indices(&format!("{start}::")) {
                let before = &self.rest[..at];
                let is_inner = before.ends_with(|c| is_word(c) || matches!(c, ':' | '$'));
                // `pub(in crate::module)` is no import.
                if !is_inner && !before.ends_with("(in ") {
                    let path = &self.rest[at..];
                    let end = path.find(|c| !is_word(c) && c != ':');
                    used.push(path[..end.unwrap_or(path.len())].to_owned());
                }
            }
        }
        used.retain(|path| {
            let start = path.split("::").next().unwrap();
            ["crate", "super", "self"].contains(&start) || children.contains(&start)
        });
        used
    }
}

/// The names that a module has from others, with their paths.
type Names = BTreeMap<Module, BTreeMap<String, String>>;

/// Returns the module of a path in `module`: its longest prefix that is a file, or the file of the
/// item that this prefix exports.
fn target(
    path: &str,
    module: &Module,
    modules: &BTreeMap<Module, PathBuf>,
    names: &Names,
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
    let exported = name.and_then(|name| names.get(&of)?.get(&name));
    if let Some(path) = exported.filter(|_| of != *module)
        && let Some(file) = target(path, &of, modules, names)
    {
        return (file != *module).then_some(file);
    }
    (!of.is_empty() && of != *module).then_some(of)
}

fn imports(folder: &str) -> Imports {
    let mut modules = BTreeMap::new();
    collect(&root().join(folder), &[], &mut modules);
    let sources = modules
        .iter()
        .map(|(module, file)| (module.clone(), Source::parse(&code(file))));
    let sources: BTreeMap<Module, Source> = sources.collect();
    let names = sources
        .iter()
        .map(|(module, source)| (module.clone(), source.names.clone()));
    let names: Names = names.collect();
    let of = |(module, source): (&Module, &Source)| {
        let is_child =
            |other: &&Module| other.len() == module.len() + 1 && other.starts_with(module);
        let children = modules.keys().filter(is_child);
        let children: Vec<_> = children.map(|child| &*child[module.len()]).collect();
        let paths = source.used(&children);
        let targets = paths
            .iter()
            .filter_map(|path| target(path, module, &modules, &names));
        (module.clone(), targets.collect())
    };
    sources.iter().map(of).collect()
}

/// Returns the shortest chain of imports from one module to another, with both of its ends.
fn route(imports: &Imports, from: &Module, to: &Module) -> Option<Vec<Module>> {
    let mut before: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(module) = waiting.pop_front() {
        if module == to {
            let mut route: Vec<Module> =
                iter::successors(Some(module), |module| before.get(*module).copied())
                    .cloned()
                    .collect();
            route.reverse();
            return Some(route);
        }
        for next in &imports[module] {
            if next != from && !before.contains_key(next) {
                before.insert(next, module);
                waiting.push_back(next);
            }
        }
    }
    None
}

/// Returns a cycle of modules that import each other. A module and its descendants may do so, but
/// not by way of another module: the parent would be both above and below it.
fn cycle(imports: &Imports) -> Option<Vec<Module>> {
    let is_family = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
    let mut edges = imports
        .iter()
        .flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)));
    edges.find_map(|(from, to)| {
        if is_family(from, to) {
            return None;
        }
        route(imports, to, from)
    })
}

/// Returns the rank of each module: its row in the table under a heading of ARCHITECTURE.md.
fn ranks(heading: &str) -> BTreeMap<String, usize> {
    let document = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let (_, section) = document.split_once(&format!("\n{heading}\n")).unwrap();
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

/// Checks that the modules below `prefix` import only from rows above theirs.
#[track_caller]
fn check_rows(folder: &str, prefix: &[&str], ranks: &BTreeMap<String, usize>) {
    let name = |module: &Module| {
        let path: Vec<&str> = module.iter().map(|part| &**part).collect();
        path.strip_prefix(prefix)?
            .first()
            .map(|name| (*name).to_owned())
    };
    let rank = |module: &Module| name(module).and_then(|name| ranks.get(&name));
    for (module, targets) in imports(folder) {
        let Some(name) = name(&module).filter(|name| name != "guide") else {
            continue;
        };
        let own = rank(&module);
        assert!(own.is_some(), "{folder}: {name} is not in ARCHITECTURE.md");
        for target in &targets {
            assert!(
                rank(target) <= own,
                "{folder}: {} imports {}",
                module.join("::"),
                target.join("::")
            );
        }
    }
}

#[test]
fn files_do_not_import_each_other() {
    for (package, folder) in PACKAGES.into_iter().chain([PEERS]) {
        let imports = imports(folder);
        assert!(
            imports.values().map(BTreeSet::len).sum::<usize>() > 5,
            "{package}: too few imports"
        );
        assert_eq!(cycle(&imports), None, "{package}");
    }
}

#[test]
fn modules_import_only_from_rows_above() {
    for (package, folder) in PACKAGES {
        check_rows(folder, &[], &ranks(&format!("### {package}")));
    }
}

#[test]
fn folders_of_controllers_import_only_from_rows_above() {
    let ranks = ranks("#### Folders of the controllers");
    assert_eq!(ranks.len(), 9);
    check_rows("crates/controller/src", &["controller"], &ranks);
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
    let length = |edges| cycle(&imports(edges)).map(|cycle| cycle.len());
    assert_eq!(length(&[("a", "b"), ("b", "c"), ("a", "c")]), None);
    assert_eq!(length(&[("a", "b"), ("b", "c"), ("c", "a")]), Some(3));

    // A module and its children, each pair alone.
    let pairs = [("m", "m::a"), ("m::a", "m"), ("m", "m::b"), ("m::b", "m")];
    assert_eq!(length(&pairs), None);
    let grandchild = [("m", "m::a"), ("m::a", "m::a::b"), ("m::a::b", "m")];
    assert_eq!(length(&grandchild), None);
    // The parent is above one child and below the other.
    let siblings = [("m", "m::a"), ("m::a", "m::b"), ("m::b", "m")];
    assert_eq!(length(&siblings), Some(3));
    let cousins = [("m", "m::a::c"), ("m::a::c", "m::b"), ("m::b", "m")];
    assert_eq!(length(&cousins), Some(3));
    // A member outside the family.
    let stranger = [("m", "m::a"), ("m::a", "x"), ("x", "m")];
    assert_eq!(length(&stranger), Some(3));
}

#[test]
fn imports_are_found() {
    let source = Source::parse(
        "pub use a::{A, Unused};\npub(crate) use crate::e::E;\nuse super::b::{\n    self, C, d::{D, F as G},\n};
         fn f() { crate::h::i(A, a::j(), $crate::k()) }\nuse std::fmt;\nuse self::a::g;",
    );
    let expected = [
        "a::A",
        "crate::e::E",
        "super::b",
        "super::b::C",
        "super::b::d::D",
        "super::b::d::F",
        "self::a::g",
        "crate::h::i",
        "a::j",
    ];
    assert_eq!(source.used(&["a"]), expected);

    // The file of an item, also through two exports.
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let files = ["m", "m::a", "m::a::b", "m::c"];
    let modules = files.map(|name| (module(name), PathBuf::new())).into();
    let exports = [("m", "pub use self::a::B;"), ("m::a", "pub use b::B;")];
    let names = exports.map(|(name, code)| (module(name), Source::parse(code).names));
    let target = |path| target(path, &module("m::c"), &modules, &names.clone().into());
    assert_eq!(target("super::B"), Some(module("m::a::b")));
    assert_eq!(target("crate::m::a::X"), Some(module("m::a")));
    assert_eq!(target("super::X"), Some(module("m")));
    assert_eq!(target("super::c::X"), None);
    assert_eq!(target("crate::X"), None);
}
