"""Who runs a job: one worker on this machine."""
