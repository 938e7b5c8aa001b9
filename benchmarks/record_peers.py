"""Write the rows of other libraries in a saved benchmark to ``src/longtail/recipes/peers``, so that values are never typed.

python benchmarks/linear_trees.py --corpus delicious --json trees.json
python benchmarks/record_peers.py trees.json
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from pathlib import Path

from common import ROOT, Row, print_progress
from peers import PINS

RECIPES = ROOT / "src" / "longtail" / "recipes"
TREES, ONE_VS_REST = "Trees on ", "One-vs-rest"  # titles of tables


def select_peers(tables: dict[str, list[Row]]) -> list[Row]:
    """The rows of peers on real corpora, each with its corpus and its command."""
    found = []
    for title, rows in tables.items():
        script = "linear_trees.py" if title.startswith(TREES) else "ovr.py" if title == ONE_VS_REST else None
        for row in rows if script else ():
            name = row.get("corpus") or title.removeprefix(TREES)
            if not row["system"].startswith("longtail") and not name.startswith("synthetic"):
                found.append({**row, "corpus": name, "command": f"python benchmarks/{script} --corpus {name}"})
    return found


def render_peer(row: Row) -> str:
    """One row as TOML."""
    from longtail.recipes.recipe import COSTS, METRICS, render_figures

    package = next(name for name in PINS if row["system"].lower().startswith(name))
    kind = tomllib.loads((RECIPES / "corpora" / f"{row['corpus']}.toml").read_text("utf-8"))["kind"]
    about = {
        "system": row["system"],
        "version": PINS[package][0].partition("==")[2],
        "corpus": row["corpus"],
        "features": "single words" if kind == "texts" else "those of the corpus",
        "command": row["command"],
    }
    ranks = {f"{metric}@{k}": i for metric in ("P", "PSP") for i, k in enumerate((1, 3, 5))}
    values = {name: float(row[f"{name.split('@')[0]}@1/3/5"].split("/")[i]) for name, i in ranks.items()}
    lines = [f"{name} = {json.dumps(value)}" for name, value in about.items()]
    expected = {name: values[name] for name in METRICS if name in values}
    return "\n".join(lines) + "\n\n" + render_figures(expected, {name: row[name] for name in COSTS})


def main() -> None:
    """Read saved benchmarks, write a file for each peer and corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    doc = "file that linear_trees.py or ovr.py wrote with --json"
    parser.add_argument("saved", nargs="+", type=Path, metavar="FILE", help=doc)
    for saved in parser.parse_args().saved:
        for row in select_peers(json.loads(saved.read_text("utf-8"))):
            name = re.sub(r"\W+", "-", row["system"]).lower()
            path = RECIPES / "peers" / f"{name}.{row['corpus']}.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(render_peer(row), "utf-8")
            print_progress(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
