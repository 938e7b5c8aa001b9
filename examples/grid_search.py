"""Use a tagger as a scikit-learn estimator: in a pipeline, in cross-validation and in a grid search."""

from __future__ import annotations

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import longtail


def main() -> None:
    """Tune the regularisation of one-vs-rest on a part of the built-in corpus."""
    data = longtail.read("builtin:pydoc")
    data = data.take(np.random.default_rng(0).permutation(data.n_samples)[:1000])
    texts = list(data.texts)
    frequent = np.flatnonzero(np.bincount(data.Y.indices, minlength=data.n_labels) >= 20)
    y = data.Y[:, frequent].toarray().astype(int)  # a dense indicator matrix, as scikit-learn has it

    classifier = longtail.TextClassifier("ovr", min_df=1)  # computes its own features
    print("cross-validation:", cross_val_score(classifier, texts, y, cv=3, scoring="f1_micro").round(2))

    pipeline = make_pipeline(TfidfVectorizer(sublinear_tf=True), longtail.VectorClassifier("ovr"))
    search = GridSearchCV(pipeline, {"vectorclassifier__C": [0.1, 1.0, 10.0]}, cv=3, scoring="f1_micro").fit(texts, y)
    print(f"grid search: C={search.best_params_['vectorclassifier__C']}, F1 {search.best_score_:.2f}")


if __name__ == "__main__":
    main()
