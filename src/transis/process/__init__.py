"""What holds for a process as a whole: today, what becomes of open things when it forks."""
