"""Settings of a blend."""

from __future__ import annotations

from longtail.settings import MAX_SEED, Settings, setting, settings

# Members should differ: the sparse linear part of glas would make it more like plt.
FEW_LABELS_MEMBERS, MANY_LABELS_MEMBERS = "plt, glas+sparse_part=false", "plt+ngrams=2, plt+ngrams=1"
MANY_LABELS = 4096


@settings
class BlendSettings(Settings):
    """Settings of a blend."""

    members: str | None = setting(
        'Specs of the methods to blend, separated by commas: "plt+dense=minilm, glas:paper+epochs=5".'
        f' None: "{FEW_LABELS_MEMBERS}", or "{MANY_LABELS_MEMBERS}" for texts with more than {MANY_LABELS:,} labels.',
        default=None,
    )
    label_names: bool = setting("Whether labels whose names occur in the text are candidates, too.", default=True)
    n_candidates: int = setting(
        "Candidate labels that each member proposes per sample.", default=30, positive=True, below=2**15
    )
    holdout: float = setting(
        "Share of the training samples held out to fit the weights if there is no validation data.",
        default=0.1,
        positive=True,
        maximum=0.5,
    )
    refit: bool = setting("Whether the members are fitted again on all samples after the weights are fitted.", default=True)
    seed: int = setting("Seed of the members and of the choice of held-out samples.", default=0, minimum=0, maximum=MAX_SEED)
    threads: int | None = setting("Threads. None: all cores.", default=None, positive=True)
