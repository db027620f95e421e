"""How much longer than usual to wait for things that take no set time.

Deadlines of a bed are there to end a run that hangs; on an emulated machine everything takes
many times as long. CLAIM2CORE_TIME_SCALE (default 1) stretches them. What is judged - counts,
sets, order - is the same everywhere, and no time that the product itself promises is scaled.
"""

from __future__ import annotations

import os
from typing import Final

from nri_claim2core.lab.errors import LabError

VARIABLE: Final = "CLAIM2CORE_TIME_SCALE"


def read_scale(text: str | None) -> float:
    """Give the factor that a text asks for; 1 for None or an empty one.

    Raises: LabError when it is no number of 1 or more.
    """
    try:
        scale = float(text or 1)
    except ValueError:
        scale = 0.0
    if not 1 <= scale < float("inf"):
        raise LabError(f"{VARIABLE}={text}: not a number of 1 or more")
    return scale


SCALE: Final = read_scale(os.environ.get(VARIABLE))
