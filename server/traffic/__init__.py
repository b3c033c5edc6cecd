"""What comes in and what goes out: bounded in time, in number and in memory."""
