"""What operators hold: the command line, and the checks that it shares with others who show them."""
