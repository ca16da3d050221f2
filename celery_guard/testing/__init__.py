"""What others test with: the conformance suite of the stores, and the servers that tests run against."""
