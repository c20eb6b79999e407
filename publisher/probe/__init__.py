"""Where records come from: plugins, files, standard input."""
