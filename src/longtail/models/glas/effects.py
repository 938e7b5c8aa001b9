"""When the settings of GLaS have an effect: those that would not are refused, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from longtail.conditions import Condition, refuse_unused
from longtail.models.glas.plan import GlasPlan

if TYPE_CHECKING:
    from longtail.models.glas.settings import GlasSettings

# The condition under which a setting has an effect: in words, and as a function of the settings and the plan.
_CONDITIONS: dict[str, tuple[str, Callable[[GlasSettings, GlasPlan], bool]]] = {
    "margin": ("loss=margin", lambda s, p: p.loss == "margin"),
    "n_hardest": ("negatives=hardest", lambda s, p: p.negatives == "hardest"),
    "logq_correction": ("negatives=batch or hardest", lambda s, p: p.negatives != "all"),
    "sparse_part": ("negatives=all", lambda s, p: p.negatives == "all"),
    "init_norm": ("init=pifa or svd", lambda s, p: p.init != "random"),
    "regulariser": ("reg_weight above 0", lambda s, p: s.reg_weight > 0),
    "cooccurrence": ("regulariser=glas or laplacian", lambda s, p: s.uses_cooccurrence),
    "reg_sampling": ("a regulariser other than gravity", lambda s, p: s.reg_weight > 0 and s.regulariser != "gravity"),
    "rescale": ("keep_prob below 1", lambda s, p: s.keep_prob < 1),
}


def refuse_settings_without_effect(settings: GlasSettings, plans: Sequence[GlasPlan]) -> None:
    """Raise a ``SettingError`` for a setting that is given, but would have no effect with any of the plans.

    0 and false are never refused: they say that something is off, which is then true.
    """
    got = f"; these labels get loss={plans[0].loss}, negatives={plans[0].negatives}" if len(plans) == 1 else ""
    conditions = [
        Condition(any(has_effect(settings, plan) for plan in plans), needs + got, (name,))
        for name, (needs, has_effect) in _CONDITIONS.items()
        if getattr(settings, name)
    ]
    refuse_unused(settings, conditions)
