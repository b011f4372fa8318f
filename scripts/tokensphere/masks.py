"""What a mask alone does: attention that looks at no content."""

from __future__ import annotations

import numpy as np

from tokensphere.sphere import Floats


def content_free(tokens: int, causal: bool) -> Floats:
    """Return attention that looks at everything it may see alike: 1/(i+1), or 1/n without a mask.

    Returns
    -------
    array, shape (tokens, tokens)
    """
    visible = np.ones((tokens, tokens))
    if causal:
        visible = np.tril(visible)
    attention: Floats = visible / visible.sum(axis=1, keepdims=True)
    return attention
