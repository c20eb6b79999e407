"""What every command line needs: arguments, configuration, logging, progress."""
