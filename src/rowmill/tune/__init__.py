"""A job -> the engine settings that do it soonest, measured on rows of the job itself.

Promises: rows of trials are results of the job, unless a trial would answer them otherwise than the job; settings that
change answers are tried only where they are asked for; every setting that is chosen has its reason.
Knows nothing of: terminals.
"""

from rowmill.tune.trial import Patience
from rowmill.tune.tuning import Ask, dry_run, tune

__all__ = ["Ask", "Patience", "dry_run", "tune"]
