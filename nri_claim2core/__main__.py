"""`python -m nri_claim2core` is the command `nri-claim2core`."""

from __future__ import annotations

import sys

from nri_claim2core.cli.main import main

sys.exit(main())
