"""`python -m beam_dp.cli`: what `beam-dp` does."""

import sys

from beam_dp.cli.main import main

sys.exit(main())
