"""``tune``: measures what runs an environment fastest on this machine, and prints the code for it."""

from envfleet.tuning.race import tune
from envfleet.tuning.results import Candidate, TuningResult
from envfleet.tuning.setups import Setup

__all__ = ["Candidate", "Setup", "TuningResult", "tune"]
