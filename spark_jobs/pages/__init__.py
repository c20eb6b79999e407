"""The offline HTML pages."""
