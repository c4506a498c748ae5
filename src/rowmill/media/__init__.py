"""Images and audio of rows: what they are, where they may come from, what they cost, and how an engine gets them.

Promises: a file that is broken, too large or not allowed is its own row's failure, with a sentence.
Knows nothing of: plans, engines beyond what they take.
"""

from rowmill.media.loaded import Loaded
from rowmill.media.sight import Sight

__all__ = ["Loaded", "Sight"]
