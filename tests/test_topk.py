from __future__ import annotations

import numpy as np
import pytest

from longtail.topk import TopK


def test_ids_and_scores_must_have_the_same_shape() -> None:
    with pytest.raises(ValueError, match="same shape"):
        TopK(np.zeros((2, 3)), np.zeros((2, 2)))
