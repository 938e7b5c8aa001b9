"""A check for methods whose saved models predict where torch is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from longtail import Tagger


def check_prediction_without_torch(tagger: Tagger, text: str, folder: Path) -> None:
    """Save a tagger; where torch, transformers and sentencepiece cannot be imported, it predicts the same."""
    tagger.save(folder)
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'sentencepiece'])); import longtail; "
        f"print([tag.label for tag in longtail.load({str(folder)!r}).predict([{text!r}], 2)[0]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([tag.label for tag in tagger.predict([text], 2)[0]])
