"""What a release reveals, recomputed from the noise that its card states."""

from beam_dp.verification.release import verify_release as verify_release
from beam_dp.verification.steps import Step as Step
from beam_dp.verification.verdict import Verification as Verification
