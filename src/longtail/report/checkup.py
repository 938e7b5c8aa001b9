"""The result of a data check as text."""

from __future__ import annotations

import textwrap

from longtail.data.check import CheckReport
from longtail.report.text import render_bar

_WIDTH = 110


def render_check(checkup: CheckReport) -> str:
    """Facts, label frequencies, and the findings with what to do about each."""
    lines = [f"{name:<22}{value}" for name, value in checkup.facts.items()]
    lines += ["", f"{'samples per label':<18}{'labels':>9}{'assignments':>13}"]
    largest = max(labels for _, labels, _ in checkup.curve)
    lines += [f"{name:<18}{n:>9,}{total:>13,}  {render_bar(n, largest)}".rstrip() for name, n, total in checkup.curve]
    n_findings = len(checkup.findings)
    lines += ["", f"{n_findings} finding{'s' if n_findings > 1 else ''}:" if n_findings else "No problems found."]
    for finding in checkup.findings:
        lines.append("")
        lines.append(f"• {finding.what}" if finding.count is None else f"• {finding.count:,} × {finding.what}")
        more = ", …" if (finding.count or 0) > len(finding.examples) else ""
        if finding.examples:
            lines += textwrap.wrap("for example " + ", ".join(finding.examples) + more, _WIDTH, initial_indent="  ")
        lines.append(f"  → {finding.advice}")
    return "\n".join(lines)
