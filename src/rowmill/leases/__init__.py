"""Who may write: one run owns an output, one worker at a time holds a task.

Promises: no live run is pushed aside, no dead one stands in the way; wall clocks are never compared.
Knows nothing of: what a task is made of, what is written.
Memory: a small record a task seen.
Source: fencing by epoch and counted heartbeats as in the lease protocols of lock services;
the observer trusts its own monotonic clock alone.
"""

from __future__ import annotations

from rowmill.leases.note import Member, OwnerNote, current_note
from rowmill.leases.owner import Owner, claim_output
from rowmill.leases.tasks import Lease, Leases

__all__ = ["Lease", "Leases", "Member", "Owner", "OwnerNote", "claim_output", "current_note"]
