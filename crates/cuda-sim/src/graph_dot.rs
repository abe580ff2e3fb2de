//! Graphs as pictures: the DOT language of Graphviz.

use crate::driver::SimDriver;
use cuda_driver::RawGraph;
use std::fmt::Write as _;

impl SimDriver {
    /// The nodes and edges of a captured graph in the DOT language; `None` when there is no such graph.
    #[must_use]
    pub fn graph_dot(&self, graph: RawGraph) -> Option<String> {
        let sim = self.state();
        let data = &sim.graphs.get(graph.raw())?.data;
        let mut dot = String::from("digraph captured {\n  node [shape=box];\n");
        for (number, node) in data.nodes.iter().enumerate() {
            let (file, line) = (
                node.site.file().replace('\\', "/").replace('"', "'"),
                node.site.line(),
            );
            let (kind, stream) = (node.work.kind, node.stream.raw());
            let _ = writeln!(
                dot,
                "  n{number} [label=\"{kind}\\nstream {stream:#x}\\n{file}:{line}\"];"
            );
            for earlier in &node.after {
                let _ = writeln!(dot, "  n{earlier} -> n{number};");
            }
        }
        dot.push_str("}\n");
        Some(dot)
    }
}
