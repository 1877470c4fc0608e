"""The contract of import-linter that pyproject.toml names: folders in one order, and imports only go downwards."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FolderLadder(Contract):
    """Each folder is named once, the upper ones first. A folder is the files that lie in it, not those of its folders.

    A file of the root package is named by itself. Imports under TYPE_CHECKING and in functions count, too.
    """

    type_name = "folder_ladder"
    folders = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        (root,) = self.session_options["root_packages"]
        ladder: list[str] = [f"{root}.{name}" for name in self.folders]  # type: ignore[attr-defined]
        modules = [m for m in graph.modules if m.startswith(f"{root}.") and not graph.is_module_squashed(m)]
        places = {module: _place(module, root, graph) for module in modules}
        found = [
            f"{name} is named {ladder.count(name)} times" for name in sorted(set(ladder)) if ladder.count(name) > 1
        ]
        found += [f"{name} is on no rung" for name in sorted(set(places.values()) - set(ladder))]
        found += [f"{name} has no file" for name in ladder if name not in places.values()]
        rungs = {name: rung for rung, name in enumerate(ladder)}
        if not found:
            for module in sorted(modules):
                for other in sorted(graph.find_modules_directly_imported_by(module)):
                    if other in places and rungs[places[other]] < rungs[places[module]]:
                        details = graph.get_import_details(importer=module, imported=other)
                        lines = ", ".join(str(each["line_number"]) for each in details)
                        found.append(f"{module} imports {other} (l. {lines}), whose folder is above its own")
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["found"]:
            output.print_error(line)


def _place(module: str, root: str, graph: ImportGraph) -> str:
    """The folder that has the module; a package is its own folder, a file of the root itself."""
    parent = module.rpartition(".")[0]
    is_package = bool(graph.find_children(module))
    return module if is_package or parent == root else parent


__all__ = ["FolderLadder"]
