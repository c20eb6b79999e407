"""The offline HTML site."""
