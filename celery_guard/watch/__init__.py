"""What observers see. Nothing in here can change what happens to a job, fail it or hold it up."""
