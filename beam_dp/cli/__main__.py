"""`python -m beam_dp.cli`: the same as `beam-dp`."""

import sys

from beam_dp.cli.main import main

sys.exit(main())
