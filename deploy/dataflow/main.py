"""What a Flex Template's launcher runs: the program that its image was built for."""

import importlib
import os
import sys

if __name__ == "__main__":
    program = importlib.import_module(f"beam_dp.pipelines.{os.environ['BEAM_DP_PROGRAM']}")
    sys.exit(program.main())
